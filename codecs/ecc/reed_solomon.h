// Reed-Solomon over stripes of up to 16 shards with two parity shards, decoded as erasures (docs/formats/ecc.md).
//
// A shard is a sector's bytes where there are as many, so that one lost sector, however it lies, is two shards at most;
// fewer bytes than that are one shard and two copies of it. A checksum for each shard says which are wrong; any two of
// a stripe may be. Threads: pure functions, tables are made once. Memory: up to 72 KiB of the heap for shards that are
// cut by the end of a span. Source: ISA-L, Cauchy matrix.
#pragma once

#include <cstdint>

#include "codecs/ecc/ecc.h"

namespace firn::rs {

inline constexpr uint32_t kDataShardsMax = 16;
inline constexpr uint32_t kParityShards = 2;
inline constexpr uint32_t kShardsMax = kDataShardsMax + kParityShards;
inline constexpr uint32_t kShardBytesMax = 4096;
inline constexpr uint32_t kShardBytesStep = 64;
inline constexpr uint64_t kStripeBytesMax = uint64_t{kDataShardsMax} * kShardBytesMax;
// The checksum of a shard is seeded with this plus 18 times its stripe plus its place there. "FECCRS01". Persistent.
inline constexpr uint64_t kChecksumSeed = 0x3130'5352'4343'4546;

// How a stripe of so many bytes, at least 1 and at most kStripeBytesMax, is cut.
struct StripeShape {
  uint32_t data_bytes = 0;
  uint32_t shard_bytes = 0;
  uint32_t data_shards = 0;

  static StripeShape Of(uint64_t bytes_left);
  uint32_t shards() const { return data_shards + kParityShards; }
  // Those that a shard really has: the last data shard ends with the stripe.
  uint32_t BytesOf(uint32_t shard) const {
    return shard + 1 == data_shards ? data_bytes - shard * shard_bytes : shard_bytes;
  }
  uint32_t parity_bytes() const { return kParityShards * shard_bytes + shards() * 8; }
};

// As in ecc.h.
uint64_t ParityBytes(uint64_t data_bytes);
void ComputeParity(const RunBytes& data, const MutableRunBytes& parity);
bool ParityAgrees(const RunBytes& data, const RunBytes& parity);
EccOutcome CorrectInPlace(const MutableRunBytes& data, const MutableRunBytes& parity);

}  // namespace firn::rs
