// What the files about a record's header share (record.cc, record_check.cc); nobody else includes it.
#pragma once

#include "codecs/record.h"

namespace firn {

// Codes whose bits are those of each head.
inline bool MixesBits(const RecordHeader& header, Part part) {
  return header.Mixed(part) && header.CodingOf(part).bits == 0 &&
         FamilyOf(header.CodingOf(part).codec) == CodecFamily::kCodes;
}

}  // namespace firn
