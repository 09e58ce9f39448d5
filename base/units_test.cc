#include "base/units.h"

#include <gtest/gtest.h>

#include "base/status.h"

namespace firn {
namespace {

TEST(Units, SizesNeedAUnit) {
  EXPECT_EQ(*ParseBytes("64GiB"), 64 * kGiB);
  EXPECT_EQ(*ParseBytes("1.5 GB"), 1'500'000'000u);
  EXPECT_EQ(*ParseBytes("0B"), 0u);
  for (const char* bad : {"64", "", "GiB", "-1GiB", "1.5B", "64gb", "64 GiBs", "1e30TiB", "nan B", "inf B"}) {
    absl::StatusOr<uint64_t> parsed = ParseBytes(bad);
    EXPECT_FALSE(parsed.ok()) << bad;
    EXPECT_NE(Message(parsed.status()).find(bad), std::string::npos) << Message(parsed.status());
  }
}

TEST(Units, Durations) {
  EXPECT_EQ(*ParseDurationMs("250ms"), 250);
  EXPECT_EQ(*ParseDurationMs("2 h"), 7'200'000);
  EXPECT_FALSE(ParseDurationMs("10").ok());
}

TEST(Units, Readable) {
  EXPECT_EQ(FormatBytes(512), "512 B");
  EXPECT_EQ(FormatBytes(1536 * kMiB), "1.50 GiB");
}

}  // namespace
}  // namespace firn
