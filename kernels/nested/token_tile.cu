// Per token, for widths that are multiples of 16 and groups that are multiples of 4: one thread block has a tile of
// rows in shared memory as FP32. A thread rotates one segment of a row in registers; strides beyond it take a pass
// each.
#include <algorithm>

#include "kernels/device/hadamard.cuh"
#include "kernels/device/nested_scale.cuh"
#include "kernels/device/nested_words.cuh"
#include "kernels/nested/dispatch.cuh"

namespace firn::kernels {
namespace {

constexpr uint32_t kThreads = 128;

// The row numbers, divisors and shared memory of a tile.
struct TileShape {
  uint32_t rows = 0, values = 0;  // Of a whole tile.
  uint32_t shared_bytes = 0;
  FastDivisor by_segments, by_chunks, by_words;  // Of a row.
  FastDivisor by_group, by_groups;               // Values of a group; groups of a row.
};
struct TileLaunch {
  NestedLaunch nested;
  TileShape tile;
};

// Four floats of padding after each 32, so that neighbouring segments begin in different banks.
FIRN_HOST_DEVICE uint32_t Padded(uint32_t index) { return index + (index >> 5) * 4; }

struct Tile {
  const TileLaunch& launch;
  float* values;   // [row][channel], padded.
  float2* scales;  // [row][group]: minimum, and step or its inverse.
  uint32_t first, count;

  __device__ Tile(const TileLaunch& of, float* memory) : launch(of) {
    values = memory;
    scales = reinterpret_cast<float2*>(memory + Padded(of.tile.values));
    first = blockIdx.x * of.tile.rows;
    count = min(of.tile.rows, of.nested.shape.rows() - first);
  }
  __device__ uint32_t width() const { return launch.nested.shape.width; }
  // Which row of the batch a row of the tile is.
  __device__ __forceinline__ RowAt At(uint32_t row, uint32_t* in_block) const {
    const BatchShape& shape = launch.nested.shape;
    uint32_t block = shape.by_block_rows.Quotient(first + row);
    *in_block = first + row - block * shape.block_rows();
    return shape.InBlockAt(block, *in_block);
  }
};

// Strides that reach beyond a segment. Rows are whole multiples of the rotation, so pairs stay within theirs.
__device__ __forceinline__ void RotateBeyond(const Tile& tile, uint32_t segment) {
  for (uint32_t stride = segment; stride < tile.launch.nested.rotation; stride *= 2) {
    __syncthreads();
    for (uint32_t pair = threadIdx.x; pair < tile.count * tile.width() / 2; pair += kThreads) {
      uint32_t i = (pair & ~(stride - 1)) * 2 + (pair & (stride - 1));
      float a = tile.values[Padded(i)], b = tile.values[Padded(i + stride)];
      tile.values[Padded(i)] = a + b;
      tile.values[Padded(i + stride)] = a - b;
    }
  }
}

template <int kSegment>
__device__ __forceinline__ void StoreSegment(const Tile& tile, uint32_t at, const float (&v)[kSegment]) {
#pragma unroll
  for (int i = 0; i < kSegment; i += 4) {
    *reinterpret_cast<float4*>(tile.values + Padded(at + i)) = {v[i], v[i + 1], v[i + 2], v[i + 3]};
  }
}
template <int kSegment>
__device__ __forceinline__ void LoadSegment(const Tile& tile, uint32_t at, float (&v)[kSegment]) {
#pragma unroll
  for (int i = 0; i < kSegment; i += 4) {
    float4 four = *reinterpret_cast<const float4*>(tile.values + Padded(at + i));
    v[i] = four.x, v[i + 1] = four.y, v[i + 2] = four.z, v[i + 3] = four.w;
  }
}

// Where some neighbouring values of a row, and their arrays', begin.
template <typename Value>
struct ChunkPlace {
  Value* values;
  uint32_t channels;

