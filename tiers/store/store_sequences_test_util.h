// Sequences of blocks in a store, by number, under a plan with a recent window.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "tiers/store/store_harness_test_util.h"

namespace firn {

inline constexpr uint32_t kSequenceBlockTokens = 16;

class Sequences {
 public:
  explicit Sequences(uint32_t recent_tokens, HarnessOptions options = {}) : h(options) { SetWindow(recent_tokens); }

  void SetWindow(uint32_t tokens) {
    PrecisionPlan plan;
    plan.recent_tokens = tokens;
    EXPECT_EQ(h.Register(StoreHarness::Facts(), plan), h.ns);
  }
  // Puts a block behind another, or as the first of a sequence. Its key is its number.
  absl::Status Put(uint64_t key, std::optional<uint64_t> behind) {
    PutSpec spec = h.Spec(key);
    if (behind.has_value()) {
      spec.parent = TestKey(*behind);
      spec.first_token = first_token[*behind] + kSequenceBlockTokens;
    }
    first_token[key] = spec.first_token;
    return h.PutWhenRoom(spec, key).status();
  }
  // Blocks first, first + 1, ...
  void PutChain(uint64_t first, uint64_t blocks, std::optional<uint64_t> behind = {}) {
    for (uint64_t key = first; key < first + blocks; ++key) {
      absl::Status put = Put(key, behind);
      EXPECT_TRUE(put.ok()) << key << ": " << put;
      behind = key;
    }
  }
  // 0 to 2, or '-' where the block is not there.
  std::string Tiers(uint64_t first, uint64_t blocks) {
    std::string out;
    for (uint64_t key = first; key < first + blocks; ++key) {
      LocatedBlock located = h.store->Locate(h.ns, {TestKey(key)}, {})[0];
      out += located.state == BlockState::kPresent ? static_cast<char>('0' + located.tier) : '-';
    }
    return out;
  }
  bool There(uint64_t key) { return Tiers(key, 1) != "-"; }
  void ExpectExact(uint64_t first, uint64_t blocks) {
    for (uint64_t key = first; key < first + blocks; ++key) {
      LocatedBlock located = h.store->Locate(h.ns, {TestKey(key)}, {})[0];
      EXPECT_EQ(located.served, (ClassPair{PrecisionClass::kExact, PrecisionClass::kExact})) << key;
      EXPECT_EQ(located.tier, 0) << key;
    }
  }
  void Idle(int64_t seconds) {
    h.clock.AdvanceMs(seconds * 1000);
    h.store->Tick();
    h.Settle();
  }
  uint64_t Broken() const {
    uint64_t broken = 0;
    for (const TierStats& tier : h.store->Stats().tiers) broken += tier.recent_broken;
    return broken;
  }

  StoreHarness h;
  std::map<uint64_t, uint32_t> first_token;
};

inline HarnessOptions HotOf(uint64_t blocks) {
  HarnessOptions options;
  options.hot_bytes = kTestBlockBytes * blocks;
  return options;
}

}  // namespace firn
