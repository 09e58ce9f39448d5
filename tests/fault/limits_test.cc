// How far off the values of known blocks are in each class: what tests and `firn chaos` take for right is neither too
// little for what a daemon may answer, nor so much that anything passes.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/status.h"
#include "client/trial/known_blocks.h"
#include "tests/support/daemon_process.h"

namespace firn {
namespace {

using firnkv::Precision;

TEST(Limits, HoldForEveryClassWithRoomToSpare) {
  DaemonProcess daemon({.extra_toml = "[store]\npromote_on_get = false\n"});
  absl::Status started = daemon.Start();
  ASSERT_TRUE(started.ok()) << started;
  auto client = daemon.Connect();
  std::map<Precision, std::array<double, 2>> largest;  // The error of a block; the difference of a value.
  for (const KnownModel& model : ChaosModels()) {
    auto ns = client->RegisterNamespace(model.Facts());
    ASSERT_TRUE(ns.ok()) << ns.status();
    for (uint64_t number = 240; number < 300; ++number) {
      ASSERT_TRUE(PutKnown(*client, *ns, model, number, {.ack = firnkv::AckLevel::kDurable}).status.ok());
      const firnkv::BlockKey key = KnownKey(number);
      std::vector<uint16_t> expected = KnownValues(model, number), values(expected.size());
      auto look = [&] {
        auto got = GetKnownValues(*client, *ns, model, number, values);
        ASSERT_TRUE(got.status.ok()) << got.status;
        auto& [error, difference] = largest[got.served.Min()];
        error = std::max(error, RelativeError(expected, values));
        difference = std::max(difference, LargestDifference(expected, values));
      };
      look();
      ASSERT_TRUE((*client->Demote(*ns, std::span(&key, 1), "warm"))[0].status.ok());
      look();
      ASSERT_TRUE((*client->Demote(*ns, std::span(&key, 1), "cold"))[0].status.ok());
      look();
      ASSERT_TRUE(
          (*client->Degrade(*ns, std::span(&key, 1), "cold", {Precision::kInt2, Precision::kInt2}))[0].status.ok());
      look();
    }
  }
  for (const auto& [precision, seen] : largest) {
    std::printf("%s: error %.4f, largest difference %.4f\n", std::string(PrecisionName(precision)).c_str(), seen[0],
                seen[1]);
    EXPECT_LE(seen[0], 0.95 * ErrorLimit(precision)) << PrecisionName(precision);
    EXPECT_LE(seen[1], 0.95 * DifferenceLimit(precision)) << PrecisionName(precision);
  }
  EXPECT_EQ(largest.size(), 4u);
}

}  // namespace
}  // namespace firn