  __device__ ChunkPlace(const Tile& tile, uint32_t chunk, const FastDivisor& by_row, uint32_t chunk_values) {
    const NestedLaunch& launch = tile.launch.nested;
    uint32_t row = by_row.Quotient(chunk), channel = (chunk - row * by_row.divisor) * chunk_values;
    uint32_t in_block;
    RowAt at = tile.At(row, &in_block);
    values = RowOf<Value>(launch.job.rows, launch.by_page, at) + channel;
    channels = (at.layer * launch.shape.heads + at.head) * launch.shape.width + channel;
  }
};

template <typename Value, int kSegment, bool kRotated>
__device__ __forceinline__ void LoadRows(const Tile& tile) {
  const TransformView& transform = tile.launch.nested.job.transform;
  for (uint32_t s = threadIdx.x; s < tile.count * tile.launch.tile.by_segments.divisor; s += kThreads) {
    ChunkPlace<const Value> place(tile, s, tile.launch.tile.by_segments, kSegment);
    uint4 raw[kSegment / 8];
#pragma unroll
    for (int i = 0; i < kSegment / 8; ++i) raw[i] = LoadOnce(place.values + i * 8);
    float v[kSegment];
#pragma unroll
    for (int i = 0; i < kSegment / 8; ++i) ToFloats8<Value>(raw[i], v + i * 8);
    if (transform.mean != nullptr) {
#pragma unroll
      for (int i = 0; i < kSegment; i += 4) {
        float4 m = __ldg(reinterpret_cast<const float4*>(transform.mean + place.channels + i));
        float4 a = __ldg(reinterpret_cast<const float4*>(transform.encode_scale + place.channels + i));
        v[i] = (v[i] - m.x) * a.x, v[i + 1] = (v[i + 1] - m.y) * a.y;
        v[i + 2] = (v[i + 2] - m.z) * a.z, v[i + 3] = (v[i + 3] - m.w) * a.w;
      }
    } else {
#pragma unroll
      for (int i = 0; i < kSegment; ++i) v[i] *= transform.uniform_scale;
    }
    if constexpr (kRotated) Butterflies<1, kSegment>(v);
    StoreSegment<kSegment>(tile, s * kSegment, v);
  }
  if constexpr (kRotated) RotateBeyond(tile, kSegment);
  __syncthreads();
}

// Eight lanes a group.
template <typename Value>
__device__ __forceinline__ void ScaleGroups(const Tile& tile) {
  const NestedLaunch& launch = tile.launch.nested;
  uint32_t total = tile.count * launch.groups, lane = threadIdx.x % 8;
  for (uint32_t base = threadIdx.x / 32 * 4; base < total; base += kThreads / 8) {
    // Lanes without a group of their own look at the last one again, for the shuffles' sake.
    uint32_t own = base + threadIdx.x % 32 / 8, item = min(own, total - 1);
    uint32_t row = tile.launch.tile.by_groups.Quotient(item), group = item - row * launch.groups;
    uint32_t first = group * launch.job.group, last = min(first + launch.job.group, launch.shape.width);
    float lowest = tile.values[Padded(row * tile.width() + first)], highest = lowest;
    for (uint32_t c = first + lane * 4; c < last; c += 32) {
      float4 four = *reinterpret_cast<const float4*>(tile.values + Padded(row * tile.width() + c));
      lowest = MinOrNan(MinOrNan(lowest, four.x), MinOrNan(four.y, MinOrNan(four.z, four.w)));
      highest = fmaxf(fmaxf(highest, four.x), fmaxf(four.y, fmaxf(four.z, four.w)));
    }
    for (int apart = 4; apart > 0; apart /= 2) {
      lowest = MinOrNan(lowest, __shfl_xor_sync(0xFFFFFFFFu, lowest, apart));
      highest = fmaxf(highest, __shfl_xor_sync(0xFFFFFFFFu, highest, apart));
    }
    if (lane != 0 || own >= total) continue;
    lowest = lowest + 0.0f, highest = highest + 0.0f;  // A zero counts as +0.
    GroupScale scale = ScaleOf<Value>(lowest, highest);
    tile.scales[item] = {scale.minimum, scale.inverse};
    uint32_t in_block;
    RowAt at = tile.At(row, &in_block);
    uint32_t found = SurveyOf<Value>(lowest, highest, launch.rotation);
    if (found != 0 && launch.job.survey != nullptr) atomicOr(launch.job.survey + at.block, found);
    *reinterpret_cast<uint32_t*>(launch.job.meta_run.At(at.block, (in_block * launch.groups + group) * 4)) =
        PairBits(ValueTraits<Value>::Nearest(scale.minimum), ValueTraits<Value>::Nearest(scale.step));
  }
  __syncthreads();
}

// A word of codes of a row of the tile.
struct WordPlace {
  WordAt at;
  uint32_t row;

