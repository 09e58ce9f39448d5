// What the log writer's files share. Private to them.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tiers/cold/log/log_writer.h"

namespace firn {

inline constexpr uint64_t kGroupBytes = uint64_t{256} << 10;

inline size_t IndexOf(Stream stream) { return static_cast<size_t>(stream); }

struct LogWriter::Epoch {
  std::vector<std::unique_ptr<LogItem>> items;
  std::map<uint32_t, SegmentPtr> touched;  // By id: the order of syncs is the same every time.
  uint64_t bytes = 0;
  uint32_t writes_left = 0;
  uint32_t syncs_left = 0;
  bool empty() const { return items.empty(); }
};

// One contiguous stretch on its way to the medium.
struct LogWriter::Write {
  std::shared_ptr<Epoch> epoch;
  SegmentPtr segment;
  std::vector<std::pair<LogItem*, LogExtent*>> extents;  // Empty: the segment's own header.
  AlignedBuffer buffer;                                  // What is written, unless it is an extent's own memory.
  std::atomic<uint32_t> pieces_left{0};
  std::mutex mu;
  absl::Status status;  // Guarded by mu until the last piece has ended.
};

// Small extents that will be written together, placed one behind the other.
struct LogWriter::Group {
  AlignedBuffer buffer;
  uint64_t file_offset = 0;
  uint64_t used = 0;
  std::vector<std::pair<LogItem*, LogExtent*>> extents;
};

}  // namespace firn
