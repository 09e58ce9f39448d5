#include "base/checksum.h"

#include <isa-l/crc64.h>

namespace firn {

uint64_t Crc64(ByteSpan bytes, uint64_t seed) { return crc64_ecma_refl(seed, bytes.data(), bytes.size()); }

}  // namespace firn
