// Known blocks by the thousand: consecutive numbers put and read back in batches, and what became of each counted.
//
// Threads: values and plain functions. A batch is one call of at most 256 blocks and 64 MiB.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "client/trial/known_blocks.h"

namespace firn {

struct RangeResult {
  uint64_t good = 0;    // Stored or there already; read back within the error of the class that was stated.
  uint64_t missed = 0;  // NOT_FOUND.
  uint64_t failed = 0;  // Any other status.
  uint64_t wrong = 0;   // Other bytes than the block's.
  std::string first_failure = {};
  uint64_t all() const { return good + missed + failed + wrong; }
};
std::ostream& operator<<(std::ostream& out, const RangeResult& result);

// Blocks [first, first + count).
RangeResult PutRange(firnkv::Client& client, const firnkv::Namespace& ns, const KnownModel& model, uint64_t first,
                     uint64_t count, const firnkv::PutOptions& options = {});
RangeResult GetRange(firnkv::Client& client, const firnkv::Namespace& ns, const KnownModel& model, uint64_t first,
                     uint64_t count, const firnkv::GetOptions& options = {});

}  // namespace firn
