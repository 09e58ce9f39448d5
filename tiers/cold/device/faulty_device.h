// A block device that fails: a seeded wrapper around any other, for tests of what must survive.
//
// The model. Each system call may, at its own rate: fail with EIO or ENOSPC; move fewer bytes (1, 511, 512, 4095, 4096
// or n - 1); answer EINTR or EAGAIN; be torn, lost or misdirected though it reports success (writes); fail to sync.
// Completions may be held back and released in any order. Scripted faults come first: a hook sees every call and may
// give its result. After Crash nothing reaches the wrapped device any more and every call fails, as if the process had
// ended there. Threads: any.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tiers/cold/device/device.h"

namespace firn {

struct FaultRates {
  // Chances from 0 to 1, for each system call.
  double read_eio = 0, write_eio = 0, write_enospc = 0, sync_eio = 0, create_enospc = 0;
  double short_transfer = 0, interrupted = 0, again = 0;
  double torn_write = 0, lost_write = 0, misdirected_write = 0;
};

class FaultyDevice final : public BlockDevice {
 public:
  // The result to give, as a system call would (bytes or -errno), or nothing to go on.
  using Hook = std::function<std::optional<int64_t>(const RawIo& io)>;

  // `base` is not owned.
  FaultyDevice(BlockDevice* base, uint64_t seed) : BlockDevice(uint64_t{512} << 10), base_(base), random_(seed) {}
  std::string_view backend() const override { return base_->backend(); }

  void SetRates(const FaultRates& rates);
  void SetHook(Hook hook);
  // Every call from the `calls`-th on fails and changes nothing; 0 means from now on.
  void CrashAfter(uint64_t calls);
  bool crashed();
  // While on, completions wait for ReleaseOne, which picks one at random; turning it off releases all. Holding reads
  // also stops whoever waits for one.
  void HoldCompletions(bool on, bool reads_too = true);
  bool ReleaseOne();

 protected:
  absl::StatusOr<FilePtr> CreateImpl(const std::string& name, uint64_t bytes) override;
  absl::StatusOr<FilePtr> OpenImpl(const std::string& name) override;
  absl::Status RemoveImpl(const std::string& name) override;
  absl::Status TruncateImpl(const FilePtr& file, uint64_t bytes) override;
  absl::StatusOr<std::vector<FileEntry>> ListImpl() override;
  void SubmitImpl(RawIo io) override;
  int64_t BlockingImpl(const RawIo& io) override;
  void RegisterBufferImpl(MutableByteSpan memory) override { base_->RegisterBuffer(memory); }

 private:
  struct Held {
    absl::AnyInvocable<void(int64_t)> done;
    int64_t result;
  };

  bool Chance(double rate);                               // mu_ held.
  bool CountCall();                                       // mu_ held; false once crashed.
  std::optional<int64_t> FaultOf(RawIo* io, bool* lost);  // mu_ held.
  void Finish(IoKind kind, absl::AnyInvocable<void(int64_t)> done, int64_t result);

  BlockDevice* const base_;
  std::mutex mu_;
  std::mt19937_64 random_;  // Guarded by mu_, as all below.
  FaultRates rates_;
  Hook hook_;
  uint64_t calls_ = 0;
  uint64_t crash_at_ = ~uint64_t{0};
  bool holding_ = false;
  bool holding_reads_ = false;
  std::vector<Held> held_;
};

}  // namespace firn
