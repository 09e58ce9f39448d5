// For any shape: a thread block has one vector. Values and their places make keys that differ everywhere, so the next
// outlier is the largest key below the last one's, and nothing need be marked.
#include "kernels/nuq/levels.cuh"

namespace firn::kernels {
namespace {

constexpr uint32_t kThreads = 128;

// A vector, and where its values and its metadata lie.
struct VectorAt {
  RowAt at;  // Of its first value.
  uint32_t size, outliers, index_bytes;
  uint64_t meta_offset;

  __device__ __forceinline__ explicit VectorAt(const NuqLaunch& launch)
      : size(launch.vector), outliers(launch.outliers), index_bytes(launch.index_bytes) {
    uint32_t index = blockIdx.x;
    if (launch.job.per_channel) {
      uint32_t head_index = launch.by_groups.Quotient(index), group = index - head_index * launch.groups;
      at = launch.shape.HeadOf(head_index);
      at.token = group * launch.group;
      uint64_t head = uint64_t{at.layer} * launch.shape.heads + at.head;
      meta_offset = head * launch.head_bytes + uint64_t{group} * launch.vector_bytes;
      if (group + 1 < launch.groups) return;
      size = launch.last_vector, outliers = launch.last_outliers, index_bytes = launch.last_index_bytes;
      return;
    }
    uint32_t layer_index = launch.shape.by_tokens.Quotient(index);
    at.head = 0, at.token = index - layer_index * launch.shape.tokens;
    at.block = launch.shape.by_layers.Quotient(layer_index);
    at.layer = layer_index - at.block * launch.shape.layers;
    meta_offset = (uint64_t{at.layer} * launch.shape.tokens + at.token) * launch.vector_bytes;
  }
  // The row and the channel of a value: a vector has rows of one head, or one row of every head.
  __device__ __forceinline__ RowAt Row(const NuqLaunch& launch, uint32_t index, uint32_t* channel) const {
    RowAt row = at;
    uint32_t rows = launch.by_width.Quotient(index);
    *channel = index - rows * launch.shape.width;
    if (launch.job.per_channel) {
      row.token += rows;
    } else {
      row.head += rows;
    }
    return row;
  }
  template <typename Value>
  __device__ __forceinline__ Value* At(const NuqLaunch& launch, uint32_t index) const {
    uint32_t channel;
    RowAt row = Row(launch, index, &channel);
    return RowOf<Value>(launch.job.rows, launch.by_page, row) + channel * launch.job.rows.channel_stride;
  }
  // Of the artifact's arrays: per channel alone.
  __device__ __forceinline__ float Channel(const NuqLaunch& launch, const float* array, uint32_t c) const {
    return array[(uint64_t{at.layer} * launch.shape.heads + at.head) * launch.shape.width + c];
  }
  // Byte `offset` of the vector's metadata, at which a 2-byte piece begins.
  __device__ __forceinline__ uint16_t* Meta(const NuqLaunch& launch, uint64_t offset) const {
    return reinterpret_cast<uint16_t*>(launch.job.meta_run.At(at.block, meta_offset + offset));
  }
};

template <typename T>
__device__ __forceinline__ void StorePieces(const NuqLaunch& launch, const VectorAt& vector, uint64_t offset, T value) {
  uint16_t pieces[sizeof(T) / 2];
  memcpy(pieces, &value, sizeof(T));
  for (uint32_t i = 0; i < sizeof(T) / 2; ++i) *vector.Meta(launch, offset + 2 * i) = pieces[i];
}
template <typename T>
__device__ __forceinline__ T LoadPieces(const NuqLaunch& launch, const VectorAt& vector, uint64_t offset) {
  uint16_t pieces[sizeof(T) / 2];
  for (uint32_t i = 0; i < sizeof(T) / 2; ++i) pieces[i] = *vector.Meta(launch, offset + 2 * i);
  T value;
  memcpy(&value, pieces, sizeof(T));
  return value;
}

using Key = unsigned long long;

// The largest of all threads.
__device__ __forceinline__ Key BlockMax(Key key) {
  __shared__ Key largest;
  __syncthreads();
  if (threadIdx.x == 0) largest = 0;
  __syncthreads();
  atomicMax(&largest, key);
  __syncthreads();
  return largest;
}

// Of equal numbers the first is the largest.
__device__ __forceinline__ Key KeyOf(uint32_t number, uint32_t index) { return Key{number} + 1 << 32 | ~index; }

// The `count`-th largest of key(i); above all where `count` is 0. `key` gives 0 for what is not to be chosen.
template <typename KeyAt>
__device__ __forceinline__ Key NthLargest(const VectorAt& vector, uint32_t count, const KeyAt& key) {
  Key last = ~Key{0};
  for (uint32_t n = 0; n < count; ++n) {
    Key own = 0;
    for (uint32_t i = threadIdx.x; i < vector.size; i += kThreads) {
      Key candidate = key(i);
      if (candidate < last) own = max(own, candidate);
    }
    last = BlockMax(own);
  }
  return last;
}

// Writes the entries of those that `taken(i)` says, in the order of their places.
template <typename Value, typename Meta, typename Taken>
__device__ __forceinline__ void StoreOutliers(const NuqLaunch& launch, const VectorAt& vector, uint64_t offset,
                                              const Taken& taken) {
  __shared__ uint32_t of_warp[kThreads / 32];
  uint32_t before = 0, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (uint32_t first = 0; first < vector.size; first += kThreads) {
    uint32_t i = first + threadIdx.x;
    bool mine = i < vector.size && taken(i);
    uint32_t warp_mask = __ballot_sync(0xFFFFFFFFu, mine);
    __syncthreads();
    of_warp[warp] = __popc(warp_mask);
    __syncthreads();
    uint32_t rank = before + __popc(warp_mask & ((1u << lane) - 1));
    for (uint32_t w = 0; w < kThreads / 32; ++w) {
      if (w < warp) rank += of_warp[w];
      before += of_warp[w];
    }
    if (!mine) continue;
    uint64_t at = offset + uint64_t{rank} * (vector.index_bytes + sizeof(Meta));
    if (vector.index_bytes == 2) StorePieces(launch, vector, at, static_cast<uint16_t>(i));
    if (vector.index_bytes == 4) StorePieces(launch, vector, at, i);
    float value = LoadRowValue(vector.At<const Value>(launch, i));
    StorePieces(launch, vector, at + vector.index_bytes, MetaTraits<Meta>::Nearest(value));
  }
}

// The largest magnitude of the vector's values; all threads have the same, NaN where there is one.
template <typename Value>
__device__ __forceinline__ float LargestMagnitude(const NuqLaunch& launch, const VectorAt& vector) {
  Key largest = 0;  // Magnitudes as integers order as they do, and NaN comes after Inf.
  for (uint32_t i = threadIdx.x; i < vector.size; i += kThreads) {
    float value = LoadRowValue(vector.At<const Value>(launch, i));
    largest = max(largest, Key{__float_as_uint(value) & 0x7FFFFFFFu});
  }
  return __uint_as_float(static_cast<uint32_t>(BlockMax(largest)));
}

// Codes of the vector's rows, of which `normalised(i)` is a value.
template <typename Normalised>
__device__ __forceinline__ void StoreCodeRows(const NuqLaunch& launch, const VectorAt& vector, const float* thresholds,
                                              const Normalised& normalised) {
  uint32_t width = launch.shape.width;
  for (uint32_t first = 0; first < vector.size; first += width) {
    uint32_t channel;
    RowAt row = vector.Row(launch, first, &channel);
    StoreCodeRow(launch.job.codes, row.block, launch.shape.InBlock(row), width, launch.job.bits,
                 [&](uint32_t c) { return NearestLevel(thresholds, launch.job.bits, normalised(first + c)); });
  }
}

template <typename Value, typename Meta>
__global__ void __launch_bounds__(kThreads) EncodeChannel(const __grid_constant__ NuqLaunch launch) {
  __shared__ float thresholds[kLevelsMax];
  VectorAt vector(launch);
  LoadThresholds(launch.job, vector.at.layer, thresholds);
  __syncthreads();
  const TransformView& ranges = launch.job.ranges;
  auto normalised = [&](uint32_t i) {
    uint32_t c;
    RowAt row = vector.Row(launch, i, &c);
    const Value* at = RowOf<const Value>(launch.job.rows, launch.by_page, row) + c * launch.job.rows.channel_stride;
    return (LoadRowValue(at) - vector.Channel(launch, ranges.mean, c)) * vector.Channel(launch, ranges.encode_scale, c);
  };
  auto key = [&](uint32_t i) { return KeyOf(__float_as_uint(normalised(i)) & 0x7FFFFFFFu, i); };
  float magnitude = LargestMagnitude<Value>(launch, vector);
  if (threadIdx.x == 0) {
    TellSurvey(launch, vector.at.block, MagnitudeSurvey<Meta>(magnitude, vector.outliers > 0));
  }
  Key last = NthLargest(vector, vector.outliers, key);
  if (vector.outliers > 0) {
    StoreOutliers<Value, Meta>(launch, vector, 0, [&](uint32_t i) { return key(i) >= last; });
  }
  StoreCodeRows(launch, vector, thresholds, normalised);
}

template <typename Value, typename Meta>
__global__ void __launch_bounds__(kThreads) EncodeToken(const __grid_constant__ NuqLaunch launch) {
  __shared__ float thresholds[kLevelsMax];
  VectorAt vector(launch);
  LoadThresholds(launch.job, vector.at.layer, thresholds);
  __syncthreads();
  auto value = [&](uint32_t i) { return LoadRowValue(vector.At<const Value>(launch, i)); };
  auto order = [&](uint32_t i) { return static_cast<uint32_t>(OrderOf(value(i))) ^ 0x80000000u; };
  auto high_key = [&](uint32_t i) { return KeyOf(order(i), i); };
  uint32_t low_count = vector.outliers / 2;
  Key high_last = NthLargest(vector, vector.outliers - low_count, high_key);
  auto low_key = [&](uint32_t i) { return high_key(i) >= high_last ? 0 : KeyOf(~order(i), i); };
  Key low_last = NthLargest(vector, low_count, low_key);
  auto taken = [&](uint32_t i) { return high_key(i) >= high_last || low_key(i) >= low_last; };
  // The extremes of what is left; 0 where nothing is.
  Key least = 0, most = 0;
  for (uint32_t i = threadIdx.x; i < vector.size; i += kThreads) {
    if (taken(i)) continue;
    most = max(most, high_key(i));
    least = max(least, low_key(i));
  }
  most = BlockMax(most), least = BlockMax(least);
  auto ordered = [](uint32_t number) { return FromOrder(static_cast<int32_t>(number ^ 0x80000000u)); };
  float lowest = least == 0 ? 0.0f : ordered(~(static_cast<uint32_t>((least >> 32) - 1)));
  float highest = most == 0 ? 0.0f : ordered(static_cast<uint32_t>((most >> 32) - 1));
  NuqRange range = NuqRangeOf<Meta>(lowest, highest);
  float magnitude = LargestMagnitude<Value>(launch, vector);
  if (threadIdx.x == 0) {
    StorePieces(launch, vector, 0, MetaTraits<Meta>::Nearest(range.centre));
    StorePieces(launch, vector, sizeof(Meta), MetaTraits<Meta>::Nearest(range.reach));
    TellSurvey(launch, vector.at.block, MagnitudeSurvey<Meta>(magnitude, true) | ReachSurvey<Meta>(lowest, highest));
  }
  StoreOutliers<Value, Meta>(launch, vector, 2 * sizeof(Meta), taken);
  StoreCodeRows(launch, vector, thresholds, [&](uint32_t i) { return (value(i) - range.centre) * range.inverse; });
}

template <typename Value, typename Meta>
__global__ void __launch_bounds__(kThreads) DecodeVector(const __grid_constant__ NuqLaunch launch) {
  using Traits = MetaTraits<Meta>;
  const NuqJob& job = launch.job;
  VectorAt vector(launch);
  const float* decoded = job.decoded + (uint64_t{vector.at.layer} << job.bits);
  float centre = 0, reach = 0;
  uint64_t entries = 0;
  if (!job.per_channel) {
    centre = Traits::ToFloat(LoadPieces<Meta>(launch, vector, 0));
    reach = Traits::ToFloat(LoadPieces<Meta>(launch, vector, sizeof(Meta)));
    entries = 2 * sizeof(Meta);
  }
  for (uint32_t i = threadIdx.x; i < vector.size; i += kThreads) {
    uint32_t c;
    RowAt row = vector.Row(launch, i, &c);
    float level = decoded[LoadCode(job.codes, row.block, launch.shape.InBlock(row), launch.shape.width, job.bits, c)];
    float value = NuqValueOf(level, centre, reach);
    if (job.per_channel) {
      value = level * vector.Channel(launch, job.ranges.decode_scale, c) + vector.Channel(launch, job.ranges.mean, c);
    }
    StoreSaturated(vector.At<Value>(launch, i), value);
  }
  __syncthreads();
  for (uint32_t e = threadIdx.x; e < vector.outliers; e += kThreads) {
    uint64_t at = entries + uint64_t{e} * (vector.index_bytes + sizeof(Meta));
    uint32_t index =
        vector.index_bytes == 2 ? LoadPieces<uint16_t>(launch, vector, at) : LoadPieces<uint32_t>(launch, vector, at);
    // Damaged metadata writes nothing outside its vector.
    if (index >= vector.size) continue;
    float value = Traits::ToFloat(LoadPieces<Meta>(launch, vector, at + vector.index_bytes));
    StoreSaturated(vector.At<Value>(launch, index), value);
  }
}

uint32_t Vectors(const NuqLaunch& launch) {
  const BatchShape& shape = launch.shape;
  uint32_t layers = shape.blocks * shape.layers;
  return layers * (launch.job.per_channel ? shape.heads * launch.groups : shape.tokens);
}

}  // namespace

cudaError_t LaunchEncodeNuqAny(const NuqLaunch& launch, cudaStream_t stream) {
  return ForRowsAndMeta(launch.job.values, launch.job.meta, [&]<typename Value, typename Meta>() {
    auto* kernel = launch.job.per_channel ? EncodeChannel<Value, Meta> : EncodeToken<Value, Meta>;
    return LaunchShared<NuqLaunch>(kernel, launch, Vectors(launch), kThreads, 0, stream);
  });
}
cudaError_t LaunchDecodeNuqAny(const NuqLaunch& launch, cudaStream_t stream) {
  return ForRowsAndMeta(launch.job.values, launch.job.meta, [&]<typename Value, typename Meta>() {
    return LaunchShared<NuqLaunch>(DecodeVector<Value, Meta>, launch, Vectors(launch), kThreads, 0, stream);
  });
}

}  // namespace firn::kernels
