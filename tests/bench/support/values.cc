#include "tests/bench/support/values.h"

#include <random>

#include "base/bytes.h"

namespace firn::bench {

std::vector<uint8_t> RandomValues(uint64_t bytes) {
  std::vector<uint8_t> out(bytes);
  std::mt19937_64 random(7);
  for (uint64_t i = 0; i + 8 <= bytes; i += 8) {
    uint64_t bits = random();
    StoreLe<uint64_t>(&out[i],
                      (bits & 0x8FFF8FFF8FFF8FFFull) | 0x2000200020002000ull | ((bits >> 3) & 0x0C000C000C000C00ull));
  }
  return out;
}

}  // namespace firn::bench
