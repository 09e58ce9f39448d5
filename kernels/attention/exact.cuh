// Attention to rows that are not coded: tokens an engine keeps exact, of FP16 or BF16. Read straight from where they
// lie.
#pragma once

#include "kernels/attention/state.cuh"
#include "kernels/device/values.cuh"

namespace firn::kernels {

// Of one sequence and head.
struct ExactRows {
  const RowsView& view;
  const FastDivisor& by_page;
  uint32_t sequence, layer, head;

  __device__ __forceinline__ const uint16_t* Row(uint32_t token) const {
    token += view.first_token;
    uint32_t page = by_page.Quotient(token), in_page = token - page * view.page_tokens;
    uint64_t index = uint64_t{sequence} * view.pages_per_block + page;
    if (view.pages != nullptr) index = view.pages[index];
    const auto* base = static_cast<const uint16_t*>(view.layer_bases != nullptr ? view.layer_bases[layer] : view.base);
    if (view.layer_bases == nullptr) base += layer * view.layer_stride;
    return base + static_cast<int64_t>(index) * view.page_stride + in_page * view.token_stride +
           head * view.head_stride;
  }
};

// Two values as FP16; what BF16 has beyond FP16's largest becomes that.
__device__ __forceinline__ uint32_t AsHalves(uint32_t pair, bool bf16) {
  if (!bf16) return pair;
  float2 values = ValueTraits<__nv_bfloat16>::ToFloats(pair);
  return ValueTraits<__half>::ToSaturatedPair(values.x, values.y);
}

// Eight neighbouring values a chunk, `kApart` values apart; zeros where there is no token.
template <int kChunks, int kApart>
__device__ __forceinline__ void LoadChunks(const uint16_t* row, bool there, bool bf16, uint32_t (&words)[kChunks * 4]) {
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    uint4 chunk = there ? __ldg(reinterpret_cast<const uint4*>(row + i * kApart)) : uint4{};
    words[4 * i] = AsHalves(chunk.x, bf16), words[4 * i + 1] = AsHalves(chunk.y, bf16);
    words[4 * i + 2] = AsHalves(chunk.z, bf16), words[4 * i + 3] = AsHalves(chunk.w, bf16);
  }
}

// 16 tokens from `first` on, of `count`.
template <uint32_t kWidth>
__device__ __forceinline__ void AttendExactTile(const Lane& lane, const QueryOperands<kWidth>& queries,
                                                const ExactRows& keys, const ExactRows& values, bool bf16,
                                                uint32_t first, uint32_t count, State<kWidth>* state) {
  constexpr int kKeyChunks = kWidth / 32, kValueChunks = kWidth / 64;
  uint32_t a = first + lane.KeyToken(), b = a + 8;
  uint32_t key_a[kKeyChunks * 4], key_b[kKeyChunks * 4];
  LoadChunks<kKeyChunks, 32>(keys.Row(min(a, count - 1)) + lane.t * 8, a < count, bf16, key_a);
  LoadChunks<kKeyChunks, 32>(keys.Row(min(b, count - 1)) + lane.t * 8, b < count, bf16, key_b);
  float score[4] = {};
#pragma unroll
  for (int i = 0; i < kKeyChunks * 2; ++i) {
    Multiply(score, key_a[2 * i], key_b[2 * i], key_a[2 * i + 1], key_b[2 * i + 1], queries.even[i], queries.odd[i]);
  }
  if (a >= count) score[0] = score[1] = -INFINITY;
  if (b >= count) score[2] = score[3] = -INFINITY;
  uint32_t weights[2];
  state->template Weigh<false>(score, queries.unit, {0.0f, 1.0f}, {0.0f, 1.0f}, weights);
  uint32_t words[4][kValueChunks * 4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    uint32_t token = first + lane.ValueToken(i);
    LoadChunks<kValueChunks, 64>(values.Row(min(token, count - 1)) + lane.g * 8, token < count, bf16, words[i]);
  }
#pragma unroll
  for (int m = 0; m < kValueChunks * 4; ++m) {
    Multiply(state->values[m], __byte_perm(words[0][m], words[1][m], 0x5410),
             __byte_perm(words[0][m], words[1][m], 0x7632), __byte_perm(words[2][m], words[3][m], 0x5410),
             __byte_perm(words[2][m], words[3][m], 0x7632), weights[0], weights[1]);
  }
}

// Which exact rows a block of threads attends to.
struct ExactShare {
  uint32_t begin[2], end[2];

  __device__ __forceinline__ void Set(const AttentionLaunch& launch) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      begin[i] = blockIdx.x * launch.exact_per_split[i], end[i] = begin[i];
      if (launch.exact_per_split[i] == 0) continue;
      end[i] = max(begin[i], min(launch.job.exact[i].lengths[blockIdx.z], begin[i] + launch.exact_per_split[i]));
    }
  }
  __device__ __forceinline__ bool Empty() const { return begin[0] == end[0] && begin[1] == end[1]; }
  // To the second-level cache, where they are looked for only when the packed tokens are done: a lane a row.
  template <uint32_t kWidth>
  __device__ __forceinline__ void Prefetch(const AttentionLaunch& launch) const {
    uint32_t part = threadIdx.x % 2;
#pragma unroll 1
    for (int set = 0; set < 2; ++set) {
      const ExactTokens& exact = launch.job.exact[set];
      ExactRows rows{part == 0 ? exact.keys : exact.values, launch.by_exact_page[set][part], blockIdx.z,
                     launch.job.layer, blockIdx.y};
      for (uint32_t token = begin[set] + threadIdx.x / 2; token < end[set]; token += kAttentionThreads / 2) {
        const uint16_t* row = rows.Row(token);
        for (uint32_t i = 0; i < kWidth; i += 64) asm volatile("prefetch.global.L2 [%0];" ::"l"(row + i));
      }
    }
  }
};

// `memory` is the warp's own, and so is `sums_of`. Queries are prepared. Not inlined: the packed tokens' loop, next to
// which it would stand, needs all registers there are.
template <uint32_t kWidth>
__device__ __noinline__ void AttendExact(const AttentionLaunch& launch, const ExactShare& share, uint8_t* memory,
                                         const Queries<kWidth>& queries, PartSums* sums_of) {
  const AttentionJob& job = launch.job;
  Lane lane;
  QueryOperands<kWidth> operands(lane, queries);
  State<kWidth> state;
#pragma unroll 1
  for (int set = 0; set < 2; ++set) {
    const ExactTokens& exact = job.exact[set];
    ExactRows keys{exact.keys, launch.by_exact_page[set][0], blockIdx.z, job.layer, blockIdx.y};
    ExactRows values{exact.values, launch.by_exact_page[set][1], blockIdx.z, job.layer, blockIdx.y};
    uint32_t first = share.begin[set] + threadIdx.x / 32 * kTileTokens;
    for (; first < share.end[set]; first += kQueriesMax * kTileTokens) {
      AttendExactTile<kWidth>(lane, operands, keys, values, exact.type == DType::kBf16, first, share.end[set], &state);
    }
  }
  state.template Store<Code::kRows>(lane, launch.group, reinterpret_cast<float*>(memory), sums_of);
}

// Outputs to where the packed values' are: before the rotation back.
template <uint32_t kWidth>
__device__ __forceinline__ void AsPacked(const AttentionJob& job, float (&v)[kWidth / 32]) {
  if (job.rotated) Rotate(v);
  float factor = (job.rotated ? 1.0f / static_cast<float>(kWidth) : 1.0f) / job.v_scale;
#pragma unroll
  for (float& value : v) value *= factor;
}

}  // namespace firn::kernels
