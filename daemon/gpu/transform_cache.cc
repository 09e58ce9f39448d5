#include "daemon/gpu/transform_cache.h"

#include <cuda_runtime_api.h>

#include <vector>

#include "base/status.h"
#include "codecs/block/head_transform.h"
#include "daemon/gpu/cuda_check.h"

namespace firn::gpu {
namespace {

absl::StatusOr<std::shared_ptr<const DeviceTransform>> Make(const PartCoding& coding, const PartShape& shape,
                                                            uint32_t shard, const ArtifactSource& artifacts) {
  FIRN_ASSIGN_OR_RETURN(auto artifact, FindArtifact(coding, artifacts));
  FIRN_ASSIGN_OR_RETURN(auto transform, HeadTransform::Create(coding, shape, std::move(artifact), shard));
  auto made = std::make_shared<DeviceTransform>();
  std::vector<float> arrays[3], scales;
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    for (uint32_t head = 0; head < shape.heads; ++head) {
      ChannelTransform channels = transform.For(layer, head);
      made->view.uniform_scale = channels.uniform_scale;
      scales.push_back(transform.ModelOf(layer, head, coding.bits).scale);
      if (channels.mean == nullptr) continue;
      const float* of[] = {channels.mean, channels.encode_scale, channels.decode_scale};
      for (int i = 0; i < 3; ++i) arrays[i].insert(arrays[i].end(), of[i], of[i] + shape.width);
    }
  }
  bool calibrated = (coding.flags & PartCoding::kCalibrated) != 0;
  if (arrays[0].empty() && !calibrated) return made;
  // Each array begins at a multiple of 16 bytes.
  uint64_t array_floats = (arrays[0].size() + 3) / 4 * 4;
  std::vector<float> all(3 * array_floats + (calibrated ? scales.size() : 0));
  for (int i = 0; i < 3; ++i) std::copy(arrays[i].begin(), arrays[i].end(), all.begin() + i * array_floats);
  if (calibrated) std::copy(scales.begin(), scales.end(), all.begin() + 3 * array_floats);
  FIRN_RETURN_IF_ERROR(CudaStatus(cudaMalloc(&made->memory, all.size() * sizeof(float)), "allocate an artifact"));
  FIRN_RETURN_IF_ERROR(CudaStatus(
      cudaMemcpy(made->memory, all.data(), all.size() * sizeof(float), cudaMemcpyHostToDevice), "copy an artifact"));
  auto* base = static_cast<float*>(made->memory);
  if (!arrays[0].empty()) {
    made->view.mean = base;
    made->view.encode_scale = base + array_floats;
    made->view.decode_scale = base + 2 * array_floats;
  }
  if (calibrated) made->scales = base + 3 * array_floats;
  return made;
}

}  // namespace

DeviceTransform::~DeviceTransform() { cudaFree(memory); }

absl::StatusOr<std::shared_ptr<const DeviceTransform>> TransformCache::Get(const PartCoding& coding,
                                                                           const PartShape& shape, uint32_t shard,
                                                                           const ArtifactSource& artifacts) {
  PartShape of = shape;
  of.tokens = 0;  // They do not matter.
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    if (!(it->coding == coding) || !(it->shape == of) || it->shard != shard) continue;
    entries_.splice(entries_.begin(), entries_, it);
    return it->transform;
  }
  FIRN_ASSIGN_OR_RETURN(auto made, Make(coding, shape, shard, artifacts));
  entries_.push_front({coding, of, shard, made});
  if (entries_.size() > kEntriesMax) entries_.pop_back();
  return made;
}

}  // namespace firn::gpu
