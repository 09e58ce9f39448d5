// What the launcher of the attention kernels is given once the checks have passed. Internal to kernels/.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/attention.h"

namespace firn::kernels {

inline constexpr uint32_t kAttentionWidth = 128;
inline constexpr uint32_t kQueriesMax = 8;  // Of one KV head.
inline constexpr uint32_t kTileTokens = 16;

// What a query is to the products, beside its values.
struct QueryFacts {
  float unit;      // A score is unit * step * (16 or 64) * product + minimum * sum + constant, in units of log 2.
  float sum;       // Of the query's values as they are multiplied.
  float constant;  // The query times the keys' means.
};
// One part of a sequence, for one query.
struct Partial {
  float highest, weight;  // Sum of 2^(score - highest).
  float values[kAttentionWidth];
};

struct AttentionLaunch {
  AttentionJob job;
  uint32_t group = 1;             // Query heads a KV head.
  FastDivisor by_block;           // Tokens of a block.
  uint32_t tokens_per_split = 0;  // A multiple of kTileTokens.
  void* queries = nullptr;        // FP16 [sequences][query_heads][width], as they are multiplied.
  QueryFacts* facts = nullptr;    // [sequences][query_heads]
  Partial* partials = nullptr;    // [splits][sequences][query_heads]
};

cudaError_t LaunchAttention(const AttentionLaunch& launch, cudaStream_t stream);

}  // namespace firn::kernels
