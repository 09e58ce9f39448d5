// How often independent flips leave a run beyond repair: exact but for what the .cc says. Threads: pure functions.
#pragma once

#include <cstdint>

#include "codecs/ecc/ecc.h"

namespace firn::bench {

// The probability that `data_bytes` kept with a code's parity have other bytes after correction, each bit of both
// flipped with probability `rate`. 0 < rate < 1.
double LossOf(EccCode code, uint64_t data_bytes, double rate);

}  // namespace firn::bench
