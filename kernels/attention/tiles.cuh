// Tiles of 16 tokens on their way from a cache's blocks to shared memory: a warp keeps a few of its own in flight and
// waits for nobody else. A tile is the keys' runs, the values' runs, then both parts' metadata.
//
// A lane always copies from the same run, so that it finds its address once a tile and the rest are fixed distances.
#pragma once

#include "kernels/attention/lane.cuh"
#include "kernels/attention/launch.h"

namespace firn::kernels {

template <Code kKeyCode, Code kValueCode, uint32_t kRowWidth>
struct TileLayout {
  static constexpr Code kKeys = kKeyCode, kValues = kValueCode;
  static constexpr uint32_t kWidth = kRowWidth;
  static constexpr bool kFp8 = kKeys == Code::kFp8;
  static_assert(kFp8 == (kValues == Code::kFp8), "both parts or none");
  static constexpr uint32_t kUnitBytes = 4 * kWidth;
  static constexpr uint32_t kKeyUnits = CodeTraits<kKeys>::kUnits;
  static constexpr uint32_t kUnits = kKeyUnits + CodeTraits<kValues>::kUnits;
  static constexpr uint32_t kValuesAt = kKeyUnits * kUnitBytes;
  static constexpr uint32_t kMetaAt = kUnits * kUnitBytes;
  static constexpr uint32_t kValueMetaAt = kMetaAt + 64;
  static constexpr uint32_t kBytes = kMetaAt + 128;
  // How units are shared out among lanes.
  static constexpr uint32_t kGroups = kUnits <= 2 ? 2 : kUnits <= 4 ? 4 : 8;
  static constexpr uint32_t kGroupLanes = 32 / kGroups;
  static constexpr uint32_t kCopies = kUnitBytes / 16 / kGroupLanes;  // A lane's.
  // As many as two blocks of threads a multiprocessor have room for, but no more than help.
  static constexpr uint32_t kFits = 108 * 1024 / (kQueriesMax * kBytes);
  static constexpr uint32_t kStages = kFits < 6 ? kFits : 6;
  static_assert(kStages >= 2 && kStages * kBytes >= kQueriesMax * kWidth * sizeof(float), "outputs go there at the end");
};

// `bytes` of 16 are copied, the rest is zeros.
__device__ __forceinline__ void CopyWide(uint32_t to, const uint8_t* from, uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void CopyWord(uint32_t to, const uint8_t* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void EndOfCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kBehind>
__device__ __forceinline__ void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kBehind) : "memory");
}

// What a lane reads of a run: of a block's rows from `offset` on.
struct LaneRun {
  const uint8_t* base = nullptr;
  uint8_t* const* block_bases = nullptr;
  uint64_t block_stride = 0;
  uint32_t offset = 0, row_bytes = 0;

  __device__ __forceinline__ void Take(const RunView& run, uint32_t first_row, uint32_t bytes, uint32_t more) {
    base = run.base, block_bases = run.block_bases, block_stride = run.block_stride;
    row_bytes = bytes, offset = first_row * bytes + more;
  }
  __device__ __forceinline__ const uint8_t* At(uint32_t block, uint32_t row) const {
    const uint8_t* start = block_bases != nullptr ? block_bases[block] : base + block * block_stride;
    return start + offset + row * row_bytes;
  }
};

template <typename Layout>
class TileStream {
 public:
  // Tiles of tokens begin + 16 * warp on, as many apart as there are warps.
  __device__ __forceinline__ TileStream(const AttentionLaunch& launch, uint32_t sequence, uint32_t kv_head,
                                        uint32_t begin, uint32_t end, uint32_t memory)
      : launch_(launch), token_(begin + threadIdx.x / 32 * kTileTokens), end_(end), to_(memory), memory_(memory) {
    const AttentionJob& job = launch.job;
    table_ = job.block_table + uint64_t{sequence} * job.blocks_per_sequence;
    uint32_t first_row = (job.layer * job.kv_heads + kv_head) * job.block_tokens, lane = threadIdx.x % 32;
    TakeUnit(first_row, lane / Layout::kGroupLanes, lane % Layout::kGroupLanes * 16);
    TakeMeta(first_row, job.layer * job.kv_heads + kv_head, lane);
    Place at = Find(token_);
    SetAddresses(at);
    next_ = Find(token_ + kStep);
  }
  // Begins to copy the next tile, or nothing if there is none.
  __device__ __forceinline__ void Issue() {
    if (token_ < end_) Copy();
    EndOfCopies();
    to_ = to_ + Layout::kBytes == memory_ + Layout::kStages * Layout::kBytes ? memory_ : to_ + Layout::kBytes;
    token_ += kStep;
    SetAddresses(next_);
    next_ = Find(token_ + kStep);
  }

