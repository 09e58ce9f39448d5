// The GPU tier: hot copies in a GPU's memory, kept by a child process (gpu_link.h). Not persistent.
//
// Headers stay in the daemon; runs lie in extents of the child's pool, whose bookkeeping is here. Drafts are filled in
// host memory that the child has mapped (staging), and committing sends them over; a draft filled from memory that the
// child has mapped anyway, such as a warm arena's, is fetched from there. Reading brings runs into staging. Where the
// child has kernels for it, a copy is re-coded on the GPU and only the new codes cross the bus (recoder()).
//
// When the child dies, every copy is gone: Runs() is empty from then on, reads are Unavailable, `on_lost` says so, and
// available() is false until the next child is ready. Staging is bounded: half of it is for drafts, and a draft that
// finds none is told ResourceExhausted; half is for reads, which wait for it in order.
//
// Threads, ownership and errors: as tiers/tier.h; completions run on the executor. StoredBytes counts runs, each
// rounded up to 4 KiB. A record's runs must fit a half of staging: InvalidArgument otherwise.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/executor.h"
#include "tiers/hot/extent_pool.h"
#include "tiers/hot/gpu_link.h"
#include "tiers/tier.h"
#include "tiers/warm/arena.h"

namespace firn {

struct GpuTierOptions {
  std::string name = "gpu";
  uint32_t device = 0;
  uint64_t capacity_bytes = 0;  // Of the pool; 0: none, every copy goes to the next tier.
  uint64_t staging_bytes = uint64_t{256} << 20;
  uint64_t scratch_bytes = uint64_t{256} << 20;
  GpuChildStarter start;
  std::vector<GpuRegion> regions;  // Beside staging: the arenas that codes go to and come from.
  Executor* executor = nullptr;    // Not owned; outlives the tier.
  int64_t ready_timeout_ms = 60'000;
  int64_t job_timeout_ms = 30'000;
  int64_t backoff_first_ms = 100;
  int64_t backoff_max_ms = 10'000;
  std::function<void(const std::string&)> notice;
};

class GpuTier final : public Tier, private TierRecoder, private DeviceMover {
 public:
  // Takes staging and starts the first child, without waiting for it.
  static absl::StatusOr<std::unique_ptr<GpuTier>> Open(GpuTierOptions options);
  ~GpuTier() override;

  // Called, from the executor, after a child died with copies: they are gone. Set before the tier is used.
  void SetOnLost(std::function<void()> on_lost);
  // Waits until a child is ready; false where none was in time.
  bool WaitUntilUp(int64_t timeout_ms) const;
  // Ends the child; everything fails from now on.
  void Shutdown();

  GpuLink::Stats LinkStats() const { return link_->GetStats(); }
  uint64_t staging_bytes() const { return options_.staging_bytes; }
  // Of it, what drafts hold now.
  uint64_t put_staging_bytes() const { return put_staging_->Usage().used_bytes; }

  absl::Status SetCapacity(uint64_t bytes) override;
  bool persistent() const override { return false; }
  bool narrows_in_place() const override { return true; }
  bool available() const override;
  TierRecoder* recoder() override { return this; }
  DeviceMover* device_mover() override { return this; }
  TierUsage Usage() const override;
  // Recounts the extents of every record.
  absl::Status AuditForTest() const;

 protected:
  absl::StatusOr<std::unique_ptr<Draft>> ReserveImpl(const RecordLayout& layout) override;
  absl::StatusOr<std::unique_ptr<Draft>> ReserveForImportImpl(const RecordLayout& layout) override;
  void FillImpl(Draft* draft, const EncodedBlock& source) const override;
  void CommitImpl(std::unique_ptr<Draft> draft, std::shared_ptr<const RecordHeader> header,
                  const CommitOptions& options, CommitDone done) override;
  void ReadImpl(CopyPtr copy, const Identity& identity, RunMask runs, ReadDone done) override;
  absl::StatusOr<CopyPtr> NarrowImpl(const CopyPtr& copy, RunMask keep) override;
  void ForgetImpl(const CopyPtr& copy, const Identity& identity) override;
  void FlushImpl(FlushDone done) override { done(absl::OkStatus()); }

 private:
  struct Pool;    // One epoch's: its extents and what is counted of them.
  struct Record;  // One record's runs in a pool.
  class GpuDraft;
  class GpuCopy;
  class Reads;  // Reads on their way, and those that wait for staging.

  explicit GpuTier(GpuTierOptions options);
  void Recode(CopyPtr copy, const Identity& identity, const EncodeSpec& spec, const ArtifactSource& artifacts, Tier* to,
              RecodeDone done) override;
  void Import(Draft* draft, const RecordHeader& planned, const DeviceRows& rows, ImportDone done) override;
  void Export(const EncodedBlock& block, CopyPtr copy, const ArtifactSource& artifacts, const DeviceRows& rows,
              ExportDone done) override;
  // A block's bytes, or what they decode to, in memory that the child has mapped.
  absl::StatusOr<EncodedBlock> Stage(const EncodedBlock& block);
  absl::StatusOr<EncodedBlock> StageDecoded(const EncodedBlock& block, const ArtifactSource& artifacts);
  std::shared_ptr<Pool> CurrentPool() const;
  // A record with extents of the pool for every run.
  absl::StatusOr<std::shared_ptr<Record>> TakeRecord(const RecordLayout& layout) const;
  void OnUp(uint64_t epoch, const gpu::Ready& ready);
  void OnDown(uint64_t epoch, const absl::Status& why);

  const GpuTierOptions options_;
  std::shared_ptr<Arena> put_staging_;
  std::shared_ptr<GpuLink> link_;
  std::shared_ptr<Reads> reads_;
  std::function<void()> on_lost_;
  std::atomic<bool> shut_down_{false};

  mutable std::mutex mu_;
  // Guarded by mu_.
  std::shared_ptr<Pool> pool_;  // Null while no child serves.
  uint64_t limit_bytes_;
};

}  // namespace firn
