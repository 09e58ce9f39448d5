// Per token, for rows of 32 * kLanes channels: a lane has 32 of them, and everything of a row happens in registers.
#include <algorithm>

#include "kernels/device/hadamard.cuh"
#include "kernels/device/nested_planes.cuh"
#include "kernels/device/nested_scale.cuh"
#include "kernels/nested/dispatch.cuh"

namespace firn::kernels {
namespace {

constexpr uint32_t kThreads = 256;

// What is done to channels besides rotating them.
enum class Scaling { kNone, kUniform, kArrays };

// Blocks of threads that share a multiprocessor: as many as registers allow without spilling.
constexpr int ResidentBlocks(bool encode, Scaling scaling) { return !encode && scaling == Scaling::kArrays ? 3 : 4; }

// In which order a launch goes through rows. Alongside: as they lie in memory, blocks of threads side by side. By head:
// each block of threads has a stretch of [layer][head][block][token], so that a head's arrays stay in its cache.
enum class Order { kAlongside, kByHead };
template <Scaling kScaling>
inline constexpr Order kOrderFor = kScaling == Scaling::kArrays ? Order::kByHead : Order::kAlongside;

// The rows that one lane works on. All lanes of a warp make as many steps: beyond the last row they repeat it and write
// nothing.
template <int kLanes, Order kOrder>
struct LaneRows {
  static constexpr uint32_t kWidth = 32 * kLanes;
  static constexpr uint32_t kQuarter = kWidth / 4;
  static constexpr uint32_t kNibbleBytes = kWidth / 2;
  static constexpr uint32_t kTogether = kThreads / kLanes;
  const NestedLaunch& launch;
  uint32_t lane, row, first, step, end, count;

  __device__ explicit LaneRows(const NestedLaunch& of) : launch(of) {
    lane = threadIdx.x % kLanes;
    count = end = launch.shape.rows();
    step = gridDim.x * kTogether;
    first = blockIdx.x * kTogether;
    if constexpr (kOrder == Order::kByHead) {
      uint32_t groups = (count + kTogether - 1) / kTogether;
      uint32_t stretch = (groups + gridDim.x - 1) / gridDim.x * kTogether;
      step = kTogether;
      first = min(blockIdx.x * stretch, count);
      end = min(first + stretch, count);
    }
    row = first + threadIdx.x / kLanes;
  }
  __device__ bool valid() const { return row < end; }
  __device__ bool last() const { return first + step >= end || first + step < step; }
  __device__ void Advance() {
    first += step;
    row += step;
  }
};

// Where one row and its codes lie.
template <int kLanes, Order kOrder, Places kPlaces>
struct RowPlace {
  uint32_t block, in_block, head, lane;  // `head` of all layers, by head alone.

