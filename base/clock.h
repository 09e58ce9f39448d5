// Time, as a seam: tests run on a FakeClock.
#pragma once

#include <atomic>
#include <cstdint>

namespace firn {

class Clock {
 public:
  virtual ~Clock() = default;
  // Monotonic; for ages, deadlines and rates. Never compared across processes.
  virtual int64_t NowNs() const = 0;
  // Wall clock, milliseconds since the Unix epoch; for TTLs that must survive a restart.
  virtual int64_t UnixMs() const = 0;

  static const Clock* Real();
};

// Moves only when told to. Thread-safe.
class FakeClock final : public Clock {
 public:
  int64_t NowNs() const override { return now_ns_.load(); }
  int64_t UnixMs() const override { return unix_base_ms_.load() + now_ns_.load() / 1'000'000; }
  void AdvanceMs(int64_t ms) { now_ns_ += ms * 1'000'000; }
  // A wall clock that jumps, as NTP and operators make it do; the monotonic clock stays.
  void JumpUnixMs(int64_t ms) { unix_base_ms_ += ms; }

 private:
  std::atomic<int64_t> now_ns_{1'000'000'000};
  std::atomic<int64_t> unix_base_ms_{1'700'000'000'000};
};

}  // namespace firn
