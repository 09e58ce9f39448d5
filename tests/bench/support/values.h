// Values for benchmarks: of the size that keys and values have. Threads: any.
#pragma once

#include <cstdint>
#include <vector>

namespace firn::bench {

// FP16 numbers around zero, the same ones every time.
std::vector<uint8_t> RandomValues(uint64_t bytes);

}  // namespace firn::bench
