// A few neighbouring threads share a row, and each has the same piece of four rows under way at once.
#include "kernels/gather/launch.h"

namespace firn::kernels {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kRowsEach = 4;

// kPlain: the run's bytes are found without looking anything up.
template <typename Access, bool kGather, bool kPlain>
__global__ void __launch_bounds__(kThreads) CopyRows(const __grid_constant__ GatherLaunch launch) {
  uint32_t lanes = 1u << launch.lanes_log2, lane = threadIdx.x & (lanes - 1);
  uint32_t together = kThreads >> launch.lanes_log2;
  uint32_t first = blockIdx.x * (together * kRowsEach) + (threadIdx.x >> launch.lanes_log2);
  uint8_t* rows[kRowsEach];  // Null where the run has zeros.
  uint32_t block[kRowsEach], offset[kRowsEach], present = 0;
#pragma unroll
  for (uint32_t k = 0; k < kRowsEach; ++k) {
    uint32_t row = first + k * together;
    rows[k] = nullptr, block[k] = offset[k] = 0;
    if (row >= launch.shape.rows()) continue;
    RowAt at = launch.shape.Of(row);
    block[k] = at.block;
    offset[k] = (row - at.block * launch.shape.block_rows()) * launch.chunks;
    if (at.token < launch.tokens) rows[k] = RowOf<uint8_t>(launch.rows, launch.by_page, at);
    if (kGather || rows[k] != nullptr) present |= 1u << k;
  }
  for (uint32_t chunk = lane; chunk < launch.chunks; chunk += lanes) {
    Access held[kRowsEach];
    auto in_row = [&](uint32_t k) { return reinterpret_cast<Access*>(rows[k] + chunk * launch.chunk_stride); };
    auto in_run = [&](uint32_t k) {
      uint64_t at = uint64_t{offset[k] + chunk} * sizeof(Access);
      if constexpr (kPlain) {
        return reinterpret_cast<Access*>(launch.run.base + block[k] * launch.run.block_stride + at);
      }
      return reinterpret_cast<Access*>(launch.run.At(block[k], at));
    };
#pragma unroll
    for (uint32_t k = 0; k < kRowsEach; ++k) {
      held[k] = Access{};
      if (rows[k] != nullptr) held[k] = __ldcs(kGather ? in_row(k) : in_run(k));
    }
#pragma unroll
    for (uint32_t k = 0; k < kRowsEach; ++k) {
      if ((present >> k & 1) != 0) __stcs(kGather ? in_run(k) : in_row(k), held[k]);
    }
  }
}

template <typename Access, bool kGather>
cudaError_t LaunchAccess(const GatherLaunch& launch, cudaStream_t stream) {
  uint64_t rows_a_block = uint64_t{kThreads >> launch.lanes_log2} * kRowsEach;
  auto blocks = static_cast<uint32_t>((launch.shape.rows() + rows_a_block - 1) / rows_a_block);
  bool plain = launch.run.pages == nullptr && launch.run.block_bases == nullptr;
  auto* kernel = plain ? CopyRows<Access, kGather, true> : CopyRows<Access, kGather, false>;
  kernel<<<blocks, kThreads, 0, stream>>>(launch);
  return cudaGetLastError();
}

template <bool kGather>
cudaError_t Launch(const GatherLaunch& launch, cudaStream_t stream) {
  if (launch.access_bytes == 16) return LaunchAccess<uint4, kGather>(launch, stream);
  if (launch.access_bytes == 8) return LaunchAccess<uint2, kGather>(launch, stream);
  if (launch.access_bytes == 4) return LaunchAccess<uint32_t, kGather>(launch, stream);
  if (launch.access_bytes == 2) return LaunchAccess<uint16_t, kGather>(launch, stream);
  return LaunchAccess<uint8_t, kGather>(launch, stream);
}

}  // namespace

cudaError_t LaunchGather(const GatherLaunch& launch, cudaStream_t stream) { return Launch<true>(launch, stream); }
cudaError_t LaunchScatter(const GatherLaunch& launch, cudaStream_t stream) { return Launch<false>(launch, stream); }

}  // namespace firn::kernels
