// CRC-64/ECMA-182, reflected (ISA-L's crc64_ecma_refl): the one checksum of every stored run and header.
//
// Seeding with an identity makes a misdirected, swapped or stale run fail its check. Threads: any.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace firn {

// The CRC of `bytes` continued from `seed`: Crc64(b, Crc64(a, s)) == Crc64(ab, s).
uint64_t Crc64(ByteSpan bytes, uint64_t seed);

}  // namespace firn
