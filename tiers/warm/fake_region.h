// A region that tests steer: slow, failing, full of another's bytes.
#pragma once

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <vector>

#include "base/status.h"
#include "tiers/warm/memory/memory_region.h"

namespace firn {

class FakeRegion final : public MemoryRegion {
 public:
  // Unless zeroed, the memory holds `junk`.
  explicit FakeRegion(uint64_t bytes, bool zeroed = true, uint8_t junk = 0xDB) : memory_(bytes + kAlignment) {
    uintptr_t start = reinterpret_cast<uintptr_t>(memory_.data());
    base_ = memory_.data() + (kAlignment - start % kAlignment) % kAlignment;
    bytes_ = bytes;
    zeroed_ = zeroed;
    if (!zeroed) std::memset(base_, junk, bytes);
  }

  // Populate fails from `bytes` on.
  void FailFrom(uint64_t bytes) {
    std::lock_guard lock(mu_);
    fail_from_ = bytes;
  }
  // Populate waits until Resume.
  void Pause() {
    std::lock_guard lock(mu_);
    paused_ = true;
  }
  void Resume() {
    std::lock_guard lock(mu_);
    paused_ = false;
    changed_.notify_all();
  }
  void WaitUntilPopulating() {
    std::unique_lock lock(mu_);
    changed_.wait(lock, [&] { return populating_; });
  }

  absl::Status Populate(uint64_t offset, uint64_t bytes) override {
    std::unique_lock lock(mu_);
    populating_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !paused_; });
    populating_ = false;
    if (offset + bytes > fail_from_)
      return ResourceExhausted("{} bytes at {}: this memory ends at {}", bytes, offset, fail_from_);
    return absl::OkStatus();
  }
  std::string Describe() const override { return "fake"; }

 private:
  static constexpr uint64_t kAlignment = 4096;
  std::vector<uint8_t> memory_;
  std::mutex mu_;
  std::condition_variable changed_;
  uint64_t fail_from_ = ~uint64_t{0};  // These are guarded by mu_.
  bool paused_ = false;
  bool populating_ = false;
};

}  // namespace firn
