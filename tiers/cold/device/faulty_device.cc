#include "tiers/cold/device/faulty_device.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace firn {

void FaultyDevice::SetRates(const FaultRates& rates) {
  std::lock_guard lock(mu_);
  rates_ = rates;
}

void FaultyDevice::SetHook(Hook hook) {
  std::lock_guard lock(mu_);
  hook_ = std::move(hook);
}

void FaultyDevice::CrashAfter(uint64_t calls) {
  std::lock_guard lock(mu_);
  crash_at_ = calls_ + calls;
}

bool FaultyDevice::crashed() {
  std::lock_guard lock(mu_);
  return calls_ >= crash_at_;
}

bool FaultyDevice::Chance(double rate) {
  return rate > 0 && std::uniform_real_distribution<double>(0, 1)(random_) < rate;
}

bool FaultyDevice::CountCall() {
  if (calls_ >= crash_at_) return false;
  ++calls_;
  return true;
}

std::optional<int64_t> FaultyDevice::FaultOf(RawIo* io, bool* lost) {
  if (!CountCall()) return -EIO;
  if (hook_) {
    if (auto result = hook_(*io)) return result;
  }
  if (io->kind == IoKind::kSync) return Chance(rates_.sync_eio) ? std::optional<int64_t>(-EIO) : std::nullopt;
  if (Chance(rates_.interrupted)) return -EINTR;
  if (Chance(rates_.again)) return -EAGAIN;
  if (Chance(io->kind == IoKind::kRead ? rates_.read_eio : rates_.write_eio)) return -EIO;
  if (io->kind == IoKind::kWrite) {
    if (Chance(rates_.write_enospc)) return -ENOSPC;
    if (Chance(rates_.lost_write)) *lost = true;
    if (Chance(rates_.misdirected_write) && io->offset >= kIoAlignment) io->offset -= kIoAlignment;
  }
  if (Chance(rates_.short_transfer)) {
    const uint32_t shorter[] = {1, 511, 512, 4095, 4096, io->length - 1};
    io->length = std::min(io->length, shorter[random_() % std::size(shorter)]);
  }
  return std::nullopt;
}

void FaultyDevice::Finish(IoKind kind, absl::AnyInvocable<void(int64_t)> done, int64_t result) {
  {
    std::lock_guard lock(mu_);
    if (holding_ && (holding_reads_ || kind != IoKind::kRead)) {
      held_.push_back({std::move(done), result});
      return;
    }
  }
  done(result);
}

void FaultyDevice::SubmitImpl(RawIo io) {
  std::optional<int64_t> fault;
  bool lost = false;
  uint32_t asked = io.length;
  uint32_t reported = 0;  // What a call that succeeds says it moved.
  {
    std::lock_guard lock(mu_);
    fault = FaultOf(&io, &lost);
    reported = io.length;
    // A real file takes aligned lengths only: the call moves the blocks that hold what it will report.
    io.length = static_cast<uint32_t>(std::min<uint64_t>(AlignUp(io.length, kIoAlignment), asked));
    if (!fault && io.kind == IoKind::kWrite && reported == asked && Chance(rates_.torn_write)) {
      io.length = static_cast<uint32_t>(random_() % (asked / 512) * 512);
      if (io.length == 0) lost = true;
    }
  }
  if (!fault && lost) fault = reported;
  if (fault) return Finish(io.kind, std::move(io.done), *fault);
  bool torn = io.length < reported;
  io.done = [this, torn, reported, kind = io.kind, done = std::move(io.done)](int64_t result) mutable {
    if (result > 0) result = torn ? int64_t{reported} : std::min<int64_t>(result, reported);
    Finish(kind, std::move(done), result);
  };
  Submit(base_, std::move(io));
}

int64_t FaultyDevice::BlockingImpl(const RawIo& io) {
  {
    std::lock_guard lock(mu_);
    if (!CountCall()) return -EIO;
  }
  return Blocking(base_, io);
}

void FaultyDevice::HoldCompletions(bool on, bool reads_too) {
  std::vector<Held> released;
  {
    std::lock_guard lock(mu_);
    holding_ = on;
    holding_reads_ = reads_too;
    if (!on) released.swap(held_);
  }
  for (Held& held : released) held.done(held.result);
}

bool FaultyDevice::ReleaseOne() {
  Held held;
  {
    std::lock_guard lock(mu_);
    if (held_.empty()) return false;
    std::swap(held_[random_() % held_.size()], held_.back());
    held = std::move(held_.back());
    held_.pop_back();
  }
  held.done(held.result);
  return true;
}

absl::StatusOr<FilePtr> FaultyDevice::CreateImpl(const std::string& name, uint64_t bytes) {
  {
    std::lock_guard lock(mu_);
    if (!CountCall()) return ErrnoStatus(EIO, "create " + name);
    if (Chance(rates_.create_enospc)) return ErrnoStatus(ENOSPC, "create " + name);
  }
  return base_->Create(name, bytes);
}

absl::StatusOr<FilePtr> FaultyDevice::OpenImpl(const std::string& name) { return base_->Open(name); }

absl::Status FaultyDevice::RemoveImpl(const std::string& name) {
  {
    std::lock_guard lock(mu_);
    if (!CountCall()) return ErrnoStatus(EIO, "remove " + name);
  }
  return base_->Remove(name);
}

absl::Status FaultyDevice::TruncateImpl(const FilePtr& file, uint64_t bytes) {
  {
    std::lock_guard lock(mu_);
    if (!CountCall()) return ErrnoStatus(EIO, "truncate " + file->name());
  }
  return base_->Truncate(file, bytes);
}

absl::StatusOr<std::vector<FileEntry>> FaultyDevice::ListImpl() { return base_->List(); }

}  // namespace firn
