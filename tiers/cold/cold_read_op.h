// A read of the cold tier on its way. Private to the files that read.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "tiers/cold/cold_items.h"

namespace firn {

// One extent, or the front of it, on its way in.
struct ColdTier::ReadPart {
  SegmentPtr segment;
  ExtentPlace place;
  ExtentShape shape;
  bool base = false;
  uint64_t needed_bytes = 0;  // From the extent's start.
  uint64_t read_at = 0;       // In the file, aligned.
  uint64_t read_bytes = 0;
  uint64_t head = 0;  // Where the extent starts in the memory.
  std::shared_ptr<ChunkPool::Lease> memory;
  std::atomic<uint32_t> pieces_left{0};
  std::mutex mu;
  absl::Status status;  // Guarded by mu while pieces are left, as below.
  uint64_t gapless_bytes = 0;
  bool done = false;                // Read well; not to be read again.
  std::atomic<bool> erased{false};  // Sectors of it are zeros, because the medium refused them.
};

struct ColdTier::ReadOp {
  ColdCopyPtr copy;
  Identity identity;
  RunMask wanted;
  ReadDone done;
  uint64_t sequence = 0;
  uint64_t digest = 0;
  RunLengths lengths{};
  EccPolicy ecc;
  uint32_t header_bytes = 0;
  bool correct = false;                // Parity is read too, and used.
  bool salvage = false;                // Sectors that the medium does not give are erasures.
  std::atomic<bool> corrected{false};  // Something was not as it was written, and error correction saw to it.
  std::vector<std::unique_ptr<ReadPart>> parts;
  std::atomic<uint32_t> parts_left{0};
  int attempts = 0;
  std::shared_ptr<const RecordHeader> header;
  RunMask present;  // Of the parts that turned out well.
  RunMask refused;  // That the medium did not give; all, where they cannot be read without what it did not give.
  ExtentContents ContentsOf(const ReadPart& part) const {
    return {part.shape, lengths, part.base ? header_bytes : 0, ecc};
  }
};

}  // namespace firn
