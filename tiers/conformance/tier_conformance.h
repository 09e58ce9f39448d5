// The suite that every tier must pass, whatever its medium.
//
// A tier's test program lists ${FIRN_TIER_CONFORMANCE} among its sources, links firn_test_blocks, and says
//   INSTANTIATE_TEST_SUITE_P(Dram, TierConformance, testing::Values(TierKind{...}), TierKindName);
// Completions may come inside the call or later from other threads; the suite waits for either.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/status.h"
#include "tiers/conformance/test_blocks.h"
#include "tiers/tier.h"

namespace firn {

// One tier under test and whatever it stands on; destroyed after every test.
class TierHarness {
 public:
  virtual ~TierHarness() = default;
  virtual Tier& tier() = 0;
  // Called again and again while a test waits: a harness that runs its executor by hand runs a step of it. Any thread.
  virtual void Step() {}
  // Recounts everything the tier keeps count of; called when nothing is in flight.
  virtual absl::Status Audit() { return absl::OkStatus(); }
};

struct TierKind {
  std::string name;  // Letters and digits.
  // A fresh and empty tier with room for `capacity_bytes` at least.
  std::function<std::unique_ptr<TierHarness>(uint64_t capacity_bytes)> make;
  // A log makes room by giving up its oldest copies: it may take more than its capacity, and old copies may end.
  bool reclaims_by_itself = false;
  // Reads give bytes of their own, so a reader holds nothing of the tier's.
  bool reads_are_copies = false;
};

inline std::string TierKindName(const testing::TestParamInfo<TierKind>& info) { return info.param.name; }
inline void PrintTo(const TierKind& kind, std::ostream* out) { *out << kind.name; }

// A value that a completion will deliver.
template <typename T>
class Awaited {
 public:
  // What to hand to the tier as completion. The Awaited must not be copied and must live until Wait returns.
  auto Done() {
    return [state = state_](T value) {
      std::lock_guard lock(state->mu);
      state->value.emplace(std::move(value));
      state->arrived.notify_all();
    };
  }
  // Fails after a minute: a completion that never comes is a fault, however slow the machine.
  std::optional<T> Wait(TierHarness* harness) {
    for (int i = 0; i < 60'000; ++i) {
      harness->Step();
      std::unique_lock lock(state_->mu);
      if (state_->arrived.wait_for(lock, std::chrono::milliseconds(1), [&] { return state_->value.has_value(); })) {
        return std::move(state_->value);
      }
    }
    return std::nullopt;
  }

 private:
  struct State {
    std::mutex mu;
    std::condition_variable arrived;
    std::optional<T> value;  // Guarded by mu.
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// Blocking forms of the tier's calls, for tests.
absl::StatusOr<CopyPtr> CommitBlock(TierHarness* harness, const EncodedBlock& block, const CommitOptions& options = {});
absl::StatusOr<EncodedBlock> ReadBlock(TierHarness* harness, const CopyPtr& copy, const Identity& identity,
                                       RunMask runs = RunMask::All());
// Forgets the copy and drops the reference.
void DropCopy(TierHarness* harness, CopyPtr* copy, const Identity& identity);

class TierConformance : public testing::TestWithParam<TierKind> {
 protected:
  std::unique_ptr<TierHarness> Make(uint64_t capacity_bytes) { return GetParam().make(capacity_bytes); }
};

}  // namespace firn
