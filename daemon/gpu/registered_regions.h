// The parent's memory as a GPU reaches it: registered piece by piece in the background, so that serving need not wait.
//
// Until a piece is registered, copies from and to it go by way of the driver's own buffers: slower, and right. Copies
// must not straddle two pieces (Split). Threads: Add and SetUsable by one thread, Split by any; registering runs on a
// thread of its own. Ownership: what is registered stays so until the process ends.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "tiers/hot/protocol/messages.h"

namespace firn::gpu {

class RegisteredRegions {
 public:
  static constexpr uint64_t kPieceBytes = uint64_t{256} << 20;

  explicit RegisteredRegions(int device);
  ~RegisteredRegions();
  void Add(uint32_t region, uint8_t* base, uint64_t bytes);
  void SetUsable(uint32_t region, uint64_t usable_bytes);
  uint8_t* base(uint32_t region) const { return bases_[region]; }
  // How many bytes from the front are registered; fewer than could be once a piece was refused.
  uint64_t registered(uint32_t region) const { return registered_[region].load(std::memory_order_acquire); }
  // Everything that is usable is registered.
  bool idle() const;
  // How much of [offset, offset + bytes) one copy may take.
  static uint64_t Split(uint64_t offset, uint64_t bytes) { return std::min(bytes, kPieceBytes - offset % kPieceBytes); }

 private:
  struct Piece {
    uint8_t* base = nullptr;
    uint64_t bytes = 0;
    uint32_t region = 0;
  };
  void Run(int device);

  std::array<uint8_t*, kRegionsMax> bases_{};
  std::array<uint64_t, kRegionsMax> bytes_{}, queued_{};  // What of each has been queued for registering.
  std::array<std::atomic<uint64_t>, kRegionsMax> registered_{};
  mutable std::mutex mu_;
  std::condition_variable changed_;
  // Guarded by mu_.
  std::deque<Piece> pieces_;
  bool busy_ = false, stopping_ = false;
  std::thread thread_;
};

}  // namespace firn::gpu