 private:
  static constexpr uint32_t kStep = kQueriesMax * kTileTokens;
  struct Place {
    uint32_t block, row;
  };

  // Its block is looked up a tile before its address is needed, and that a tile before its bytes are asked for.
  __device__ __forceinline__ Place Find(uint32_t token) const {
    uint32_t index = launch_.by_block.Quotient(token);
    return {token < end_ ? __ldg(table_ + index) : 0, token - index * launch_.job.block_tokens};
  }
  __device__ __forceinline__ void SetAddresses(const Place& at) {
    if (copies_) codes_from_ = codes_.At(at.block, at.row);
    if (copies_meta_) meta_from_ = meta_.At(at.block, at.row);
  }
  __device__ __forceinline__ void TakeUnit(uint32_t first_row, uint32_t unit, uint32_t more) {
    const AttentionJob& job = launch_.job;
    copies_ = unit < Layout::kUnits;
    codes_to_ = unit * Layout::kUnitBytes + more;
    bool keys = unit < Layout::kKeyUnits;
    uint32_t in_part = keys ? unit : unit - Layout::kKeyUnits;
    constexpr uint32_t kQuarter = Layout::kWidth / 4;
    if (Layout::kFp8) {
      codes_.Take(keys ? job.k_codes : job.v_codes, first_row, Layout::kWidth, in_part * Layout::kUnitBytes + more);
      rows_of_copies_ = (in_part * Layout::kUnitBytes + more) / Layout::kWidth;
    } else if (in_part == 0) {
      codes_.Take(keys ? job.k_p2 : job.v_p2, first_row, kQuarter, more);
    } else if (in_part == 1) {
      codes_.Take(keys ? job.k_p4 : job.v_p4, first_row, kQuarter, more);
    } else {
      codes_.Take(keys ? job.k_p8 : job.v_p8, first_row, 2 * kQuarter, (in_part - 2) * Layout::kUnitBytes + more);
    }
  }
  // Nested: minima and steps of four tokens a lane. FP8: one scale a lane.
  __device__ __forceinline__ void TakeMeta(uint32_t first_row, uint32_t head, uint32_t lane) {
    const AttentionJob& job = launch_.job;
    bool keys = lane < (Layout::kFp8 ? 1 : 4);
    copies_meta_ = lane < (Layout::kFp8 ? 2 : 8);
    const RunView& run = keys ? job.k_meta : job.v_meta;
    if constexpr (Layout::kFp8) {
      meta_to_ = Layout::kMetaAt + lane * 64;
      const float* scales = keys ? job.k_scales : job.v_scales;
      meta_.Take(run, 0, 0, head * 4);
      if (scales != nullptr) meta_.Take({}, 0, 0, head * 4), meta_.base = reinterpret_cast<const uint8_t*>(scales);
    } else {
      meta_to_ = Layout::kMetaAt + lane * 16;
      meta_.Take(run, first_row, 4, lane % 4 * 16);
    }
  }
  // What stands behind the last token is not read where it could be no number.
  __device__ __forceinline__ void Copy() const {
    uint32_t left = end_ - token_;
    if (copies_) {
#pragma unroll
      for (uint32_t i = 0; i < Layout::kCopies; ++i) {
        constexpr uint32_t kApart = Layout::kGroupLanes * 16;
        uint32_t row = rows_of_copies_ + i * kApart / Layout::kWidth;
        CopyWide(to_ + codes_to_ + i * kApart, codes_from_ + i * kApart, !Layout::kFp8 || row < left ? 16 : 0);
      }
    }
    if (!copies_meta_) return;
    if constexpr (Layout::kFp8) {
      CopyWord(to_ + meta_to_, meta_from_);
    } else {
      int bytes = static_cast<int>(left * 4) - static_cast<int>(threadIdx.x % 4 * 16);
      CopyWide(to_ + meta_to_, meta_from_, static_cast<uint32_t>(min(max(bytes, 0), 16)));
    }
  }

  const AttentionLaunch& launch_;
  const uint32_t* table_;
  uint32_t token_, end_, to_, memory_;
  Place next_;
  bool copies_, copies_meta_;
  uint32_t codes_to_, meta_to_, rows_of_copies_ = 0;
  LaneRun codes_, meta_;
  const uint8_t *codes_from_ = nullptr, *meta_from_ = nullptr;
};

}  // namespace firn::kernels
