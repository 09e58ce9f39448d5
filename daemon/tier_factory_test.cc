// What a start makes of a cold tier's directory that was damaged meanwhile.
#include "daemon/tier_factory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "base/status.h"
#include "base/units.h"
#include "tiers/conformance/test_blocks.h"
#include "tiers/conformance/tier_conformance.h"

namespace firn {
namespace {

namespace fs = std::filesystem;

EncodedBlock Block(uint64_t number) {
  TestBlockSpec spec{
      "block", {.layers = 4, .heads = 2, .k_width = 64, .v_width = 64, .tokens = 4}, CodecFamily::kNested};
  return MakeTestBlock(spec, TestIdentity(number), number);
}

class ColdDirectoryTest : public ::testing::Test, public TierHarness {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "firn-factory-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    settings_.name = "cold";
    settings_.medium = Medium::kNvme;
    settings_.capacity_bytes = 64 * kMiB;
    settings_.path = pattern;
  }
  void TearDown() override {
    opened_ = OpenedTier();
    fs::remove_all(settings_.path);
  }
  Tier& tier() override { return *opened_.cold; }

  absl::Status Open() {
    FIRN_ASSIGN_OR_RETURN(opened_, OpenTier(settings_, {}, &executor_, Clock::Real()));
    return absl::OkStatus();
  }
  absl::Status Close() {
    Awaited<absl::Status> closed;
    opened_.cold->Close(closed.Done());
    absl::Status status = closed.Wait(this).value_or(InternalError("never closed"));
    opened_.copies.clear();
    opened_ = OpenedTier();
    return status;
  }
  std::multiset<Digest> Keys() const {
    std::multiset<Digest> keys;
    for (const RecoveredCopy& copy : opened_.copies) keys.insert(copy.identity.key);
    return keys;
  }

  ThreadPoolExecutor executor_{2};
  TierSettings settings_;
  OpenedTier opened_;
};

// One byte of each file that holds rows. It opens, and is found out when the rows are read.
size_t FlipAByte(const std::string& index, int eighth) {
  size_t flipped = 0;
  for (const auto& entry : fs::directory_iterator(index)) {
    std::string name = entry.path().filename().string();
    if ((!name.ends_with(".sst") && !name.ends_with(".log")) || entry.file_size() < 64) continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    auto at = static_cast<std::streamoff>(entry.file_size() * static_cast<uint64_t>(eighth) / 8 + 20);
    file.seekg(at);
    char byte = static_cast<char>(~file.get());
    file.seekp(at);
    file.put(byte);
    ++flipped;
  }
  return flipped;
}

TEST_F(ColdDirectoryTest, ADamagedByteOfTheIndexCostsNothingAndResurrectsNothing) {
  ASSERT_TRUE(Open().ok());
  std::multiset<Digest> kept;
  for (uint64_t i = 0; i < 120; ++i) {
    EncodedBlock block = Block(i);
    auto draft = tier().Reserve(block.Layout(block.present));
    ASSERT_TRUE(draft.ok()) << draft.status();
    tier().Fill(draft->get(), block);
    Awaited<absl::StatusOr<CopyPtr>> copy;
    tier().Commit(*std::move(draft), block.header, {}, copy.Done());
    auto put = copy.Wait(this);
    ASSERT_TRUE(put.has_value() && put->ok());
    if (i % 3 == 0) {
      tier().Forget(**put, block.header->identity);
    } else {
      kept.insert(block.header->identity.key);
    }
  }
  Awaited<absl::Status> put_fact;
  opened_.cold->PutFact({"plan", "one", {1, 2, 3}}, put_fact.Done());
  ASSERT_TRUE(put_fact.Wait(this)->ok());
  Awaited<absl::Status> flushed;
  tier().Flush(flushed.Done());
  ASSERT_TRUE(flushed.Wait(this)->ok());
  ASSERT_TRUE(Close().ok());
  bool rebuilt = false;
  for (int eighth = 0; eighth < 8; ++eighth) {
    ASSERT_TRUE(Open().ok());  // Moves what the write-ahead log has into tables.
    ASSERT_TRUE(Close().ok());
    ASSERT_GT(FlipAByte(settings_.path + "/index", eighth), 0u);
    absl::Status status = Open();
    ASSERT_TRUE(status.ok()) << eighth << " eighths in: " << status;
    EXPECT_EQ(Keys(), kept) << eighth;
    EXPECT_EQ(opened_.facts.size(), 1u) << eighth;
    rebuilt = rebuilt || opened_.report.rebuilt;
    ASSERT_TRUE(Close().ok());
  }
  EXPECT_TRUE(rebuilt);
}

}  // namespace
}  // namespace firn