  // Of the last row for those beyond.
  __device__ __forceinline__ RowPlace(const LaneRows<kLanes, kOrder>& rows, uint32_t row) : head(0), lane(rows.lane) {
    row = min(row, rows.count - 1);
    const BatchShape& shape = rows.launch.shape;
    if constexpr (kOrder == Order::kByHead) {
      uint32_t head_of_block = shape.by_tokens.Quotient(row);
      head = shape.by_blocks.Quotient(head_of_block);
      block = head_of_block - head * shape.blocks;
      in_block = head * shape.tokens + row - head_of_block * shape.tokens;
    } else {
      block = shape.by_block_rows.Quotient(row);
      in_block = row - block * shape.block_rows();
    }
  }
  template <typename Value>
  __device__ __forceinline__ Value* Values(const NestedLaunch& launch) const {
    const RowsView& rows = launch.job.rows;
    if constexpr (kPlaces == Places::kLinear) {
      return static_cast<Value*>(rows.base) + block * rows.page_stride + uint64_t{in_block} * (32 * kLanes) + lane * 8;
    }
    return RowOf<Value>(rows, launch.by_page, launch.shape.InBlockAt(block, in_block)) + lane * 8;
  }
  // Of a row of `row_bytes` bytes; runs have no more than 2^32 bytes.
  __device__ __forceinline__ uint8_t* Run(const RunView& run, uint32_t row_bytes) const {
    return RunBytesAt<kPlaces>(run, block, in_block * row_bytes);
  }
  __device__ __forceinline__ const float* Channels(const float* array) const {
    return array + head * (32 * kLanes) + lane * 8;
  }
};

__device__ __forceinline__ void Load8(const float* from, float (&to)[8]) {
  float4 a = __ldg(reinterpret_cast<const float4*>(from)), b = __ldg(reinterpret_cast<const float4*>(from) + 1);
  to[0] = a.x, to[1] = a.y, to[2] = a.z, to[3] = a.w, to[4] = b.x, to[5] = b.y, to[6] = b.z, to[7] = b.w;
}

struct RawRow {
  uint4 quarters[4];
};
template <typename Value, int kLanes, Order kOrder, Places kPlaces>
__device__ __forceinline__ RawRow LoadRow(const LaneRows<kLanes, kOrder>& rows, uint32_t row) {
  const Value* source = RowPlace<kLanes, kOrder, kPlaces>(rows, row).template Values<const Value>(rows.launch);
  RawRow raw;
#pragma unroll
  for (int q = 0; q < 4; ++q) raw.quarters[q] = LoadOnce(source + q * LaneRows<kLanes, kOrder>::kQuarter);
  return raw;
}

// The values as they are rotated: centred, and scaled.
template <typename Value, int kLanes, Scaling kScaling, Order kOrder, Places kPlaces>
__device__ __forceinline__ void ScaleRow(const LaneRows<kLanes, kOrder>& rows,
                                         const RowPlace<kLanes, kOrder, kPlaces>& place, const RawRow& raw,
                                         float (&v)[32]) {
  const NestedJob& job = rows.launch.job;
#pragma unroll
  for (int q = 0; q < 4; ++q) ToFloats8<Value>(raw.quarters[q], v + q * 8);
  if constexpr (kScaling == Scaling::kArrays) {
    const float* mean = place.Channels(job.transform.mean);
    const float* scale = place.Channels(job.transform.encode_scale);
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      float m[8], a[8];
      Load8(mean + q * LaneRows<kLanes, kOrder>::kQuarter, m);
      Load8(scale + q * LaneRows<kLanes, kOrder>::kQuarter, a);
#pragma unroll
      for (int j = 0; j < 8; ++j) v[q * 8 + j] = (v[q * 8 + j] - m[j]) * a[j];
    }
  }
  if constexpr (kScaling == Scaling::kUniform) {
#pragma unroll
    for (int i = 0; i < 32; ++i) v[i] *= job.transform.uniform_scale;
  }
}

template <typename Value, int kLanes, Order kOrder, Places kPlaces>
__device__ __forceinline__ void EncodeRow(const LaneRows<kLanes, kOrder>& rows,
                                          const RowPlace<kLanes, kOrder, kPlaces>& place, const float (&v)[32]) {
  using Rows = LaneRows<kLanes, kOrder>;
  const NestedJob& job = rows.launch.job;
  float lowest = v[0], highest = v[0];
#pragma unroll
  for (int i = 1; i < 32; ++i) {
    lowest = MinOrNan(lowest, v[i]);
    highest = fmaxf(highest, v[i]);
  }
#pragma unroll
  for (int apart = 1; apart < kLanes; apart *= 2) {
    lowest = MinOrNan(lowest, __shfl_xor_sync(0xFFFFFFFFu, lowest, apart));
    highest = fmaxf(highest, __shfl_xor_sync(0xFFFFFFFFu, highest, apart));
  }
  lowest = lowest + 0.0f, highest = highest + 0.0f;  // A zero counts as +0.
  GroupScale scale = ScaleOf<Value>(lowest, highest);
  LaneCodes codes;
#pragma unroll
  for (int i = 0; i < 32; i += 4) {
    uint32_t bits[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) bits[j] = CodeBits(v[i + j], scale.minimum, scale.inverse);
    codes.words[i / 4] = JoinBytes(bits[0], bits[1], bits[2], bits[3]);
  }
  if (!rows.valid()) return;
  if (rows.lane == 0) {
    *reinterpret_cast<uint32_t*>(place.Run(job.meta_run, 4)) =
        PairBits(ValueTraits<Value>::Nearest(scale.minimum), ValueTraits<Value>::Nearest(scale.step));
    uint32_t found = SurveyOf<Value>(lowest, highest, rows.launch.rotation);
    if (found != 0 && job.survey != nullptr) atomicOr(job.survey + place.block, found);
  }
  StoreOnce8(place.Run(job.p2, Rows::kQuarter) + rows.lane * 8, PackTopPair(codes));
  if (job.p4.present()) StoreOnce8(place.Run(job.p4, Rows::kQuarter) + rows.lane * 8, PackSecondPair(codes));
  if (job.p8.present()) {
    uint8_t* nibbles = place.Run(job.p8, Rows::kNibbleBytes) + rows.lane * 8;
    StoreOnce8(nibbles, PackNibbles(codes, 0));
    StoreOnce8(nibbles + Rows::kQuarter, PackNibbles(codes, 1));
  }
}

// The next row's values are asked for once this one's have left their registers, and after the arrays' have come: what
// is asked for later waits for what was asked for before it.
template <typename Value, int kLanes, bool kRotated, Scaling kScaling, Places kPlaces>
__global__ void __launch_bounds__(kThreads, ResidentBlocks(true, kScaling))
    EncodeToken(const __grid_constant__ NestedLaunch launch) {
  constexpr Order kOrder = kOrderFor<kScaling>;
  LaneRows<kLanes, kOrder> rows(launch);
  RawRow raw = LoadRow<Value, kLanes, kOrder, kPlaces>(rows, rows.row);
  while (true) {
    RowPlace<kLanes, kOrder, kPlaces> place(rows, rows.row);
    float v[32];
    ScaleRow<Value, kLanes, kScaling>(rows, place, raw, v);
    raw = LoadRow<Value, kLanes, kOrder, kPlaces>(rows, rows.row + rows.step);
    if constexpr (kRotated) RotateRow<kLanes>(v, rows.lane);
    EncodeRow<Value, kLanes>(rows, place, v);
    if (rows.last()) return;
    rows.Advance();
  }
}

struct RawCodes {
  uint2 p2, p4, low, high;
  uint32_t meta;
};

template <int kLanes, Order kOrder, Places kPlaces>
__device__ __forceinline__ RawCodes LoadCodes(const LaneRows<kLanes, kOrder>& rows, uint32_t row) {
  using Rows = LaneRows<kLanes, kOrder>;
  const NestedJob& job = rows.launch.job;
  RowPlace<kLanes, kOrder, kPlaces> place(rows, row);
  RawCodes raw{};
  raw.meta = __ldcs(reinterpret_cast<const uint32_t*>(place.Run(job.meta_run, 4)));
  raw.p2 = LoadOnce8(place.Run(job.p2, Rows::kQuarter) + rows.lane * 8);
  if (job.precision >= PrecisionClass::k4Bit) raw.p4 = LoadOnce8(place.Run(job.p4, Rows::kQuarter) + rows.lane * 8);
  if (job.precision >= PrecisionClass::k8Bit) {
    const uint8_t* nibbles = place.Run(job.p8, Rows::kNibbleBytes) + rows.lane * 8;
    raw.low = LoadOnce8(nibbles);
    raw.high = LoadOnce8(nibbles + Rows::kQuarter);
  }
  return raw;
}

template <typename Value>
__device__ __forceinline__ void UnpackRow(PrecisionClass precision, const RawCodes& raw, float (&v)[32]) {
  LaneCodes codes;
  UnpackTopPair(raw.p2, &codes);
  if (precision >= PrecisionClass::k4Bit) UnpackSecondPair(raw.p4, &codes);
  if (precision >= PrecisionClass::k8Bit) {
    UnpackNibbles(raw.low, 0, &codes);
    UnpackNibbles(raw.high, 1, &codes);
  }
  float offset = LevelOffset(precision);
  float2 scale = ValueTraits<Value>::ToFloats(raw.meta);
#pragma unroll
  for (int i = 0; i < 32; ++i) v[i] = scale.x + scale.y * LevelFloat(codes.words[i / 4], i % 4, offset);
}

template <int kLanes, Scaling kScaling, Order kOrder, Places kPlaces>
__device__ __forceinline__ void UnscaleRow(const LaneRows<kLanes, kOrder>& rows,
                                           const RowPlace<kLanes, kOrder, kPlaces>& place, float (&v)[32]) {
  const NestedJob& job = rows.launch.job;
  if constexpr (kScaling == Scaling::kArrays) {
    const float* mean = place.Channels(job.transform.mean);
    const float* scale = place.Channels(job.transform.decode_scale);
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      float m[8], a[8];
      Load8(scale + q * LaneRows<kLanes, kOrder>::kQuarter, a);
      Load8(mean + q * LaneRows<kLanes, kOrder>::kQuarter, m);
#pragma unroll
      for (int j = 0; j < 8; ++j) v[q * 8 + j] = v[q * 8 + j] * a[j] + m[j];
    }
  }
  if constexpr (kScaling == Scaling::kUniform) {
#pragma unroll
    for (int i = 0; i < 32; ++i) v[i] *= job.transform.uniform_scale;
  }
}

