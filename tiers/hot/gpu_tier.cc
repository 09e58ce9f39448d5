#include "tiers/hot/gpu_tier.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "base/units.h"
#include "tiers/hot/gpu_tier_internal.h"
#include "tiers/warm/memory/memfd_region.h"

namespace firn {

namespace {

absl::StatusOr<std::shared_ptr<Arena>> OpenStaging(const std::string& name, uint64_t bytes) {
  MemfdOptions options;
  options.label = "firn-" + name;
  options.bytes = bytes;
  FIRN_ASSIGN_OR_RETURN(auto region, OpenMemfdRegion(options));
  auto arena = std::make_shared<Arena>(name, std::move(region));
  FIRN_RETURN_IF_ERROR(arena->Populate(arena->bytes_max()));
  return arena;
}

}  // namespace

GpuTier::GpuTier(GpuTierOptions options)
    : Tier(options.name), options_(std::move(options)), limit_bytes_(options_.capacity_bytes) {}

absl::StatusOr<std::unique_ptr<GpuTier>> GpuTier::Open(GpuTierOptions options) {
  FIRN_CHECK(options.executor != nullptr && options.start != nullptr);
  std::unique_ptr<GpuTier> tier(new GpuTier(std::move(options)));
  uint64_t half = tier->options_.staging_bytes / 2;
  FIRN_ASSIGN_OR_RETURN(tier->put_staging_, OpenStaging(tier->name() + "-put", half));
  FIRN_ASSIGN_OR_RETURN(auto read_staging, OpenStaging(tier->name() + "-read", half));
  GpuLink::Options link;
  link.name = tier->name();
  link.start = tier->options_.start;
  link.device = tier->options_.device;
  link.pool_bytes = tier->options_.capacity_bytes;
  link.scratch_bytes = tier->options_.scratch_bytes;
  link.regions = {RegionOf(tier->put_staging_), RegionOf(read_staging)};
  for (const GpuRegion& region : tier->options_.regions) link.regions.push_back(region);
  link.ready_timeout_ms = tier->options_.ready_timeout_ms;
  link.job_timeout_ms = tier->options_.job_timeout_ms;
  link.backoff_first_ms = tier->options_.backoff_first_ms;
  link.backoff_max_ms = tier->options_.backoff_max_ms;
  link.notice = tier->options_.notice;
  link.on_up = [t = tier.get()](uint64_t epoch, const gpu::Ready& ready) { t->OnUp(epoch, ready); };
  link.on_down = [t = tier.get()](uint64_t epoch, const absl::Status& why) { t->OnDown(epoch, why); };
  tier->link_ = std::make_shared<GpuLink>(std::move(link));
  tier->reads_ = std::make_shared<Reads>(tier->name(), read_staging, tier->link_, tier->options_.executor);
  tier->link_->Start();
  return tier;
}

GpuTier::~GpuTier() { Shutdown(); }

void GpuTier::Shutdown() {
  shut_down_ = true;
  if (link_ != nullptr) link_->Stop();
  if (reads_ != nullptr) reads_->Serve();  // None of them finds a child.
}

void GpuTier::SetOnLost(std::function<void()> on_lost) {
  std::lock_guard lock(mu_);
  on_lost_ = std::move(on_lost);
}

bool GpuTier::WaitUntilUp(int64_t timeout_ms) const {
  for (int64_t waited_ms = 0; waited_ms < timeout_ms; ++waited_ms) {
    if (CurrentPool() != nullptr) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return CurrentPool() != nullptr;
}

std::shared_ptr<GpuTier::Pool> GpuTier::CurrentPool() const {
  std::lock_guard lock(mu_);
  return pool_;
}

void GpuTier::OnUp(uint64_t epoch, const gpu::Ready& ready) {
  if (ready.pool_bytes < options_.capacity_bytes && options_.notice) {
    options_.notice(fmt::format("the GPU has {} for the pool, {} were asked for", FormatBytes(ready.pool_bytes),
                                FormatBytes(options_.capacity_bytes)));
  }
  auto pool = std::make_shared<Pool>(epoch, ready.pool_bytes);
  std::lock_guard lock(mu_);
  pool_ = std::move(pool);
}

void GpuTier::OnDown(uint64_t /*epoch*/, const absl::Status& /*why*/) {
  std::shared_ptr<Pool> pool;
  std::function<void()> on_lost;
  {
    std::lock_guard lock(mu_);
    pool = std::exchange(pool_, nullptr);
    on_lost = on_lost_;
  }
  if (pool != nullptr) pool->alive.store(false, std::memory_order_release);
  if (on_lost && !shut_down_) options_.executor->Post(std::move(on_lost));
  reads_->Serve();
}

bool GpuTier::available() const {
  auto pool = CurrentPool();
  return pool != nullptr && pool->extents.bytes() > 0 && !shut_down_;
}

absl::Status GpuTier::SetCapacity(uint64_t bytes) {
  if (bytes < kExtentGranuleBytes || bytes > options_.capacity_bytes) {
    return InvalidArgument("{}: a capacity of {} bytes; {} to {} expected, what it was opened with", name(), bytes,
                           kExtentGranuleBytes, options_.capacity_bytes);
  }
  std::lock_guard lock(mu_);
  limit_bytes_ = bytes;
  return absl::OkStatus();
}

TierUsage GpuTier::Usage() const {
  std::shared_ptr<Pool> pool;
  TierUsage usage;
  {
    std::lock_guard lock(mu_);
    pool = pool_;
    usage.capacity_bytes = limit_bytes_;
  }
  if (pool == nullptr) return usage;
  std::lock_guard lock(pool->mu);
  usage.capacity_bytes = std::min(usage.capacity_bytes, pool->extents.bytes());
  usage.used_bytes = pool->extents.bytes() - pool->extents.free_bytes();
  usage.draft_bytes = pool->draft_bytes;
  usage.held_bytes = pool->held_bytes;
  usage.copies = pool->copies;
  return usage;
}

absl::Status GpuTier::AuditForTest() const {
  auto pool = CurrentPool();
  if (pool == nullptr) return absl::OkStatus();
  std::lock_guard lock(pool->mu);
  return pool->extents.Audit();
}

absl::StatusOr<std::shared_ptr<GpuTier::Record>> GpuTier::TakeRecord(const RecordLayout& layout) const {
  if (shut_down_) return FailedPrecondition("{} is shut down", name());
  uint64_t limit = 0;
  std::shared_ptr<Pool> pool;
  {
    std::lock_guard lock(mu_);
    pool = pool_;
    limit = limit_bytes_;
  }
  uint64_t bytes = layout.TotalBytes();
  if (bytes > options_.capacity_bytes) {
    return InvalidArgument("{}: {} bytes asked for, its capacity is {}", name(), bytes, options_.capacity_bytes);
  }
  if (bytes > put_staging_->bytes_max()) {
    return InvalidArgument("{}: {} bytes asked for, half of its staging is {}", name(), bytes,
                           put_staging_->bytes_max());
  }
  if (pool == nullptr) return Unavailable("{}: no GPU child serves", name());
  auto record = std::make_shared<Record>(pool);
  if (!record->TakeExtents(layout, limit)) {
    TierUsage usage = Usage();
    std::lock_guard lock(pool->mu);
    return ResourceExhausted("{}: {} bytes asked for; {} free of {}, the longest piece {}", name(), bytes,
                             usage.capacity_bytes - std::min(usage.capacity_bytes, usage.used_bytes),
                             usage.capacity_bytes, pool->extents.largest_free_bytes());
  }
  return record;
}

absl::StatusOr<std::unique_ptr<Draft>> GpuTier::ReserveForImportImpl(const RecordLayout& layout) {
  FIRN_ASSIGN_OR_RETURN(auto record, TakeRecord(layout));
  return std::make_unique<GpuDraft>(std::move(record), nullptr, nullptr, layout);
}

absl::StatusOr<std::unique_ptr<Draft>> GpuTier::ReserveImpl(const RecordLayout& layout) {
  FIRN_ASSIGN_OR_RETURN(auto record, TakeRecord(layout));
  auto staged_or = put_staging_->Reserve(layout, 0);
  if (absl::IsResourceExhausted(staged_or.status())) {
    // The pool has room: moving blocks out of it would not help. Drafts that end give staging back.
    absl::Status passing = staged_or.status();
    passing.SetPayload(kPassingShortage, absl::Cord());
    return passing;
  }
  FIRN_RETURN_IF_ERROR(staged_or.status());
  ArenaRecord* staged = *staged_or;
  return std::make_unique<GpuDraft>(std::move(record), put_staging_, staged, layout);
}

void GpuTier::FillImpl(Draft* draft, const EncodedBlock& source) const {
  auto& gpu_draft = static_cast<GpuDraft&>(*draft);
  EncodedBlock wanted = source.Narrowed(draft->layout().present);
  std::vector<gpu::Place> places;
  bool mapped = true;
  for (const RunBytes& run : wanted.runs) mapped = mapped && PlacesOf(*link_, run, &places);
  if (mapped && places.size() < gpu::kPlacesMax / 2) {
    gpu_draft.source = std::move(wanted);
    return;
  }
  Tier::FillImpl(draft, source);
}

void GpuTier::CommitImpl(std::unique_ptr<Draft> draft, std::shared_ptr<const RecordHeader> header,
                         const CommitOptions& commit, CommitDone done) {
  std::unique_ptr<GpuDraft> filled(static_cast<GpuDraft*>(draft.release()));
  for (uint32_t i = 0; i < kRunIds; ++i) FIRN_CHECK(header->runs[i].bytes == filled->layout().run_bytes[i]);
  gpu::CopyJob job;
  for (uint32_t i = 0; i < kRunIds && !commit.in_place; ++i) {
    const Record::Run& run = filled->record->runs[i];
    if (run.bytes == 0) continue;
    bool located = PlacesOf(
        *link_, filled->source.header != nullptr ? filled->source.runs[i] : RunBytes(filled->runs()[i]), &job.source);
    FIRN_CHECK(located);
    job.target.push_back({gpu::kPoolSpace, run.offset, run.bytes});
  }
  uint64_t epoch = filled->record->pool->epoch;
  auto on_done = [executor = options_.executor, filled = std::move(filled), header = std::move(header),
                  returned = commit.in_place ? nullptr : commit.returned,
                  done = std::move(done)](absl::StatusOr<std::vector<uint8_t>> answer) mutable {
    executor->Post([filled = std::move(filled), header = std::move(header), returned, done = std::move(done),
                    status = answer.status()]() mutable {
      std::shared_ptr<Record> record = filled->record;
      // Where it was filled by reference, what it refers to is its caller's.
      const bool may_come_back = returned != nullptr && filled->source.header == nullptr;
      if (may_come_back && (status.ok() || absl::IsUnavailable(status))) *returned = std::move(filled);
      filled.reset();
      if (!status.ok()) return done(status);
      record->header = header;
      record->Publish(header->encoded);
      done(CopyPtr(std::make_shared<GpuCopy>(record, header->encoded)));
    });
  };
  link_->Run(epoch, gpu::Lane::kStore, std::move(job), {}, std::move(on_done));
}

void GpuTier::ReadImpl(CopyPtr copy, const Identity& identity, RunMask runs, ReadDone done) {
  const auto& gpu_copy = static_cast<const GpuCopy&>(*copy);
  const auto& header = gpu_copy.record->header;
  if (header->identity != identity) return done(DataLoss("{}: the record there is another's", name()));
  RunMask wanted = runs & gpu_copy.stored();
  if (wanted.Empty()) {
    EncodedBlock block;
    block.header = header;
    return done(std::move(block));
  }
  reads_->Add(std::move(copy), wanted, std::move(done));
}

absl::StatusOr<CopyPtr> GpuTier::NarrowImpl(const CopyPtr& copy, RunMask keep) {
  const auto& gpu_copy = static_cast<const GpuCopy&>(*copy);
  RunMask runs = gpu_copy.stored() & keep;
  gpu_copy.record->Share(runs);
  return CopyPtr(std::make_shared<GpuCopy>(gpu_copy.record, runs));
}

void GpuTier::ForgetImpl(const CopyPtr& copy, const Identity& /*identity*/) {
  static_cast<const GpuCopy&>(*copy).Forget();
}

}  // namespace firn
