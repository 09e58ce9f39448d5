// What a client among many does on a few shared keys: puts, gets, deletes and looks up, and every byte that it reads is
// checked.
//
// Threads: one tally may be shared by all.
#pragma once

#include <atomic>
#include <cstdint>
#include <random>

#include "absl/status/status.h"
#include "client/trial/known_blocks.h"

namespace firn {

struct LoadTally {
  std::atomic<uint64_t> stored{0}, read{0}, missed{0}, deleted{0}, found{0}, wrong{0};
  uint64_t all() const { return stored + read + missed + deleted + found + wrong; }
};

// One operation drawn from `random`, on one of `keys` blocks: 3 of 8 put (a quarter of these durable), 3 get, 1
// deletes, 1 looks up. A miss, no room just now, and a put that another one of the same block decided are answers. What
// is returned is any other error.
absl::Status OperateOnce(firnkv::Client& client, const firnkv::Namespace& ns, const KnownModel& model, uint64_t keys,
                         std::mt19937_64& random, LoadTally& tally);

}  // namespace firn