// The next row's codes are asked for last, so that nothing waits for them but their own row.
template <typename Value, int kLanes, bool kRotated, Scaling kScaling, Places kPlaces>
__global__ void __launch_bounds__(kThreads, ResidentBlocks(false, kScaling))
    DecodeToken(const __grid_constant__ NestedLaunch launch) {
  constexpr Order kOrder = kOrderFor<kScaling>;
  LaneRows<kLanes, kOrder> rows(launch);
  RawCodes raw = LoadCodes<kLanes, kOrder, kPlaces>(rows, rows.row);
  while (true) {
    RowPlace<kLanes, kOrder, kPlaces> place(rows, rows.row);
    float v[32];
    UnpackRow<Value>(launch.job.precision, raw, v);
    if constexpr (kScaling != Scaling::kArrays) raw = LoadCodes<kLanes, kOrder, kPlaces>(rows, rows.row + rows.step);
    if constexpr (kRotated) RotateRow<kLanes>(v, rows.lane);
    UnscaleRow<kLanes, kScaling>(rows, place, v);
    if constexpr (kScaling == Scaling::kArrays) raw = LoadCodes<kLanes, kOrder, kPlaces>(rows, rows.row + rows.step);
    if (rows.valid()) {
      Value* target = place.template Values<Value>(launch);
#pragma unroll
      for (int q = 0; q < 4; ++q)
        StoreOnce(target + q * LaneRows<kLanes, kOrder>::kQuarter, ToSaturated8<Value>(v + q * 8));
    }
    if (rows.last()) return;
    rows.Advance();
  }
}

