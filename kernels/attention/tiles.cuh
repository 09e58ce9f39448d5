// Tiles of 16 tokens on their way from a cache's blocks to shared memory: a warp keeps a few of its own in flight and
// waits for nobody else. A tile is the keys' runs, the values' runs, then both parts' metadata.
//
// A lane always copies from the same run, so that it finds its address once a tile and the rest are fixed distances.
#pragma once

#include <new>

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
  static constexpr uint32_t kMetaLanes = kFp8 ? 2 : 8;  // That copy it: four tokens' each, or a part's scale.
  static constexpr uint32_t kBytes = kMetaAt + 128;
  // How units are shared out among lanes.
  static constexpr uint32_t kGroups = kUnits <= 2 ? 2 : kUnits <= 4 ? 4 : 8;
  static constexpr uint32_t kGroupLanes = 32 / kGroups;
  static constexpr uint32_t kCopies = kUnitBytes / 16 / kGroupLanes;  // A lane's.
  // As many as two blocks of threads a multiprocessor have room for, but no more than help.
  static constexpr uint32_t kFits = 108 * 1024 / (kQueriesMax * kBytes);
  static constexpr uint32_t kStages = kFits < 6 ? kFits : 6;
  static_assert(kStages * kBytes >= kQueriesMax * kWidth * sizeof(float), "outputs go there at the end");
  // Where there is room, a tile's values are added while the next tile's scores are on their way: two are in use.
  static constexpr bool kOverlap = kStages >= 5;
  static constexpr uint32_t kAhead = kStages - (kOverlap ? 2 : 1);
  static_assert(kAhead >= 2);
};

__device__ __forceinline__ void CopyWide(uint32_t to, const uint8_t* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
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
  static constexpr uint64_t kOwnAddresses = ~uint64_t{0};  // Instead of a stride: `base` has the blocks' addresses.
  const void* base;
  uint64_t block_stride;
  uint32_t offset, row_bytes;

  __device__ __forceinline__ LaneRun(const RunView& run, uint32_t first_row, uint32_t bytes, uint32_t more)
      : base(run.base), block_stride(run.block_stride), offset(first_row * bytes + more), row_bytes(bytes) {
    if (run.block_bases != nullptr) base = run.block_bases, block_stride = kOwnAddresses;
  }
  __device__ __forceinline__ const uint8_t* At(uint32_t block, uint32_t row) const {
    const uint8_t* start = block_stride == kOwnAddresses ? static_cast<const uint8_t* const*>(base)[block]
                                                         : static_cast<const uint8_t*>(base) + block * block_stride;
    return start + offset + row * row_bytes;
  }
};

// All lanes', the same for every warp: in shared memory, since they are looked at once a turn.
template <typename Layout>
struct LaneRuns {
  alignas(LaneRun) uint8_t codes[32][sizeof(LaneRun)], meta[32][sizeof(LaneRun)];

  // By one warp; others wait at a barrier.
  __device__ __forceinline__ void Set(const AttentionJob& job) {
    uint32_t head = job.layer * job.kv_heads + blockIdx.y, lane = threadIdx.x % 32;
    new (codes[lane]) LaneRun(Codes(job, head * job.block_tokens, lane));
    new (meta[lane]) LaneRun(Meta(job, head * job.block_tokens, head, lane));
  }
  __device__ __forceinline__ const LaneRun& OfCodes() const {
    return *reinterpret_cast<const LaneRun*>(codes[threadIdx.x % 32]);
  }
  __device__ __forceinline__ const LaneRun& OfMeta() const {
    return *reinterpret_cast<const LaneRun*>(meta[threadIdx.x % 32]);
  }

 private:
  static __device__ __forceinline__ LaneRun Codes(const AttentionJob& job, uint32_t first_row, uint32_t lane) {
    uint32_t unit = lane / Layout::kGroupLanes, more = lane % Layout::kGroupLanes * 16;
    bool keys = unit < Layout::kKeyUnits;
    uint32_t in_part = keys ? unit : unit - Layout::kKeyUnits;
    constexpr uint32_t kQuarter = Layout::kWidth / 4;
    if constexpr (Layout::kFp8) {
      return {keys ? job.k_codes : job.v_codes, first_row, Layout::kWidth, in_part * Layout::kUnitBytes + more};
    }
    if (in_part == 0) return {keys ? job.k_p2 : job.v_p2, first_row, kQuarter, more};
    if (in_part == 1) return {keys ? job.k_p4 : job.v_p4, first_row, kQuarter, more};
    return {keys ? job.k_p8 : job.v_p8, first_row, 2 * kQuarter, (in_part - 2) * Layout::kUnitBytes + more};
  }
  // Nested: minima and steps of four tokens a lane. FP8: one scale a lane.
  static __device__ __forceinline__ LaneRun Meta(const AttentionJob& job, uint32_t first_row, uint32_t head,
                                                 uint32_t lane) {
    bool keys = lane < Layout::kMetaLanes / 2;
    if constexpr (!Layout::kFp8) return {keys ? job.k_meta : job.v_meta, first_row, 4, lane % 4 * 16};
    const float* scales = keys ? job.k_scales : job.v_scales;
    LaneRun run(keys ? job.k_meta : job.v_meta, 0, 0, head * 4);
    if (scales != nullptr) run.base = scales, run.block_stride = 0;
    return run;
  }
};

