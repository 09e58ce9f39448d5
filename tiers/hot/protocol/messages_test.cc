#include "tiers/hot/protocol/messages.h"

#include <gtest/gtest.h>

#include "base/status.h"

namespace firn::gpu {
namespace {

std::vector<Message> Samples() {
  Job copy{7, Lane::kStore, CopyJob{{{0, 4096, 10}, {2, 1, 5}}, {{1, 0, 15}}}};
  RecodeJob recode;
  recode.source_header = {1, 2, 3};
  recode.target_header = {4};
  recode.source[3] = {{0, 0, 64}};
  recode.target[kRunIds - 1] = {{1, 8, 8}, {1, 16, 8}};
  DeviceRows rows;
  rows.memory = {DeviceHandle{1, 2, 3}, DeviceHandle{4}};
  rows.event[63] = 9;
  rows.parts[0] = {{{1, 8}, {0, 16}}, {7, 9}, 16, 4096, 256, 128};
  Job import{9, Lane::kImport, ImportJob{{5}, rows, {}}};
  std::get<ImportJob>(import.work).target[10] = {{0, 4096, 32}};
  Job exported{10, Lane::kServe, ExportJob{{6, 6}, {}, rows}};
  std::get<ExportJob>(exported.work).source[0] = {{2, 0, 8}};
  return {std::move(import),
          std::move(exported),
          Hello{.device = 3, .pool_bytes = 1, .scratch_bytes = 2},
          Ready{.pool_bytes = 5, .device_bytes = 9, .device = "a GPU"},
          MapRegion{2, 100, 50},
          RegionUsable{2, 60},
          ArtifactData{{9, 8, 7}},
          std::move(copy),
          Job{8, Lane::kDemote, std::move(recode)},
          JobDone{7, DataLoss("run {}", 3), {1}},
          Fatal{700, "an illegal address"}};
}

TEST(GpuMessages, EveryMessageComesBackAsItWas) {
  for (const Message& message : Samples()) {
    std::vector<uint8_t> bytes = SerializeMessage(message);
    auto parsed = ParseMessage(TypeOf(message), bytes);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, message) << static_cast<int>(TypeOf(message));
  }
}

TEST(GpuMessages, ShortLongAndUnknownOnesAreRefused) {
  for (const Message& message : Samples()) {
    std::vector<uint8_t> bytes = SerializeMessage(message);
    for (size_t length = 0; length < bytes.size(); ++length) {
      EXPECT_FALSE(ParseMessage(TypeOf(message), ByteSpan(bytes).first(length)).ok()) << length;
    }
    bytes.push_back(0);
    EXPECT_FALSE(ParseMessage(TypeOf(message), bytes).ok());
  }
  EXPECT_FALSE(ParseMessage(static_cast<MessageType>(99), {}).ok());
  ByteWriter job;
  job.Write<uint64_t>(1);
  job.Write<uint8_t>(0);
  job.Write<uint8_t>(0);
  job.Write<uint32_t>(kPlacesMax + 1);
  auto parsed = ParseMessage(MessageType::kJob, job.bytes());
  EXPECT_NE(firn::Message(parsed.status()).find(std::to_string(kPlacesMax)), std::string::npos) << parsed.status();
}

TEST(GpuMessages, JobsNameOnlyWhatThereIs) {
  SpaceBytes spaces{};
  spaces[0] = 1000;
  spaces[1] = 100;
  auto copy = [&](Place from, Place to) { return CheckJob({1, Lane::kServe, CopyJob{{from}, {to}}}, spaces); };
  EXPECT_TRUE(copy({0, 900, 100}, {1, 0, 100}).ok());
  EXPECT_FALSE(copy({0, 901, 100}, {1, 0, 100}).ok()) << "past the pool";
  EXPECT_FALSE(copy({0, ~uint64_t{0}, 100}, {1, 0, 100}).ok()) << "an offset that wraps";
  EXPECT_FALSE(copy({0, 0, ~uint64_t{0}}, {1, 0, 100}).ok());
  EXPECT_FALSE(copy({2, 0, 1}, {1, 0, 1}).ok()) << "a region that is not there";
  EXPECT_FALSE(copy({kRegionsMax, 0, 1}, {1, 0, 1}).ok());
  EXPECT_FALSE(copy({0, 0, 10}, {1, 0, 11}).ok()) << "sides that differ";
  RecodeJob recode;
  recode.target[0] = {{1, 99, 2}};
  EXPECT_FALSE(CheckJob({1, Lane::kDemote, recode}, spaces).ok());
}

}  // namespace
}  // namespace firn::gpu
