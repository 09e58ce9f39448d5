#include "tiers/cold/cold_tier.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "base/units.h"
#include "tiers/cold/cold_items.h"
#include "tiers/cold/index/watched_index.h"

namespace firn {
namespace {

constexpr uint64_t kSegmentBytesMin = kMiB;
constexpr uint64_t kSegmentBytesMax = 4 * kGiB;
constexpr uint64_t kSegmentsMin = 12;  // One open for each stream, one being reclaimed, and some to choose from.

}  // namespace

ColdTier::ColdTier(const ColdOptions& options, std::unique_ptr<BlockDevice> device,
                   std::unique_ptr<KeyValueIndex> index)
    : Tier(options.name),
      options_(options),
      device_(std::move(device)),
      index_(std::make_unique<WatchedIndex>(std::move(index), &device_->outstanding())),
      queue_(options.executor),
      admission_(options.write_bytes_per_second) {
  if (options.clock != nullptr) device_->outstanding().UseClock(options.clock);
}

absl::Status ColdTier::CheckOptions() const {
  FIRN_CHECK(options_.executor != nullptr && options_.clock != nullptr);
  uint64_t segment = options_.segment_bytes;
  if (segment < kSegmentBytesMin || segment > kSegmentBytesMax || segment % kIoAlignment != 0) {
    return InvalidArgument("segments of {} bytes; a multiple of {} from {} to {} expected", segment, kIoAlignment,
                           kSegmentBytesMin, kSegmentBytesMax);
  }
  if (options_.capacity_bytes < kSegmentsMin * segment) {
    return InvalidArgument(
        "a capacity of {} bytes holds fewer than {} segments of {} bytes; raise it or use smaller segments",
        options_.capacity_bytes, kSegmentsMin, segment);
  }
  if (options_.chunk_bytes < kIoAlignment || options_.chunk_bytes % kIoAlignment != 0 ||
      options_.chunk_bytes > segment) {
    return InvalidArgument("chunks of {} bytes; a multiple of {} up to a segment expected", options_.chunk_bytes,
                           kIoAlignment);
  }
  if (!(options_.free_fraction >= 0 && options_.free_fraction <= 0.5)) {
    return InvalidArgument("a free fraction of {}; 0 to 0.5 expected", options_.free_fraction);
  }
  if (!(options_.relocate_fraction >= 0 && options_.relocate_fraction <= 0.9)) {
    return InvalidArgument("a relocated fraction of {}; 0 to 0.9 expected", options_.relocate_fraction);
  }
  return absl::OkStatus();
}

ColdTier::~ColdTier() {
  closing_ = true;
  if (read_pool_ != nullptr) read_pool_->SetOnFree({});
  FailWaitingReads();
  while (segments_ != nullptr && !idle()) {
    std::unique_lock lock(tasks_mu_);
    tasks_done_.wait_for(lock, std::chrono::milliseconds(1));
  }
  if (segments_ != nullptr) segments_->Close();
}

void ColdTier::BeginTask() {
  std::lock_guard lock(tasks_mu_);
  ++tasks_;
}

void ColdTier::EndTask() {
  std::lock_guard lock(tasks_mu_);
  FIRN_CHECK(--tasks_ >= 0);
  if (tasks_ == 0) tasks_done_.notify_all();
}

void ColdTier::Post(Task task) {
  BeginTask();
  queue_.Post([this, task = std::move(task)]() mutable {
    task();
    task = nullptr;
    EndTask();
  });
}

void ColdTier::PostToExecutor(Task task) {
  BeginTask();
  options_.executor->Post([this, task = std::move(task)]() mutable {
    task();
    task = nullptr;
    EndTask();
  });
}

bool ColdTier::idle() const {
  auto nothing_counted = [this] {
    // In this order: what the store's work starts is counted before the store is seen to be done.
    if (segments_->busy() || !writer_->idle()) return false;
    std::lock_guard lock(tasks_mu_);
    return tasks_ == 0 && writer_->idle() && !segments_->busy();
  };
  // The task that counted the last thing down may still be on its way out, and may have begun something more.
  return nothing_counted() && queue_.quiet() && nothing_counted();
}

void ColdTier::SetEvents(ColdEvents* events) { events_ = events; }

absl::Status ColdTier::SetCapacity(uint64_t bytes) {
  uint64_t least = kSegmentsMin * options_.segment_bytes;
  if (bytes < least) {
    return InvalidArgument("{}: a capacity of {} bytes; at least {} expected, {} segments", name(), bytes, least,
                           kSegmentsMin);
  }
  segments_->SetCapacity(bytes);
  Post([this] { MaybeReclaim(); });
  return absl::OkStatus();
}

void ColdTier::Tick() {
  if (closing_) return;
  Post([this] {
    MeasureIndex(true);
    LogTombstones();
    RetryFlushes();
    MaybeProbe();
    MaybeReclaim();
  });
}

void ColdTier::FlushImpl(FlushDone done) {
  constexpr int64_t kPatienceNs = 10'000'000'000;
  Post([this, until_ns = options_.clock->NowNs() + kPatienceNs, done = std::move(done)]() mutable {
    TryFlush(until_ns, std::move(done));
  });
}

void ColdTier::TryFlush(int64_t until_ns, FlushDone done) {
  DrainForgotten();
  uint64_t failures = tombstone_failures_, without_room = tombstones_without_room_;
  LogTombstones();
  auto item = std::make_unique<FlushItem>();
  item->done = [this, failures, without_room, until_ns, done = std::move(done)](absl::Status status) mutable {
    uint64_t failed = tombstone_failures_ - failures;
    if (!status.ok() || failed == 0) return done(status);
    // A reclaim that is under way gives the room that was not there.
    bool room_alone = tombstones_without_room_ - without_room == failed;
    if (room_alone && !closing_ && options_.clock->NowNs() < until_ns) {
      waiting_flushes_.emplace_back(until_ns, std::move(done));
      return;
    }
    done(Unavailable("tier {}: tombstones could not be written", name()));
  };
  AppendItem(std::move(item));
}

void ColdTier::RetryFlushes() {
  for (auto& [until_ns, done] : std::exchange(waiting_flushes_, {})) TryFlush(until_ns, std::move(done));
}

void ColdTier::Close(FlushDone done) {
  closing_ = true;
  Post([this, done = std::move(done)]() mutable {
    RetryFlushes();  // For the last time.
    DrainForgotten();
    LogTombstones();
    auto item = std::make_unique<FlushItem>();
    item->done = [this, done = std::move(done)](absl::Status) mutable {
      Post([this, done = std::move(done)]() mutable {
        close_done_ = std::move(done);
        writer_->SealAll(true);
        Post([this] { MaybeFinishClose(); });
      });
    };
    AppendItem(std::move(item));
  });
}

void ColdTier::OnIdle() {
  if (close_done_) Post([this] { MaybeFinishClose(); });
}

void ColdTier::MaybeFinishClose() {
  if (!close_done_ || !writer_->idle()) return;
  ApplyBatch(IndexBatch());
  absl::Status status =
      index_broken_ ? Unavailable("the location index is behind; the next start reads the log") : index_->Sync();
  FlushDone done = std::exchange(close_done_, nullptr);
  done(status);
}

TierUsage ColdTier::Usage() const {
  TierUsage usage;
  std::lock_guard lock(mu_);
  usage.capacity_bytes = segments_->capacity_bytes();
  usage.copies = copies_;
  usage.draft_bytes = draft_bytes_ + unplaced_bytes_;
  usage.held_bytes = layouts_.held_bytes();
  uint64_t stored = stored_bytes_ + usage.held_bytes;
  usage.used_bytes = std::max(segments_->used_bytes(), stored + usage.draft_bytes + segments_->index_bytes());
  usage.overhead_bytes = usage.used_bytes - stored - usage.draft_bytes;
  return usage;
}

ColdHealth ColdTier::Health() const {
  std::lock_guard lock(mu_);
  return health_;
}

ColdCounters ColdTier::ReclaimCounters() const {
  std::lock_guard lock(mu_);
  return cold_counters_;
}

}  // namespace firn
