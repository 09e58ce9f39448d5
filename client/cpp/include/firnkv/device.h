// Blocks in a worker's own device memory, on a GPU of the daemon's machine: Session::FillFromDevice takes them from
// there, Client::GetToDevice decodes them to there, by CUDA IPC and without a copy on the host.
//
// This header needs no CUDA: handles are the 64 bytes that cudaIpcGetMemHandle gives of an allocation and
// cudaIpcGetEventHandle of an event made with cudaEventInterprocess. The event says when the values are there; it must
// have been recorded behind the kernels that write them. Only over Unix sockets, and where Capabilities' byte_paths
// have "gpu_handle". Offsets and strides are bytes; token t of head h of a part lies at
//   layer + pages[t / page_tokens] * page_stride + (t % page_tokens) * token_stride + h * head_stride
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "firnkv/types.h"

namespace firnkv {

using DeviceHandle = std::array<uint8_t, 64>;

struct DeviceLayer {
  uint32_t memory = 0;  // Index in DeviceRows::memory.
  uint64_t offset = 0;  // From the start of that allocation, not of what a sub-allocator made of it.
};

struct DevicePart {
  std::vector<DeviceLayer> layers = {};
  std::vector<uint32_t> pages = {};
  uint32_t page_tokens = 0;
  uint64_t page_stride = 0, token_stride = 0, head_stride = 0;
};

struct DeviceRows {
  std::vector<DeviceHandle> memory = {};
  DeviceHandle event = {};  // All zeros: none.
  DevicePart k = {}, v = {};
};

struct DeviceGetOptions {
  int64_t deadline_ms = 0;  // 0: the client's data_deadline_ms.
  PrecisionPair least = {};
  PrecisionPair most{Precision::kExact, Precision::kExact};
};

// What came of one block. Where `status` is not OK, what lies in the rows means nothing.
struct DeviceResult {
  absl::Status status = {};
  PrecisionPair served = {};
  uint32_t tier = 0;
  uint32_t tokens = 0;
  uint32_t first_token = 0;
  uint64_t generation = 0;
};

}  // namespace firnkv
