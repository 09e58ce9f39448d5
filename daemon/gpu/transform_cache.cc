#include "daemon/gpu/transform_cache.h"

#include <cuda_runtime_api.h>

#include <cstring>
#include <functional>
#include <vector>

#include "base/status.h"
#include "codecs/block/head_transform.h"
#include "daemon/gpu/cuda_check.h"

namespace firn::gpu {
namespace {

// Arrays that go to the GPU in one piece, each at a multiple of 16 bytes.
class ArrayPiece {
 public:
  // `*at` will be where the values are; empty ones stay null.
  template <typename T>
  void Add(const std::vector<T>& values, const T** at) {
    if (values.empty()) return;
    uint64_t offset = (bytes_.size() + 15) / 16 * 16;
    bytes_.resize(offset + values.size() * sizeof(T));
    std::memcpy(bytes_.data() + offset, values.data(), values.size() * sizeof(T));
    place_.push_back([at, offset](uint8_t* base) { *at = reinterpret_cast<const T*>(base + offset); });
  }
  absl::Status Send(void** memory) const {
    if (bytes_.empty()) return absl::OkStatus();
    FIRN_RETURN_IF_ERROR(CudaStatus(cudaMalloc(memory, bytes_.size()), "allocate an artifact"));
    // cudaMemcpy from pageable memory may come back before the bytes are on the GPU, and streams that do not block do
    // not wait for it.
    FIRN_RETURN_IF_ERROR(
        CudaStatus(cudaMemcpyAsync(*memory, bytes_.data(), bytes_.size(), cudaMemcpyHostToDevice, cudaStreamPerThread),
                   "copy an artifact"));
    FIRN_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(cudaStreamPerThread), "wait for an artifact"));
    for (const auto& place : place_) place(static_cast<uint8_t*>(*memory));
    return absl::OkStatus();
  }

 private:
  std::vector<uint8_t> bytes_;
  std::vector<std::function<void(uint8_t*)>> place_;
};

absl::StatusOr<std::shared_ptr<const DeviceTransform>> Make(const PartCoding& coding, const PartShape& shape,
                                                            uint32_t shard, const ArtifactSource& artifacts) {
  FIRN_ASSIGN_OR_RETURN(auto artifact, FindArtifact(coding, artifacts));
  FIRN_ASSIGN_OR_RETURN(auto transform, HeadTransform::Create(coding, shape, std::move(artifact), shard));
  auto made = std::make_shared<DeviceTransform>();
  std::vector<float> channels[3], scales, levels, decoded;
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    for (uint32_t head = 0; head < shape.heads; ++head) {
      ChannelTransform of = transform.For(layer, head);
      made->view.uniform_scale = of.uniform_scale;
      ModelData model = transform.ModelOf(layer, head, coding.bits);
      if ((coding.flags & PartCoding::kCalibrated) != 0) scales.push_back(model.scale);
      if (head == 0 && model.levels != nullptr) {
        levels.insert(levels.end(), model.levels, model.levels + (size_t{1} << coding.bits));
        decoded.insert(decoded.end(), model.decoded, model.decoded + (size_t{1} << coding.bits));
      }
      if (of.mean == nullptr) continue;
      const float* arrays[] = {of.mean, of.encode_scale, of.decode_scale};
      for (int i = 0; i < 3; ++i) channels[i].insert(channels[i].end(), arrays[i], arrays[i] + shape.width);
    }
  }
  ArrayPiece piece;
  piece.Add(channels[0], &made->view.mean);
  piece.Add(channels[1], &made->view.encode_scale);
  piece.Add(channels[2], &made->view.decode_scale);
  piece.Add(scales, &made->scales);
  piece.Add(levels, &made->levels);
  piece.Add(decoded, &made->decoded);
  if (const Rope* rope = transform.rope(); rope != nullptr) {
    piece.Add(rope->frequencies, &made->frequencies);
    made->pairs = static_cast<uint32_t>(rope->frequencies.size());
    made->interleaved = rope->interleaved;
  }
  FIRN_RETURN_IF_ERROR(piece.Send(&made->memory));
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
