// Put messages without copying their payload: the wire format of firn.v1.PutRequest, taken apart where it lies.
//
// A message is a few bytes of control fields and up to a chunk of payload. ParsePutFrame copies the control fields out,
// to be parsed by generated code, and returns the payload as views into the message's own slices. GetFramePrefix is the
// way back: everything of a GetResponse that comes before its payload bytes.
//
// Threads: any. Ownership: views borrow the slices. Errors: InvalidArgument for anything that is not one well-formed
// message, for a second payload, for groups and for control fields over kControlBytesMax. Accepts nothing that protobuf
// would not.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"

namespace firn {

namespace v1 {
class GetResponse;
}

// A block's facts: two keys of 4 KiB, a layout, a session, and the importance of 65,536 tokens. Enough and no more.
inline constexpr size_t kControlBytesMax = (64 + 256) * 1024;
// Field 15, length-delimited: the last field of every message that carries payload.
inline constexpr uint8_t kPayloadTag = (15 << 3) | 2;

struct PutFrame {
  std::string control;            // Wire format of every field but the payload.
  std::vector<ByteSpan> payload;  // In order.
  uint64_t payload_bytes = 0;
};

absl::StatusOr<PutFrame> ParsePutFrame(std::span<const ByteSpan> slices);

// The bytes of `control` (whose payload is empty), then tag and length of a payload of `payload_bytes`, which must
// follow. For 0 the message is complete as it is.
std::string GetFramePrefix(const v1::GetResponse& control, uint64_t payload_bytes);

}  // namespace firn