// Tiles of a part of a sequence in the order in which a warp takes them: `turn` neighbouring ones, which lie in one
// block, then as many behind those of the other warps.
class TileOrder {
 public:
  __device__ __forceinline__ TileOrder(uint32_t begin, uint32_t turn)
      : token_(begin + threadIdx.x / 32 * turn * kTileTokens), turn_(turn), left_(turn) {}
  __device__ __forceinline__ uint32_t token() const { return token_; }
  __device__ __forceinline__ uint32_t NextTurn() const { return token_ + kQueriesMax * turn_ * kTileTokens; }
  // Whether another turn begins.
  __device__ __forceinline__ bool Advance() {
    token_ += kTileTokens;
    if (--left_ != 0) return false;
    left_ = turn_;
    token_ += (kQueriesMax - 1) * turn_ * kTileTokens;
    return true;
  }

 private:
  uint32_t token_, turn_, left_;
};

template <typename Layout>
class TileStream {
 public:
  // Asks for what tells where the first tiles are.
  __device__ __forceinline__ TileStream(const AttentionLaunch& launch, const LaneRuns<Layout>& runs, uint32_t begin,
                                        uint32_t memory)
      : launch_(launch), runs_(runs), order_(begin, launch.turn), to_(memory), memory_(memory) {
    table_ = launch.job.block_table + uint64_t{blockIdx.z} * launch.job.blocks_per_sequence;
    if (launch.job.blocks_per_sequence == 0) return;
    first_ = Find(order_.token());
    next_ = Find(order_.NextTurn());
  }
  // Begins to copy the first tiles, up to token `end`.
  __device__ __forceinline__ void Begin(uint32_t end) {
    uint32_t lane = threadIdx.x % 32;
    end_ = end;
    copies_ = lane / Layout::kGroupLanes < Layout::kUnits, copies_meta_ = lane < Layout::kMetaLanes;
    codes_to_ = lane / Layout::kGroupLanes * Layout::kUnitBytes + lane % Layout::kGroupLanes * 16;
    meta_to_ = Layout::kMetaAt + lane * (128 / Layout::kMetaLanes);
    tile_bytes_ = kTileTokens * runs_.OfCodes().row_bytes;
    SetAddresses(first_);
#pragma unroll
    for (uint32_t i = 0; i < Layout::kAhead; ++i) Issue();
  }
  // Begins to copy the next tile, or nothing if there is none.
  __device__ __forceinline__ void Issue() {
    if (order_.token() < end_) Copy();
    EndOfCopies();
    to_ = to_ + Layout::kBytes == memory_ + Layout::kStages * Layout::kBytes ? memory_ : to_ + Layout::kBytes;
    if (order_.Advance()) {
      SetAddresses(next_);
      next_ = Find(order_.NextTurn());
    } else {
      codes_from_ += tile_bytes_;
      if (!Layout::kFp8) meta_from_ += 4 * kTileTokens;
    }
  }

 private:
  struct Place {
    uint32_t block = 0, row = 0;
  };

  // A block is looked up a turn before its address is needed, and whether it is there or not: an entry of the table
  // that means nothing becomes an address that is not read.
  __device__ __forceinline__ Place Find(uint32_t token) const {
    uint32_t index = launch_.by_block.Quotient(token);
    return {__ldg(table_ + min(index, launch_.job.blocks_per_sequence - 1)), token - index * launch_.job.block_tokens};
  }
  __device__ __forceinline__ void SetAddresses(const Place& at) {
    if (order_.token() >= end_) return;
    if (copies_) codes_from_ = runs_.OfCodes().At(at.block, at.row);
    if (copies_meta_) meta_from_ = runs_.OfMeta().At(at.block, at.row);
  }
  // What stands behind the last token comes along: it is in a block of the sequence, and weighs nothing.
  __device__ __forceinline__ void Copy() const {
    if (copies_) {
#pragma unroll
      for (uint32_t i = 0; i < Layout::kCopies; ++i) {
        constexpr uint32_t kApart = Layout::kGroupLanes * 16;
        CopyWide(to_ + codes_to_ + i * kApart, codes_from_ + i * kApart);
      }
    }
    if (!copies_meta_) return;
    if constexpr (Layout::kFp8) {
      CopyWord(to_ + meta_to_, meta_from_);
    } else {
      CopyWide(to_ + meta_to_, meta_from_);
    }
  }

  const AttentionLaunch& launch_;
  const LaneRuns<Layout>& runs_;
  TileOrder order_;
  const uint32_t* table_;
  uint32_t end_ = 0, to_, memory_;
  Place first_, next_;
  bool copies_ = false, copies_meta_ = false;
  uint32_t codes_to_ = 0, meta_to_ = 0, tile_bytes_ = 0;
  const uint8_t *codes_from_ = nullptr, *meta_from_ = nullptr;
};

}  // namespace firn::kernels
