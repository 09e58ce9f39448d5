// What an artifact says of a part's channels, heads and layers, as arrays on the GPU.
//
// Threads: one. Ownership: entries live as long as somebody uses them; the cache keeps kEntriesMax.
#pragma once

#include <cstdint>
#include <list>
#include <memory>

#include "absl/status/statusor.h"
#include "codecs/artifact.h"
#include "codecs/record.h"
#include "kernels/views.h"

namespace firn::gpu {

// Arrays that the coding does not use are null.
struct DeviceTransform {
  DeviceTransform() = default;
  DeviceTransform(const DeviceTransform&) = delete;
  DeviceTransform& operator=(const DeviceTransform&) = delete;
  ~DeviceTransform();
  kernels::TransformView view;          // Of the conditioning, or of the code itself.
  const float* scales = nullptr;        // Calibrated, [layers][heads].
  const float* levels = nullptr;        // Codebooks, [layers][2^bits].
  const float* decoded = nullptr;       // What their codes stand for.
  const double* frequencies = nullptr;  // Of the rotary embedding, [pairs].
  uint32_t pairs = 0;
  bool interleaved = false;
  void* memory = nullptr;
};

class TransformCache {
 public:
  static constexpr size_t kEntriesMax = 64;
  absl::StatusOr<std::shared_ptr<const DeviceTransform>> Get(const PartCoding& coding, const PartShape& shape,
                                                             uint32_t shard, const ArtifactSource& artifacts);

 private:
  struct Entry {
    PartCoding coding;
    PartShape shape;
    uint32_t shard;
    std::shared_ptr<const DeviceTransform> transform;
  };
  std::list<Entry> entries_;  // The last used first.
};

}  // namespace firn::gpu