template <bool kEncode, typename Value, int kLanes, bool kRotated, Scaling kScaling, Places kPlaces>
cudaError_t LaunchKernel(const NestedLaunch& launch, cudaStream_t stream) {
  int device = 0, processors = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  uint64_t wanted = (uint64_t{launch.shape.rows()} * kLanes + kThreads - 1) / kThreads;
  uint64_t blocks = std::min<uint64_t>(wanted, uint64_t{ResidentBlocks(kEncode, kScaling)} * processors);
  auto* kernel = kEncode ? EncodeToken<Value, kLanes, kRotated, kScaling, kPlaces>
                         : DecodeToken<Value, kLanes, kRotated, kScaling, kPlaces>;
  kernel<<<static_cast<uint32_t>(blocks), kThreads, 0, stream>>>(launch);
  return cudaGetLastError();
}

template <bool kEncode>
cudaError_t Launch(const NestedLaunch& launch, const FastShape& fast, cudaStream_t stream) {
  return ForFast(launch, fast, [&]<typename Value, int kLanes, Places kPlaces>() {
    auto with = [&]<bool kRotated, Scaling kScaling>() {
      return LaunchKernel<kEncode, Value, kLanes, kRotated, kScaling, kPlaces>(launch, stream);
    };
    bool arrays = launch.job.transform.mean != nullptr;
    if (launch.job.rotated && arrays) return with.template operator()<true, Scaling::kArrays>();
    if (launch.job.rotated) return with.template operator()<true, Scaling::kUniform>();
    if (arrays) return with.template operator()<false, Scaling::kArrays>();
    return with.template operator()<false, Scaling::kNone>();
  });
}

}  // namespace

cudaError_t LaunchEncodeTokenFast(const NestedLaunch& launch, const FastShape& fast, cudaStream_t stream) {
  return Launch<true>(launch, fast, stream);
}
cudaError_t LaunchDecodeTokenFast(const NestedLaunch& launch, const FastShape& fast, cudaStream_t stream) {
  return Launch<false>(launch, fast, stream);
}

}  // namespace firn::kernels
