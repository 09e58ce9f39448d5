// A tier over an arena: DRAM, and with another region CXL memory. Not persistent.
//
// Reading returns views of the arena itself; nothing is copied, and the view keeps its bytes. A copy holds its header
// serialized in the arena, so a stored block costs little ordinary memory: 180 bytes for a small one at source
// precision, 270 for a nested one, and 8 more for each further page.
//
// Narrowing makes another copy that shares the runs that stay; the others are freed when the old copy's last holder
// drops it. With a policy of error correction, parity lies behind each run and behind the header, and is made when a
// draft is committed. StoredBytes counts runs and header, each rounded up to its chunks; held_bytes counts the pieces
// whose copies have all been forgotten (Forget) and are still held.
//
// Threads, ownership and errors: as tiers/tier.h. DataLoss where a header in the arena no longer checks, or is
// another's.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "tiers/tier.h"
#include "tiers/warm/arena.h"

namespace firn {

class ArenaTier final : public Tier {
 public:
  ArenaTier(std::string name, std::unique_ptr<MemoryRegion> region, EccPolicy ecc = {});
  ~ArenaTier() override;

  // Grows the pool; see Arena::Populate. The pool is empty until this has been called.
  absl::Status Populate(uint64_t bytes) { return arena_->Populate(bytes); }
  uint64_t populated_bytes() const { return arena_->populated_bytes(); }
  uint64_t bytes_max() const { return arena_->bytes_max(); }
  // The memory stays taken; it is what may be used that changes.
  absl::Status SetCapacity(uint64_t bytes) override;
  // For mapping into other processes and registering with a GPU.
  const MemoryRegion& region() const { return arena_->region(); }
  // Reserves and commits fail from now on; what is there can be read.
  void Shutdown() { shut_down_.store(true); }

  bool persistent() const override { return false; }
  bool narrows_in_place() const override { return true; }
  EccPolicy ecc() const override { return arena_->ecc(); }
  TierUsage Usage() const override { return arena_->Usage(); }
  absl::Status AuditForTest() const { return arena_->AuditForTest(); }

 protected:
  absl::StatusOr<std::unique_ptr<Draft>> ReserveImpl(const RecordLayout& layout) override;
  void CommitImpl(std::unique_ptr<Draft> draft, std::shared_ptr<const RecordHeader> header,
                  const CommitOptions& options, CommitDone done) override;
  void ReadImpl(CopyPtr copy, const Identity& identity, RunMask runs, ReadDone done) override;
  void ReadCorrectedImpl(CopyPtr copy, const Identity& identity, RunMask runs, ReadDone done) override;
  absl::StatusOr<CopyPtr> NarrowImpl(const CopyPtr& copy, RunMask keep) override;
  void ForgetImpl(const CopyPtr& copy, const Identity& identity) override;
  void FlushImpl(FlushDone done) override { done(absl::OkStatus()); }
  void CopyInImpl(const RunBytes& source, const MutableRunBytes& target) const override;

 private:
  absl::StatusOr<std::shared_ptr<const RecordHeader>> HeaderOf(const RunBytes& piece, const Identity& identity) const;

  const std::shared_ptr<Arena> arena_;
  std::atomic<bool> shut_down_{false};
};

}  // namespace firn
