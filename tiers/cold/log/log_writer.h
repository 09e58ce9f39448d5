// Appends to the segment log: places extents in their streams' segments, packs small ones into shared blocks, syncs in
// groups.
//
// Items settle in groups. While one group is synced the next collects, so that the medium always has work; an item
// settles when every write of its group has ended and every segment that the group touched is synced. An item whose own
// write failed, or that lies in a segment whose sync failed, settles with that error, and the segment takes no more.
// Threads: everything runs on the given SerialQueue except where said; device completions only post to it. Ownership:
// items are owned from Append until they are handed to the sink. Limits: an extent that is longer than a segment gets
// one of its own size.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "tiers/cold/device/aligned_buffer.h"
#include "tiers/cold/log/chunk_pool.h"
#include "tiers/cold/log/segment_store.h"
#include "tiers/cold/log/serial_queue.h"

namespace firn {

// One extent to be written. The image starts at the front of the memory: room for the header, then the payload, in
// place.
struct LogExtent {
  ExtentHeader header;                       // All but `place` and `siblings` set; those are filled when it is placed.
  std::shared_ptr<ChunkPool::Lease> memory;  // Given back once it is written.
  SegmentPtr segment;                        // Where it went.
  std::vector<uint8_t> serialized_header;
};

// What becomes durable together.
class LogItem {
 public:
  virtual ~LogItem() = default;
  std::vector<LogExtent> extents;  // The one with the record header first; may be empty, to wait for what came before.
  bool privileged = false;         // May use the reserve of the budget.
  absl::Status status;             // The outcome.
};

class LogSink {
 public:
  virtual ~LogSink() = default;
  // Durable, or failed, each by its status.
  virtual void OnSettled(std::vector<std::unique_ptr<LogItem>> items) = 0;
  // Takes no more extents; `has_footer` says whether it is sealed on the medium too.
  virtual void OnFilled(const SegmentPtr& segment) = 0;
  virtual void OnWriteError(const absl::Status& status) = 0;
  // A segment could not be had; true if the sink is making room and will call RetryWaiting.
  virtual bool OnNoSegment(const absl::Status& status) = 0;
  // The writer's last work has ended.
  virtual void OnIdle() = 0;
};

struct LogWriterOptions {
  BlockDevice* device = nullptr;
  SegmentStore* segments = nullptr;
  SerialQueue* queue = nullptr;
  Executor* executor = nullptr;
  const Clock* clock = nullptr;
  LogSink* sink = nullptr;
  uint64_t segment_bytes = 0;
  uint64_t pack_below_bytes = 0;  // Extents shorter than this share blocks.
};

class LogWriter {
 public:
  explicit LogWriter(const LogWriterOptions& options);
  ~LogWriter();

  void Append(std::unique_ptr<LogItem> item);
  // Tries again to get segments for what waits.
  void RetryWaiting();
  // Gives up on what waits for a segment.
  void FailWaiting(const absl::Status& status);
  // The largest segment that the first waiting item needs; 0 if none waits.
  uint64_t waiting_bytes() const;
  // The first that waits may use the reserve.
  bool waiting_is_privileged() const { return !waiting_.empty() && waiting_.front()->privileged; }
  // Segments have been asked for, and whatever comes of it, what waits is looked at again.
  bool asking() const;
  // Fills every open segment, so that it is sealed and gives its unused space back. `for_good`: nothing is appended any
  // more.
  void SealAll(bool for_good);
  // Nothing waits, is being written or sealed. From any thread.
  bool idle() const { return work_ == 0; }
  // Bytes that open segments still take. From any thread.
  uint64_t open_room_bytes() const;

 private:
  struct Epoch;
  struct Write;
  struct Group;

  void PlaceWaiting();
  bool EnsureRoom(const LogItem& item);
  bool HasRoom(const Segment& segment, const LogExtent& extent) const;
  uint64_t SegmentBytesFor(const LogExtent& extent) const;
  void RequestSegment(Stream stream, uint64_t bytes, bool privileged);
  void OnCreated(Stream stream, absl::StatusOr<SegmentPtr> created);
  void OpenSegment(Stream stream, SegmentPtr segment);
  void PrepareSpare();

  void Place(std::unique_ptr<LogItem> item);
  void PlaceExtent(LogItem* item, LogExtent* extent);
  void WriteDirect(LogItem* item, LogExtent* extent);
  void AddToGroup(LogItem* item, LogExtent* extent);
  void CloseGroup(Stream stream);
  void StartWrite(std::shared_ptr<Write> write, uint64_t offset, std::vector<ByteSpan> pieces);
  void OnWritten(const std::shared_ptr<Write>& write);

  void Advance();
  void StartSync();
  void OnSynced(const std::shared_ptr<Epoch>& epoch, const SegmentPtr& segment, const absl::Status& status);
  void Settle(const std::shared_ptr<Epoch>& epoch);

  void Fill(SegmentPtr segment);
  void MaybeSeal(const SegmentPtr& segment);
  void FinishSeal(const SegmentPtr& segment, const absl::Status& status);
  void BeginWork() { ++work_; }
  void EndWork(int64_t count = 1) {
    if ((work_ -= count) == 0) options_.sink->OnIdle();
  }

  const LogWriterOptions options_;
  std::array<SegmentPtr, kStreams> open_;
  std::array<std::unique_ptr<Group>, kStreams> groups_;
  std::array<bool, kStreams> requested_{};
  std::array<std::atomic<uint64_t>, kStreams> room_{};
  SegmentPtr spare_;
  bool spare_requested_ = false;
  bool closed_ = false;
  std::deque<std::unique_ptr<LogItem>> waiting_;
  std::shared_ptr<Epoch> current_;
  std::shared_ptr<Epoch> closing_;  // Waits for its writes, then for its syncs.
  bool syncing_ = false;
  std::vector<AlignedBuffer> spare_buffers_;
  std::atomic<int64_t> work_{0};
};

}  // namespace firn
