// Reads from a GPU's pool, by way of staging.
#include "base/status.h"
#include "tiers/hot/gpu_tier_internal.h"

namespace firn {
void GpuTier::Reads::Add(CopyPtr copy, RunMask runs, ReadDone done) {
  auto read = std::make_shared<Read>();
  read->copy = std::move(copy);
  read->runs = runs;
  read->done = std::move(done);
  {
    std::lock_guard lock(mu_);
    waiting_.push_back(std::move(read));
  }
  Serve();
}

void GpuTier::Reads::Serve() {
  {
    std::lock_guard lock(mu_);
    if (serving_) {
      serve_again_ = true;
      return;
    }
    serving_ = true;
  }
  for (;;) {
    std::shared_ptr<Read> read;
    {
      std::lock_guard lock(mu_);
      if (!waiting_.empty()) {
        read = std::move(waiting_.front());
        waiting_.pop_front();
      }
    }
    if (read != nullptr && TryStart(read)) continue;
    std::lock_guard lock(mu_);
    if (read != nullptr) waiting_.push_front(std::move(read));
    // Whoever freed staging or added a read meanwhile left it to this round.
    if (!std::exchange(serve_again_, false)) {
      serving_ = false;
      return;
    }
  }
}

absl::StatusOr<std::shared_ptr<const void>> GpuTier::Reads::Take(const RecordLayout& layout, MutableRuns* pieces) {
  FIRN_ASSIGN_OR_RETURN(ArenaRecord * staged, staging_->Reserve(layout, 0));
  Arena::PieceBytes bytes = staging_->Bytes(*staged, staged->pieces());
  for (uint32_t i = 0; i < kRunIds; ++i) (*pieces)[i] = bytes[i];
  return std::make_shared<StagedBytes>(staging_, staged, [self = shared_from_this()] { self->Serve(); });
}

void GpuTier::Reads::Answer(std::shared_ptr<Read> read, absl::StatusOr<EncodedBlock> block) {
  executor_->Post([read = std::move(read), block = std::move(block)]() mutable {
    read->copy.reset();
    read->done(std::move(block));
  });
}

bool GpuTier::Reads::TryStart(const std::shared_ptr<Read>& read) {
  const auto& copy = static_cast<const GpuCopy&>(*read->copy);
  const Record& record = *copy.record;
  if (!record.pool->alive) {
    Answer(read, Unavailable("{}: the GPU child that had it is gone", name_));
    return true;
  }
  RecordLayout layout = LayoutOf(*record.header, read->runs);
  auto staged = staging_->Reserve(layout, 0);
  if (absl::IsResourceExhausted(staged.status())) return false;
  if (!staged.ok()) {
    Answer(read, staged.status());
    return true;
  }
  Arena::PieceBytes pieces = staging_->Bytes(**staged, (*staged)->pieces());
  EncodedBlock block;
  block.owner = std::make_shared<StagedBytes>(staging_, *staged, [self = shared_from_this()] { self->Serve(); });
  block.header = record.header;
  block.present = read->runs;
  gpu::CopyJob job;
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (!read->runs.Has(i) || layout.run_bytes[i] == 0) continue;
    block.runs[i] = pieces[i];
    job.source.push_back({gpu::kPoolSpace, record.runs[i].offset, layout.run_bytes[i]});
    FIRN_CHECK(PlacesOf(*link_, block.runs[i], &job.target));
  }
  link_->Run(
      record.pool->epoch, gpu::Lane::kServe, std::move(job), {},
      [self = shared_from_this(), read, block = std::move(block)](absl::StatusOr<std::vector<uint8_t>> done) mutable {
        if (done.ok()) return self->Answer(std::move(read), std::move(block));
        self->Answer(std::move(read), done.status());
      });
  return true;
}

}  // namespace firn
