#include "daemon/gpu/copy_list.h"

#include <algorithm>

#include "base/status.h"
#include "daemon/gpu/cuda_check.h"

namespace firn::gpu {

CopyList::Stretch CopyList::StretchOf(const Place& place, uint64_t done) {
  const uint64_t offset = place.offset + done, left = place.bytes - done;
  if (place.space == kPoolSpace) return {pool_ + offset, left, false};
  Stretch stretch{regions_->base(place.space) + offset, RegisteredRegions::Split(offset, left), false};
  stretch.first_of_piece = offset % RegisteredRegions::kPieceBytes == 0;
  all_registered_ = all_registered_ && regions_->registered(place.space) >= offset + stretch.bytes;
  return stretch;
}

void CopyList::Append(uint8_t* to, const uint8_t* from, uint64_t bytes, bool may_join) {
  if (bytes == 0) return;
  if (may_join && !to_.empty() && static_cast<uint8_t*>(to_.back()) + bytes_.back() == to &&
      static_cast<const uint8_t*>(from_.back()) + bytes_.back() == from) {
    bytes_.back() += bytes;
    return;
  }
  to_.push_back(to);
  from_.push_back(from);
  bytes_.push_back(bytes);
}

void CopyList::Add(const std::vector<Place>& source, const std::vector<Place>& target) {
  size_t from = 0, to = 0;
  uint64_t from_done = 0, to_done = 0;
  while (from < source.size() && to < target.size()) {
    Stretch a = StretchOf(source[from], from_done), b = StretchOf(target[to], to_done);
    uint64_t bytes = std::min(a.bytes, b.bytes);
    Append(b.at, a.at, bytes, !a.first_of_piece && !b.first_of_piece);
    from_done += bytes;
    to_done += bytes;
    if (from_done == source[from].bytes) ++from, from_done = 0;
    if (to_done == target[to].bytes) ++to, to_done = 0;
  }
}

void CopyList::AddOut(const uint8_t* from, const std::vector<Place>& target) {
  for (const Place& place : target) {
    for (uint64_t done = 0; done < place.bytes;) {
      Stretch stretch = StretchOf(place, done);
      Append(stretch.at, from, stretch.bytes, !stretch.first_of_piece);
      from += stretch.bytes;
      done += stretch.bytes;
    }
  }
}

void CopyList::AddPinned(const uint8_t* from, uint8_t* to, uint64_t bytes) { Append(to, from, bytes, true); }

absl::Status CopyList::Enqueue(cudaStream_t stream) {
#if CUDART_VERSION >= 13000
  // Copies of unregistered memory go by way of the driver's buffers, which is for single copies.
  if (to_.size() > 1 && all_registered_) {
    cudaMemcpyAttributes attributes{};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    attributes.flags = cudaMemcpyFlagPreferOverlapWithCompute;
    size_t first = 0;
    cudaError_t error = cudaMemcpyBatchAsync(to_.data(), from_.data(), bytes_.data(), to_.size(), &attributes, &first,
                                             /*numAttrs=*/1, stream);
    if (error == cudaSuccess) return absl::OkStatus();
    if (IsSticky(error)) return CudaStatus(error, "copy a list");
    (void)cudaGetLastError();  // A driver without such a call: one by one, then.
  }
#endif
  for (size_t i = 0; i < to_.size(); ++i) {
    FIRN_RETURN_IF_ERROR(
        CudaStatus(cudaMemcpyAsync(to_[i], from_[i], bytes_[i], cudaMemcpyDefault, stream), "copy bytes"));
  }
  return absl::OkStatus();
}

}  // namespace firn::gpu
