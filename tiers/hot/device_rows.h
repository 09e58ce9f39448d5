// Where a worker has the rows of one block in its own device memory, by CUDA IPC: what Put takes from and Get gives to
// without passing through the host.
//
// A handle is what cudaIpcGetMemHandle gives of an allocation's start, and an event's what cudaIpcGetEventHandle gives:
// bearer tokens, to be had over verified local sockets alone. (On the processor in place of a GPU, both are names of
// POSIX shared memory: an event has come when its first word is not 0.) Offsets and strides are bytes; value(layer,
// head, token, channel) of a part lies at
//   memory(layer) + offset(layer) + pages[token / page_tokens] * page_stride + (token % page_tokens) * token_stride
//                 + head * head_stride + channel * bytes of a value
// Threads: values.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "codecs/types.h"

namespace firn {

inline constexpr size_t kDeviceHandleBytes = 64;
using DeviceHandle = std::array<uint8_t, kDeviceHandleBytes>;

struct DeviceLayer {
  uint32_t memory = 0;  // Index among the handles.
  uint64_t offset = 0;
  bool operator==(const DeviceLayer&) const = default;
};

struct DevicePart {
  std::vector<DeviceLayer> layers;  // One a layer; none where the part has width 0.
  std::vector<uint32_t> pages;      // As many as hold the tokens.
  uint32_t page_tokens = 0;
  uint64_t page_stride = 0, token_stride = 0, head_stride = 0;
  bool operator==(const DevicePart&) const = default;
};

struct DeviceRows {
  std::vector<DeviceHandle> memory;
  DeviceHandle event{};             // Of who produces the values; all zeros: none, which only an answer may have.
  std::array<DevicePart, 2> parts;  // By Part.
  bool operator==(const DeviceRows&) const = default;
  bool has_event() const { return event != DeviceHandle{}; }
};

// InvalidArgument unless the rows hold a block of `shape` with values of `value_bytes`, no stride or offset is beyond
// 2^47, and every index names something. `ends`, may be null, gets the first byte behind what is used of each memory.
absl::Status CheckDeviceRows(const DeviceRows& rows, const BlockShape& shape, uint32_t value_bytes,
                             std::vector<uint64_t>* ends);

}  // namespace firn
