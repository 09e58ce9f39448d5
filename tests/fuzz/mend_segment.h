// Puts right the checksums of a segment's parts (docs/formats/segment.md), whose salt is known here as it is to nobody
// who writes payloads.
//
// Threads: pure functions. What is too short, or has another magic, is left alone.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace firn::fuzz {

// `file` has at least 4 KiB. Returns the salt.
uint64_t MendSegmentHeader(MutableByteSpan file);

// The header of the extent that begins here. Returns its length; 0 where none begins.
uint64_t MendExtentHeader(MutableByteSpan bytes, uint64_t salt);

// The same with the checksum of its payload, where all of that is there.
void MendExtent(MutableByteSpan bytes, uint64_t salt);

// From the footer's first entry to the file's end, the trailer.
void MendFooter(MutableByteSpan footer, uint64_t salt);

// Where the trailer, in the last block of `file`, says that the footer is.
uint64_t FooterPlace(ByteSpan file);

}  // namespace firn::fuzz
