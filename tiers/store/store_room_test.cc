// Who waits for room, in what order, and for how long.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "tiers/store/store_harness_test_util.h"

namespace firn {
namespace {

// Calls that each begin several puts, at the same time: whoever has waited longest gets all of them, so that no two
// hold what the other waits for.
TEST(StoreRoom, RoomIsGivenByTurns) {
  StoreHarness h({.hot_bytes = 4 * kTestBlockBytes});
  using Begun = absl::StatusOr<std::unique_ptr<InFlightPut>>;
  std::map<uint64_t, Begun> begun;
  auto begin = [&](uint64_t key, uint64_t turn) {
    PutSpec spec = h.Spec(key);
    spec.turn = turn;
    h.store->BeginPutWhenRoom(spec, h.clock.NowNs() + 1'000'000'000,
                              [&, key](Begun put) { begun.emplace(key, std::move(put)); });
  };
  std::array<uint64_t, 5> turns{};
  for (uint64_t& turn : turns) turn = h.store->NewTurn();
  for (uint64_t key : {10, 20, 11, 21}) begin(key, turns[key / 10]);
  ASSERT_EQ(begun.size(), 4u);
  for (const auto& [key, put] : begun) ASSERT_TRUE(put.ok()) << key << Message(put.status());
  for (uint64_t key : {40, 30, 41, 31}) begin(key, turns[key / 10]);
  begin(12, turns[1]);  // Before those who have waited longer and hold nothing.
  begin(50, 0);
  h.Settle();
  ASSERT_EQ(begun.size(), 4u);
  for (uint64_t key : {20, 21}) begun.erase(key);
  h.Settle();
  EXPECT_TRUE(begun.contains(12));
  EXPECT_TRUE(begun.contains(30));
  EXPECT_EQ(begun.size(), 4u);
  for (uint64_t key : {10, 11, 12}) begun.erase(key);
  h.Settle();
  for (uint64_t key : {30, 31, 40, 41}) EXPECT_TRUE(begun.contains(key) && begun.at(key).ok()) << key;
  EXPECT_EQ(begun.size(), 4u);
  h.clock.AdvanceMs(2000);
  h.store->Tick();
  h.Settle();
  ASSERT_TRUE(begun.contains(50)) << "its time was up";
  EXPECT_EQ(begun.at(50).status().code(), absl::StatusCode::kResourceExhausted);
  begun.clear();
  h.ExpectConsistent();
}

TEST(StoreRoom, WhoeverWaitsForRoomIsAnsweredInTime) {
  StoreHarness h({.hot_bytes = 2 * kTestBlockBytes});
  std::vector<std::unique_ptr<InFlightPut>> held;
  for (uint64_t key : {1, 2}) held.push_back(*h.store->BeginPut(h.Spec(key)));
  bool first = false, second = false;
  h.store->BeginPutWhenRoom(h.Spec(3), h.clock.NowNs() + 60'000'000'000, [&](auto) { first = true; });
  h.store->BeginPutWhenRoom(h.Spec(4), h.clock.NowNs() + 100'000'000,
                            [&](auto put) { second = put.status().code() == absl::StatusCode::kResourceExhausted; });
  for (int i = 0; i < 10; ++i) {
    h.Settle();
    h.clock.AdvanceMs(50);
    h.store->Tick();
  }
  h.Settle();
  EXPECT_TRUE(second);
  EXPECT_FALSE(first);
  held.clear();
  h.Settle();
  EXPECT_TRUE(first);
}

// A call does not get its puts before all are answered: what it holds itself would never come back.
TEST(StoreRoom, ACallDoesNotWaitForRoomThatItHolds) {
  StoreHarness h({.hot_bytes = 2 * kTestBlockBytes});
  const uint64_t turn = h.store->NewTurn();
  std::vector<absl::Status> answers;
  std::vector<std::unique_ptr<InFlightPut>> leases;
  for (uint64_t key = 1; key <= 4; ++key) {
    PutSpec spec = h.Spec(key);
    spec.turn = turn;
    h.store->BeginPutWhenRoom(spec, h.clock.NowNs() + 60'000'000'000, [&](auto put) {
      answers.push_back(put.status());
      if (put.ok()) leases.push_back(*std::move(put));
    });
  }
  h.Settle();
  ASSERT_EQ(answers.size(), 4u);
  EXPECT_EQ(leases.size(), 2u);
  EXPECT_EQ(answers[3].code(), absl::StatusCode::kResourceExhausted);
}

// What is there says so at once, however many wait for room.
TEST(StoreRoom, ABlockThatIsThereNeedsNoRoom) {
  StoreHarness h({.hot_bytes = 2 * kTestBlockBytes});
  ASSERT_TRUE(h.Put(1).ok());
  auto held = h.store->BeginPut(h.Spec(2));
  ASSERT_TRUE(held.ok());
  SessionId session = h.store->OpenSession("tenant");
  ASSERT_TRUE(h.store->Pin(h.ns, TestKey(1), session).ok());
  h.store->BeginPutWhenRoom(h.Spec(3), h.clock.NowNs() + 60'000'000'000, [](auto) {});
  h.Settle();
  std::optional<absl::Status> answer;
  h.store->BeginPutWhenRoom(h.Spec(1), h.clock.NowNs() + 60'000'000'000, [&](auto put) { answer = put.status(); });
  h.Settle();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->code(), absl::StatusCode::kAlreadyExists) << *answer;
}

// A tier that gives room back just after it had none for somebody, as another thread would.
class GivingTier final : public FakeTier {
 public:
  GivingTier(FakeTierOptions options, std::function<void()>* once) : FakeTier(std::move(options)), once_(once) {}

 protected:
  absl::StatusOr<std::unique_ptr<Draft>> ReserveImpl(const RecordLayout& layout) override {
    auto draft = FakeTier::ReserveImpl(layout);
    if (!draft.ok() && *once_) std::exchange(*once_, nullptr)();
    return draft;
  }

 private:
  std::function<void()>* const once_;
};

TEST(StoreRoom, RoomThatComesWhileTheOnlyWaiterIsTriedIsSeen) {
  std::function<void()> once;
  StoreHarness h(
      {.hot_bytes = 2 * kTestBlockBytes, .make_tier = [&](const std::string& name, uint64_t bytes, bool persistent) {
         return std::make_unique<GivingTier>(
             FakeTierOptions{.name = name, .capacity_bytes = bytes, .persistent = persistent}, &once);
       }});
  std::vector<std::unique_ptr<InFlightPut>> held;
  for (uint64_t key : {1, 2}) held.push_back(*h.store->BeginPut(h.Spec(key)));
  bool got = false;
  h.store->BeginPutWhenRoom(h.Spec(3), h.clock.NowNs() + 60'000'000'000, [&](auto put) { got = put.ok(); });
  h.Settle();
  ASSERT_FALSE(got);
  once = [&] { held[0].reset(); };
  h.store->Tick();
  h.Settle();
  EXPECT_TRUE(got) << "without another tick";
  EXPECT_EQ(once, nullptr);
}

}  // namespace
}  // namespace firn
