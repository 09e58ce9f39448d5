// For any shape: a thread block has one row, in shared memory.
#include "kernels/condition/rows.cuh"

namespace firn::kernels {
namespace {

constexpr uint32_t kThreads = 128;

// The turn of the position, or the turn back, of every pair.
__device__ __forceinline__ void TurnRow(const ConditionLaunch& launch, const RowAt& at, bool back, float* row) {
  const RopeView& rope = launch.job.rope;
  if (rope.cosines == nullptr) return;
  uint64_t turns = TurnsOf(launch, at);
  for (uint32_t i = threadIdx.x; i < rope.pairs; i += kThreads) {
    uint32_t first = rope.interleaved ? 2 * i : i, second = rope.interleaved ? 2 * i + 1 : i + rope.pairs;
    float a = row[first], b = row[second], c = rope.cosines[turns + i], s = rope.sines[turns + i];
    if (back) s = -s;
    row[first] = a * c - b * s;
    row[second] = b * c + a * s;
  }
  __syncthreads();
}

__device__ __forceinline__ void RotateRow(const ConditionLaunch& launch, float* row) {
  for (uint32_t stride = 1; stride < launch.rotation; stride *= 2) {
    for (uint32_t i = threadIdx.x; i < launch.shape.width / 2; i += kThreads) {
      uint32_t first = i / stride * stride * 2 + i % stride;
      float a = row[first], b = row[first + stride];
      row[first] = a + b;
      row[first + stride] = a - b;
    }
    __syncthreads();
  }
}

template <typename Engine, typename Conditioned>
__global__ void __launch_bounds__(kThreads) ConditionRow(const __grid_constant__ ConditionLaunch launch) {
  extern __shared__ float row[];
  const ConditionJob& job = launch.job;
  const TransformView& transform = job.transform;
  RowAt at = launch.shape.Of(blockIdx.x);
  uint64_t channels = (uint64_t{at.layer} * launch.shape.heads + at.head) * launch.shape.width;
  const Engine* from = EngineRow<const Engine>(launch, at);
  for (uint32_t c = threadIdx.x; c < launch.shape.width; c += kThreads) {
    row[c] = LoadRowValue(from + c * job.rows.channel_stride);
  }
  __syncthreads();
  TurnRow(launch, at, /*back=*/true, row);
  for (uint32_t c = threadIdx.x; c < launch.shape.width; c += kThreads) {
    if (transform.mean != nullptr) row[c] = row[c] - transform.mean[channels + c];
    row[c] *= transform.encode_scale != nullptr ? transform.encode_scale[channels + c] : transform.uniform_scale;
  }
  __syncthreads();
  RotateRow(launch, row);
  Conditioned* to = ConditionedRow<Conditioned>(launch, at);
  bool unfit = false;
  for (uint32_t c = threadIdx.x; c < launch.shape.width; c += kThreads) {
    unfit |= !CanComeBack(launch, row[c]);
    to[c * job.conditioned_rows.channel_stride] = RoundedTo<Conditioned>(row[c]);
  }
  TellUnfit(launch, at.block, unfit);
}

template <typename Engine, typename Conditioned>
__global__ void __launch_bounds__(kThreads) RestoreRow(const __grid_constant__ ConditionLaunch launch) {
  extern __shared__ float row[];
  const ConditionJob& job = launch.job;
  const TransformView& transform = job.transform;
  RowAt at = launch.shape.Of(blockIdx.x);
  uint64_t channels = (uint64_t{at.layer} * launch.shape.heads + at.head) * launch.shape.width;
  const Conditioned* from = ConditionedRow<const Conditioned>(launch, at);
  for (uint32_t c = threadIdx.x; c < launch.shape.width; c += kThreads) {
    row[c] = LoadRowValue(from + c * job.conditioned_rows.channel_stride);
  }
  __syncthreads();
  RotateRow(launch, row);
  for (uint32_t c = threadIdx.x; c < launch.shape.width; c += kThreads) {
    row[c] *= transform.decode_scale != nullptr ? transform.decode_scale[channels + c] : transform.uniform_scale;
    if (transform.mean != nullptr) row[c] = row[c] + transform.mean[channels + c];
    row[c] = SaturatedBack(row[c]);
  }
  __syncthreads();
  TurnRow(launch, at, /*back=*/false, row);
  Engine* to = EngineRow<Engine>(launch, at);
  for (uint32_t c = threadIdx.x; c < launch.shape.width; c += kThreads) {
    to[c * job.rows.channel_stride] = RoundedTo<Engine>(SaturatedBack(row[c]));
  }
}

}  // namespace

cudaError_t LaunchConditionAny(const ConditionLaunch& launch, cudaStream_t stream) {
  return ForConditioned(launch.job, [&]<typename Engine, typename Conditioned>() {
    auto* kernel = launch.forward ? ConditionRow<Engine, Conditioned> : RestoreRow<Engine, Conditioned>;
    return LaunchShared<ConditionLaunch>(kernel, launch, launch.shape.rows(), kThreads,
                                         uint64_t{launch.shape.width} * sizeof(float), stream);
  });
}

}  // namespace firn::kernels
