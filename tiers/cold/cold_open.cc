#include <utility>

#include "tiers/cold/cold_recoverer.h"

namespace firn {

absl::StatusOr<std::unique_ptr<ColdTier>> ColdTier::Open(const ColdOptions& options,
                                                         std::unique_ptr<BlockDevice> device,
                                                         std::unique_ptr<KeyValueIndex> index,
                                                         const ColdRecovery& recovery, ColdRecoveryReport* report) {
  std::unique_ptr<ColdTier> tier(new ColdTier(options, std::move(device), std::move(index)));
  FIRN_RETURN_IF_ERROR(tier->CheckOptions());
  FIRN_ASSIGN_OR_RETURN(tier->staging_, ChunkPool::Create(options.staging_bytes, options.chunk_bytes));
  FIRN_ASSIGN_OR_RETURN(tier->read_pool_, ChunkPool::Create(options.read_bytes, options.chunk_bytes));
  tier->device_->RegisterBuffer(tier->staging_->region());
  tier->device_->RegisterBuffer(tier->read_pool_->region());
  ColdTier* raw = tier.get();
  tier->read_pool_->SetOnFree([raw] {
    if (raw->waiting_read_count_ > 0) raw->PostToExecutor([raw] { raw->RetryWaitingReads(); });
  });
  SegmentStoreOptions store;
  store.device = raw->device_.get();
  store.executor = options.executor;
  store.capacity_bytes = options.capacity_bytes;
  store.reserve_bytes = options.segment_bytes;
  tier->segments_ = std::make_unique<SegmentStore>(store);
  tier->segments_->OnRemoved([raw](uint32_t id, const absl::Status& status) { raw->OnSegmentRemoved(id, status); });
  LogWriterOptions writer;
  writer.device = raw->device_.get();
  writer.segments = raw->segments_.get();
  writer.queue = &raw->queue_;
  writer.executor = options.executor;
  writer.clock = options.clock;
  writer.sink = raw;
  writer.segment_bytes = options.segment_bytes;
  writer.pack_below_bytes = options.split_plane_bytes;
  tier->writer_ = std::make_unique<LogWriter>(writer);
  ColdRecoveryReport ignored;
  Recoverer recoverer(raw, recovery, report == nullptr ? &ignored : report);
  absl::Status recovered = recoverer.Run();
  if (!recovered.ok()) return recovered;
  raw->MeasureIndex(true);
  raw->Tick();
  raw->Post([raw] {
    raw->DrainForgotten();
    raw->LogTombstones();
  });
  return tier;
}

}  // namespace firn
