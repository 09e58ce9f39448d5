// What the launcher of the attention kernels is given once the checks have passed. Internal to kernels/.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/attention.h"

namespace firn::kernels {

inline constexpr uint32_t kQueriesMax = 8;  // Of one KV head; a warp each.
inline constexpr uint32_t kTileTokens = 16;
inline constexpr uint32_t kAttentionThreads = 32 * kQueriesMax;

// Of one query over one part of a sequence.
struct PartSums {
  float highest, weight;  // The highest score, in units of log 2; the sum of 2^(score - highest).
};

struct AttentionLaunch {
  AttentionJob job;
  uint32_t group = 1;                // Query heads a KV head.
  FastDivisor by_block;              // Tokens of a block.
  FastDivisor by_exact_page[2][2];   // Tokens of a page of exact rows, of keys and of values.
  uint32_t turn = 1;                 // Tiles that a warp takes in turn; a block has a multiple of them.
  uint32_t tokens_per_split = 0;     // A multiple of turn * kTileTokens.
  uint32_t exact_per_split[2] = {};  // Multiples of kTileTokens.
  PartSums* sums = nullptr;          // [sequences][query_heads][splits]
  float* values = nullptr;  // The same, [width] each, as the packed values have them: before the rotation back.
};

}  // namespace firn::kernels
