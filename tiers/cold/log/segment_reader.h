// Reads what a segment holds, from its footer or by looking at every block: for recovery and reclaiming.
//
// Threads: blocks; call it where that is allowed, not on a thread that completes I/O.
// Errors: the device's, or DataLoss.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "tiers/cold/device/aligned_buffer.h"
#include "tiers/cold/log/extent_format.h"

namespace firn {

struct SegmentContents {
  std::vector<ExtentHeader> extents;  // By offset.
  bool sealed = false;                // From a footer: every extent settled well.
  uint64_t data_end = kSegmentHeaderBytes;
  uint64_t torn = 0;  // Extents that are not whole; never in a sealed one.
};

class SegmentReader {
 public:
  // `device` is not owned.
  SegmentReader(BlockDevice* device, FilePtr file) : device_(device), file_(std::move(file)) {}

  // DataLoss: the first block is none of a segment. NotFound: it was never written.
  absl::StatusOr<SegmentHeader> ReadHeader();
  // The footer's entries; DataLoss where there is none.
  absl::StatusOr<SegmentContents> ReadFooter(uint32_t id, uint64_t salt);
  // Every extent that is whole, its payload included. What a power cut left half-written is stepped over.
  absl::StatusOr<SegmentContents> Scan(uint32_t id, uint64_t salt);
  // A payload, checked.
  absl::StatusOr<std::vector<uint8_t>> ReadPayload(const ExtentHeader& header);

 private:
  absl::StatusOr<AlignedBuffer> ReadSpan(uint64_t offset, uint64_t bytes);

  BlockDevice* const device_;
  const FilePtr file_;
};

}  // namespace firn
