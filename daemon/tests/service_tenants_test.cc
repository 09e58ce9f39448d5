// Tenants: nobody hits another's blocks, whatever is asked for, and no clock tells whether another has them.
//
// FIRN_TENANT_PROBES sets how many keys are asked for (default 100,000). How well the time of an answer tells blocks
// that another tenant has from blocks that nobody has is printed as the area under the ROC curve, 0.5 being chance; a
// bound on it is for machines with nothing else to do: FIRN_TENANT_AUC=0.55.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "daemon/tests/service_harness_test_util.h"

namespace firn {
namespace {

constexpr uint32_t kOwned = 256, kBatch = 1000;

std::string Owned(uint64_t number) { return "owned " + std::to_string(number % kOwned); }

class Tenants : public testing::Test {
 protected:
  Tenants() : owner(harness.client.get(), facts), stranger(harness.AddListener("stranger")), theirs(&stranger, facts) {
    for (uint64_t i = 0; i < kOwned; ++i) {
      EXPECT_EQ(owner.Put(Owned(i), i, 4).outcome(), v1::PUT_OUTCOME_STORED);
    }
  }
  // How many of the keys the stranger is told to be there.
  uint64_t Hits(const std::vector<std::string>& keys, const std::string& fingerprint) {
    v1::ExistsRequest request;
    request.set_namespace_fingerprint(fingerprint);
    for (const std::string& key : keys) *request.add_keys() = OpaqueKey(key);
    v1::ExistsResponse response;
    absl::Status status = stranger.Call("KvStore/Exists", request, &response);
    if (!status.ok()) {
      EXPECT_TRUE(absl::IsNotFound(status)) << status;
      return 0;
    }
    return static_cast<uint64_t>(std::count_if(response.blocks().begin(), response.blocks().end(),
                                               [](const auto& block) { return block.found(); }));
  }

  const v1::NamespaceFacts facts = FactsOf(2, 2, 32, 32, 4);
  ServiceHarness harness;
  ApiClient owner;
  RawClient stranger;
  ApiClient theirs;
};

TEST_F(Tenants, NoProbeHitsWhatAnotherHas) {
  const char* text = std::getenv("FIRN_TENANT_PROBES");
  const uint64_t probes = text != nullptr ? std::strtoull(text, nullptr, 10) : 100'000;
  uint64_t asked = 0, hits = 0;
  for (uint64_t number = 0; asked < probes; ++number) {
    std::vector<std::string> keys;
    for (uint32_t i = 0; i < kBatch; ++i) keys.push_back(Owned(number * kBatch + i));
    asked += keys.size();
    // In a namespace of their own with the same facts, and by the fingerprint of the owner's.
    hits += Hits(keys, number % 2 == 0 ? theirs.fingerprint() : owner.fingerprint());
  }
  EXPECT_EQ(hits, 0u) << "of " << asked;
  for (uint64_t i = 0; i < 16; ++i) EXPECT_TRUE(absl::IsNotFound(theirs.Get(Owned(i)).status)) << i;
  // The owner has them all.
  for (uint64_t i = 0; i < kOwned; ++i) EXPECT_TRUE(owner.Exists(Owned(i))) << i;
}

// The chance that an answer about a block of another tenant takes longer than one about a block of nobody.
double AreaUnderCurve(std::vector<std::pair<int64_t, bool>> times) {
  std::sort(times.begin(), times.end());
  double ranks = 0, owned = 0;
  for (size_t i = 0; i < times.size();) {
    size_t end = i;
    while (end < times.size() && times[end].first == times[i].first) ++end;
    const double rank = (static_cast<double>(i + end - 1)) / 2 + 1;  // Ties share theirs.
    for (; i < end; ++i) {
      if (times[i].second) ranks += rank, owned += 1;
    }
  }
  const double others = static_cast<double>(times.size()) - owned;
  return (ranks - owned * (owned + 1) / 2) / (owned * others);
}

TEST_F(Tenants, TimeTellsNothingOfAnother) {
  std::mt19937_64 random(11);
  std::vector<std::pair<int64_t, bool>> times;
  for (int i = -200; i < 4000; ++i) {
    const bool owned = random() % 2 == 0;
    const std::string key = owned ? Owned(random()) : "nobody's " + std::to_string(random() % kOwned);
    const auto start = std::chrono::steady_clock::now();
    ASSERT_EQ(Hits({key}, theirs.fingerprint()), 0u);
    const auto elapsed = std::chrono::steady_clock::now() - start;
    if (i >= 0) times.emplace_back(std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count(), owned);
  }
  const double area = AreaUnderCurve(times);
  std::printf("area under the curve: %.3f over %zu answers\n", area, times.size());
  if (const char* bound = std::getenv("FIRN_TENANT_AUC")) {
    EXPECT_LE(std::max(area, 1 - area), std::strtod(bound, nullptr));
  }
}

}  // namespace
}  // namespace firn