  __device__ WordPlace(const Tile& tile, uint32_t word) {
    const FastDivisor& by_words = tile.launch.tile.by_words;
    row = by_words.Quotient(word);
    at.byte = (word - row * by_words.divisor) * 4;
    at.quarter = tile.width() / 4;
    at.block = tile.At(row, &at.in_block).block;
  }
  __device__ float2 Scale(const Tile& tile, uint32_t channel) const {
    return tile.scales[row * tile.launch.nested.groups + tile.launch.tile.by_group.Quotient(channel)];
  }
};

__device__ __forceinline__ void PackRows(const Tile& tile) {
  const NestedJob& job = tile.launch.nested.job;
  for (uint32_t w = threadIdx.x; w < tile.count * tile.launch.tile.by_words.divisor; w += kThreads) {
    WordPlace place(tile, w);
    LaneCodes codes{};
#pragma unroll
    for (uint32_t q = 0; q < 4; ++q) {
      uint32_t channel = q * place.at.quarter + place.at.byte;
      float4 v = *reinterpret_cast<const float4*>(tile.values + Padded(place.row * tile.width() + channel));
      float2 scale = place.Scale(tile, channel);
      codes.words[q * 2] = JoinBytes(CodeBits(v.x, scale.x, scale.y), CodeBits(v.y, scale.x, scale.y),
                                     CodeBits(v.z, scale.x, scale.y), CodeBits(v.w, scale.x, scale.y));
    }
    StoreWord(job, place.at, codes);
  }
}

template <typename Value, int kSegment, bool kRotated>
__global__ void __launch_bounds__(kThreads) EncodeToken(const __grid_constant__ TileLaunch launch) {
  extern __shared__ __align__(16) float memory[];
  Tile tile(launch, memory);
  LoadRows<Value, kSegment, kRotated>(tile);
  ScaleGroups<Value>(tile);
  PackRows(tile);
}

template <typename Value>
__device__ __forceinline__ void UnpackRows(const Tile& tile) {
  const NestedLaunch& launch = tile.launch.nested;
  const NestedJob& job = launch.job;
  for (uint32_t item = threadIdx.x; item < tile.count * launch.groups; item += kThreads) {
    uint32_t row = tile.launch.tile.by_groups.Quotient(item), in_block;
    RowAt at = tile.At(row, &in_block);
    uint32_t offset = (in_block * launch.groups + item - row * launch.groups) * 4;
    tile.scales[item] =
        ValueTraits<Value>::ToFloats(*reinterpret_cast<const uint32_t*>(job.meta_run.At(at.block, offset)));
  }
  __syncthreads();
  float offset = LevelOffset(job.precision);
  for (uint32_t w = threadIdx.x; w < tile.count * tile.launch.tile.by_words.divisor; w += kThreads) {
    WordPlace place(tile, w);
    LaneCodes codes = LoadWord(job, place.at);
#pragma unroll
    for (uint32_t q = 0; q < 4; ++q) {
      uint32_t channel = q * place.at.quarter + place.at.byte;
      float2 scale = place.Scale(tile, channel);
      float4 v;
      v.x = scale.x + scale.y * LevelFloat(codes.words[q * 2], 0, offset);
      v.y = scale.x + scale.y * LevelFloat(codes.words[q * 2], 1, offset);
      v.z = scale.x + scale.y * LevelFloat(codes.words[q * 2], 2, offset);
      v.w = scale.x + scale.y * LevelFloat(codes.words[q * 2], 3, offset);
      *reinterpret_cast<float4*>(tile.values + Padded(place.row * tile.width() + channel)) = v;
    }
  }
  __syncthreads();
}

template <typename Value, int kSegment, bool kRotated>
__global__ void __launch_bounds__(kThreads) DecodeToken(const __grid_constant__ TileLaunch launch) {
  extern __shared__ __align__(16) float memory[];
  Tile tile(launch, memory);
  UnpackRows<Value>(tile);
  if constexpr (kRotated) {
    for (uint32_t i = threadIdx.x; i < tile.count * launch.tile.by_segments.divisor; i += kThreads) {
      float v[kSegment];
      LoadSegment<kSegment>(tile, i * kSegment, v);
      Butterflies<1, kSegment>(v);
      StoreSegment<kSegment>(tile, i * kSegment, v);
    }
    RotateBeyond(tile, kSegment);
    __syncthreads();
  }
  // Neighbouring threads write neighbouring values, whatever the segments are.
  const TransformView& transform = launch.nested.job.transform;
  for (uint32_t c = threadIdx.x; c < tile.count * launch.tile.by_chunks.divisor; c += kThreads) {
    ChunkPlace<Value> place(tile, c, launch.tile.by_chunks, 8);
    float v[8];
    LoadSegment<8>(tile, c * 8, v);
    if (transform.mean != nullptr) {
#pragma unroll
      for (int i = 0; i < 8; i += 4) {
        float4 a = __ldg(reinterpret_cast<const float4*>(transform.decode_scale + place.channels + i));
        float4 m = __ldg(reinterpret_cast<const float4*>(transform.mean + place.channels + i));
        v[i] = v[i] * a.x + m.x, v[i + 1] = v[i + 1] * a.y + m.y;
        v[i + 2] = v[i + 2] * a.z + m.z, v[i + 3] = v[i + 3] * a.w + m.w;
      }
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i) v[i] *= transform.uniform_scale;
    }
    StoreOnce(place.values, ToSaturated8<Value>(v));
  }
}

// As many rows as fill about 32 KiB, so that several tiles share a multiprocessor; at least one.
TileShape ShapeOf(const NestedLaunch& launch, uint32_t segment) {
  constexpr uint32_t kValues = 8192;
  TileShape tile;
  tile.rows = std::max(1u, std::min(kValues / launch.shape.width, launch.shape.rows()));
  tile.values = tile.rows * launch.shape.width;
  tile.by_segments = FastDivisor(launch.shape.width / segment);
  tile.by_chunks = FastDivisor(launch.shape.width / 8);
  tile.by_words = FastDivisor(launch.shape.width / 16);
  tile.by_group = FastDivisor(launch.job.group);
  tile.by_groups = FastDivisor(launch.groups);
  tile.shared_bytes = Padded(tile.values) * 4 + tile.rows * launch.groups * 8;
  return tile;
}

template <bool kEncode, typename Value, int kSegment, bool kRotated>
cudaError_t LaunchSegment(const NestedLaunch& nested, cudaStream_t stream) {
  TileLaunch launch{nested, ShapeOf(nested, kSegment)};
  auto* kernel = kEncode ? EncodeToken<Value, kSegment, kRotated> : DecodeToken<Value, kSegment, kRotated>;
  uint32_t tiles = (nested.shape.rows() + launch.tile.rows - 1) / launch.tile.rows;
  return LaunchShared<TileLaunch>(kernel, launch, tiles, kThreads, launch.tile.shared_bytes, stream);
}

template <bool kEncode>
cudaError_t Launch(const NestedLaunch& launch, cudaStream_t stream) {
  return ForValue(launch.job.values, [&]<typename Value>() {
    if (launch.rotation == 1) return LaunchSegment<kEncode, Value, 16, false>(launch, stream);
    if (launch.rotation == 16) return LaunchSegment<kEncode, Value, 16, true>(launch, stream);
    if (launch.rotation == 32) return LaunchSegment<kEncode, Value, 32, true>(launch, stream);
    return LaunchSegment<kEncode, Value, 64, true>(launch, stream);
  });
}

}  // namespace

cudaError_t LaunchEncodeTokenTile(const NestedLaunch& launch, cudaStream_t stream) {
  return Launch<true>(launch, stream);
}
cudaError_t LaunchDecodeTokenTile(const NestedLaunch& launch, cudaStream_t stream) {
  return Launch<false>(launch, stream);
}

}  // namespace firn::kernels
