// A store over real tiers, in this process, for benchmarks of movement: opened as the daemon opens it, without the
// service.
//
// Threads: calls wait for their completion; one caller unless said otherwise. Units: blocks of kBlockTokens tokens of 8
// layers of 8 heads of 128 channels, K and V, FP16. Keys are numbers.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/config/config.h"
#include "daemon/runtime/asio_executor.h"
#include "daemon/startup.h"
#include "tests/bench/support/process.h"
#include "tiers/store/store.h"

namespace firn::bench {

inline constexpr uint32_t kLayers = 8, kHeads = 8, kWidth = 128, kBlockTokens = 64;
inline constexpr uint64_t kBlockBytes = uint64_t{kLayers} * kHeads * kWidth * kBlockTokens * 2 * 2;  // 2 MiB.

// The chain that is measured: every medium of this machine, in the order of the default chain.
enum BenchTier : uint8_t { kHot = 0, kWarm = 1, kCxl = 2, kCold = 3 };

class ChainStore {
 public:
  // The cold tier lives under `folder`; `block_tokens` is the size of the namespace's blocks.
  static absl::StatusOr<std::unique_ptr<ChainStore>> Open(const std::string& folder, uint32_t block_tokens);
  ~ChainStore();

  Store* store() { return store_.get(); }
  NamespaceId ns() const { return ns_; }
  uint64_t block_bytes() const { return kBlockBytes / kBlockTokens * block_tokens_; }
  size_t threads() const { return executor_->threads(); }

  static Digest Key(uint64_t number);
  absl::Status Put(uint64_t number);
  // Safe from any thread; decodes to FP16 into a buffer of the calling thread.
  absl::StatusOr<ClassPair> GetDecoded(uint64_t number);
  // Moves blocks [first, first + count), at most `in_flight` at a time, and waits for all.
  absl::Status Demote(uint64_t first, uint64_t count, uint8_t tier);
  absl::Status Degrade(uint64_t first, uint64_t count, uint8_t tier, PrecisionClass target);
  absl::Status Flush();
  void Clear();
  // Bytes of the copies of blocks [first, first + count) in a tier.
  absl::StatusOr<uint64_t> BytesIn(uint64_t first, uint64_t count, uint8_t tier);

 private:
  ChainStore();
  using MoveDone = absl::AnyInvocable<void(absl::StatusOr<ClassPair>)>;
  absl::Status MoveAll(uint64_t first, uint64_t count, const std::function<void(const Digest&, MoveDone)>& move);

  // Stands for CXL memory: a file system in memory where there is one, whose pages are never written back.
  TempFolder far_memory_;
  uint32_t block_tokens_ = 0;
  Config config_;
  std::unique_ptr<AsioExecutor> executor_, demotion_executor_;
  std::unique_ptr<Startup> startup_;
  std::unique_ptr<Store> store_;
  NamespaceId ns_ = 0;
  std::vector<uint8_t> values_;  // One block's, canonical.
  std::atomic<bool> stop_{false};
  std::thread ticker_;
};

}  // namespace firn::bench
