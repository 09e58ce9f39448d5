// Reads what a segment holds, from its footer or by looking at every block: for recovery and reclaiming.
//
// Threads: blocks; call it where that is allowed, not on a thread that completes I/O.
// Errors: the device's, or DataLoss.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "tiers/cold/device/aligned_buffer.h"
#include "tiers/cold/log/extent_format.h"

namespace firn {

struct SegmentContents {
  std::vector<ExtentHeader> extents;  // By offset.
  bool sealed = false;                // From a footer: every extent settled well.
  uint64_t data_end = kSegmentHeaderBytes;
  uint64_t torn = 0;           // Extents that are not whole; never in a sealed one.
  uint64_t mended = 0;         // Extents that are whole only with error correction.
  uint64_t refused_bytes = 0;  // What the medium would not give: extents may be there that are not in the list.
};

class SegmentReader {
 public:
  // `device` is not owned.
  SegmentReader(BlockDevice* device, FilePtr file) : device_(device), file_(std::move(file)) {}

  // DataLoss: the first block is none of a segment. NotFound: it was never written.
  absl::StatusOr<SegmentHeader> ReadHeader();
  // The footer's entries; DataLoss where there is none.
  absl::StatusOr<SegmentContents> ReadFooter(uint32_t id, uint64_t salt);
  // Puts the bytes of an extent right, if it can, whose header is right and whose payload is not.
  using Mend = std::function<bool(const ExtentHeader& header, MutableByteSpan extent)>;
  // Every extent that is whole, its payload included. What a power cut left half-written is stepped over, and so is
  // what the medium will not give, up to kRefusedBytesMax.
  absl::StatusOr<SegmentContents> Scan(uint32_t id, uint64_t salt, const Mend& mend = {});
  // A payload, checked.
  absl::StatusOr<std::vector<uint8_t>> ReadPayload(const ExtentHeader& header);

 private:
  // More is no lost sector any more, and asking for each would take long.
  static constexpr uint64_t kRefusedBytesMax = uint64_t{4} << 20;

  absl::StatusOr<AlignedBuffer> ReadSpan(uint64_t offset, uint64_t bytes);
  // All of the file's first `bytes`, with zeros for what is refused.
  absl::StatusOr<AlignedBuffer> ReadGiven(uint64_t bytes, uint64_t* refused_bytes);

  BlockDevice* const device_;
  const FilePtr file_;
};

}  // namespace firn
