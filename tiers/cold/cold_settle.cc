// What happens when the log has settled: the index is told, trouble is noticed, and a failed medium is tried again.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "base/units.h"
#include "tiers/cold/cold_items.h"

namespace firn {
namespace {

constexpr uint64_t kBacklogBytesMax = 64 * kMiB;
constexpr uint64_t kMeasureEveryBytes = 256 * kKiB;
constexpr uint64_t kIndexSlackBytes = kMiB;
constexpr uint64_t kIndexRewriteBytesMax = 64 * kMiB;  // What a compaction may take on top, for a while.
constexpr int kWriteErrorsMax = 2;

// What a write that failed means to whoever asked for it: no room, or no medium. What the file system called it (there
// already, not found, not permitted) says nothing about a block, and goes into the message alone.
absl::Status WriteFailure(const absl::Status& status) {
  if (status.ok() || absl::IsResourceExhausted(status) || absl::IsFailedPrecondition(status)) return status;
  return Unavailable("{}", Message(status));
}

}  // namespace

void ColdTier::OnSettled(std::vector<std::unique_ptr<LogItem>> items) {
  SettleContext context;
  for (std::unique_ptr<LogItem>& item : items) {
    if (item->status.ok() && !item->extents.empty()) write_errors_in_a_row_ = 0;
    item->status = WriteFailure(item->status);
    static_cast<Item&>(*item).Settled(this, &context);
  }
  ApplyBatch(std::move(context.batch));
  for (Task& task : context.after) task();
  DrainForgotten();
  MaybeReclaim();
}

void ColdTier::OnFilled(const SegmentPtr& segment) {
  {
    std::lock_guard lock(mu_);
    segment->state = SegmentState::kSealed;
    segment->data_bytes = segment->append_at;
    segment->filled_at_ns = options_.clock->NowNs();
  }
  if (segment->has_footer) {
    IndexBatch batch;
    batch.Put(SegmentKey(segment->id), std::string(1, '\1'));
    ApplyBatch(std::move(batch));
  }
  MaybeReclaim();
}

void ColdTier::ApplyBatch(IndexBatch batch) {
  if (!batch.empty()) {
    batch.Put(NumberKey("next_sequence"), NumberValue(next_sequence_));
    batch.Put(NumberKey("next_segment"), NumberValue(segments_->next_id()));
  }
  if (index_broken_ || !backlog_.empty()) {
    backlog_.Append(std::move(batch));
    batch = std::move(backlog_);
    backlog_ = IndexBatch();
  }
  if (batch.empty()) return;
  absl::Status status = index_broken_ ? Unavailable("the index is broken") : index_->Apply(batch);
  if (status.ok()) {
    index_bytes_since_ += 2 * batch.bytes();
    MeasureIndex(false);
    return;
  }
  // The log has it all; the index learns it when it works again, or at the next start.
  if (!index_broken_) {
    index_broken_ = true;
    EnterTrouble(ColdState::kDegraded, fmt::format("the location index cannot be written: {}", Message(status)));
  }
  backlog_ = std::move(batch);
  std::lock_guard lock(mu_);
  backlog_full_ = backlog_.bytes() > kBacklogBytesMax;
}

void ColdTier::MeasureIndex(bool force) {
  if (!force && index_bytes_since_ < kMeasureEveryBytes) {
    segments_->SetIndexBytes(index_bytes_measured_ + std::min(index_bytes_measured_, kIndexRewriteBytesMax) +
                             index_bytes_since_ + kIndexSlackBytes);
    return;
  }
  auto bytes = index_->FileBytes();
  if (!bytes.ok()) return;
  index_bytes_measured_ = *bytes;
  index_bytes_since_ = 0;
  segments_->SetIndexBytes(*bytes + std::min(*bytes, kIndexRewriteBytesMax) + kIndexSlackBytes);
}

void ColdTier::OnWriteError(const absl::Status& status) {
  int error = StatusErrno(status).value_or(EIO);
  {
    std::lock_guard lock(mu_);
    ++cold_counters_.write_errors;
  }
  if (error == ENOSPC || error == EDQUOT) return EnterTrouble(ColdState::kReadOnly, Message(status));
  // A single error costs a segment; a second one without a success between them, or a medium turned read-only, is its
  // end.
  if (error == EROFS) return EnterTrouble(ColdState::kReadOnly, Message(status));
  EnterTrouble(++write_errors_in_a_row_ >= kWriteErrorsMax ? ColdState::kFailed : ColdState::kDegraded,
               Message(status));
}

bool ColdTier::OnNoSegment(const absl::Status& status) {
  auto error = StatusErrno(status);
  if (error.has_value()) {
    EnterTrouble(*error == ENOSPC || *error == EDQUOT || *error == EROFS ? ColdState::kReadOnly : ColdState::kFailed,
                 Message(status));
    return false;
  }
  // The budget is used up. A relocation that needs what it is to free would wait for itself.
  if (reclaim_ != nullptr && reclaim_->in_flight > 0) return false;
  MaybeReclaim();
  return reclaim_ != nullptr || segments_->removing();
}

void ColdTier::EnterTrouble(ColdState state, const std::string& reason) {
  std::string notice;
  {
    std::lock_guard lock(mu_);
    next_probe_ns_ = options_.clock->NowNs() + options_.probe_interval_ms * 1'000'000;
    if (state < health_.state) return;
    if (state > health_.state) notice = fmt::format("cold tier {}: {}", name(), reason);
    health_ = {state, reason};
  }
  if (!notice.empty() && options_.notice) options_.notice(notice);
}

void ColdTier::MaybeProbe() {
  {
    std::lock_guard lock(mu_);
    if (health_.state == ColdState::kOk || probing_ || options_.clock->NowNs() < next_probe_ns_) return;
    probing_ = true;
    ++cold_counters_.probes;
  }
  Post([this] { Probe(); });
}

// Tries the whole way of a write: space for a segment, a block, a sync, and the index.
void ColdTier::Probe() {
  BeginTask();
  segments_->Create(options_.segment_bytes, true, [this](absl::StatusOr<SegmentPtr> created) mutable {
    absl::Status status = created.status();
    if (created.ok()) {
      segments_->Condemn(*created);
    } else if (!StatusErrno(status).has_value()) {
      status = absl::OkStatus();  // The budget, not the medium: reclaiming sees to that.
    }
    created = absl::UnknownError("given back");
    Post([this, status] {
      absl::Status outcome = status;
      if (outcome.ok() && index_broken_) {
        outcome = index_->Reopen();
        if (outcome.ok()) {
          index_broken_ = false;
          ApplyBatch(IndexBatch());
          if (index_broken_) outcome = Unavailable("the location index cannot be written");
        }
      }
      {
        std::lock_guard lock(mu_);
        probing_ = false;
        next_probe_ns_ = options_.clock->NowNs() + options_.probe_interval_ms * 1'000'000;
        if (outcome.ok()) {
          health_ = ColdHealth();
          backlog_full_ = false;
        }
      }
      if (outcome.ok()) write_errors_in_a_row_ = 0;
      MaybeReclaim();
      writer_->RetryWaiting();
    });
    EndTask();
  });
}

}  // namespace firn
