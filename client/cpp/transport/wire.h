// Messages of the Put and Get streams, framed by hand so that payload bytes are never copied into a message.
//
// PutRequest and GetResponse carry their payload in field 15, once, length-delimited (see kv.proto). A PutRequest is
// its other fields, serialized by protobuf, followed by that field's tag and length and by slices of the caller's
// memory. A GetResponse is split the other way around: payload stays where it was received. Threads: pure functions;
// PayloadHold is thread-safe. Ownership: a PayloadHold counts the slices that still refer to the caller's memory; gRPC
// may keep some until the socket has taken them, so the caller gets its memory back only when the count is zero.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "firn/v1/kv.pb.h"

namespace firnkv {

inline constexpr uint32_t kPayloadField = 15;

class PayloadHold {
 public:
  // A slice over `bytes` that is counted until gRPC lets go of it.
  grpc::Slice MakeSlice(std::span<const uint8_t> bytes);
  bool released() const { return slices_.load(std::memory_order_acquire) == 0; }

 private:
  static void Release(void* self);
  std::atomic<int64_t> slices_{0};
};

// `payload` are pieces in the order in which they go on the wire; none: no payload field.
grpc::ByteBuffer FramePut(const firn::v1::PutRequest& head, std::span<const std::span<const uint8_t>> payload,
                          PayloadHold* hold);

// A received GetResponse; `payload` are views into the received slices, which `slices` keeps.
struct GetFrame {
  firn::v1::GetResponse head;  // Without payload.
  std::vector<grpc::Slice> slices;
  std::vector<std::span<const uint8_t>> payload;
  uint64_t payload_bytes = 0;
};
// DataLoss for bytes that are no GetResponse.
absl::Status ParseGet(const grpc::ByteBuffer& buffer, GetFrame* frame);

}  // namespace firnkv
