// What protection costs in bytes, of blocks of any shape: computed from the layout, without values. Threads: any.
#pragma once

#include "codecs/block_codec.h"
#include "tests/bench/reliability/stored_record.h"

namespace firn::bench {

struct Cost {
  uint64_t header_bytes = 0, run_bytes = 0, parity_bytes = 0;  // As StoredRecord has them.
};

// Of a block of this shape at a class of a ladder, keys balanced and rotated.
Cost CostOf(const BlockShape& shape, Ladder ladder, PrecisionClass at, const Protection& protection);

}  // namespace firn::bench
