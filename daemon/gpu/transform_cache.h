// What an artifact says of a part's channels and heads, as arrays on the GPU.
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

struct DeviceTransform {
  ~DeviceTransform();
  kernels::TransformView view;
  const float* scales = nullptr;  // Calibrated, [layers][heads]; null where there are none.
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
