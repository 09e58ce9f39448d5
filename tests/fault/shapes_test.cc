// Blocks of every size and shape through a real daemon, down the whole chain: what was put comes back bit for bit, then
// within the error of the class that each tier states, also after a kill -9.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/status.h"
#include "client/trial/known_blocks.h"
#include "tests/support/daemon_process.h"
#include "tests/support/observe.h"

namespace firn {
namespace {

constexpr uint32_t kBlockTokens = 64;
constexpr uint32_t kSinks = 4;  // Of the default plan: kept exact wherever the block goes.

struct Shape {
  const char* what;
  uint32_t layers, heads, k_width, v_width, block_tokens, tokens;
};

// A namespace and a block of it, whose values follow from its number.
class Subject {
 public:
  Subject(firnkv::Client& client, const Shape& shape, uint64_t number)
      : client_(client), tokens_(shape.tokens), key_(KnownKey(number)) {
    firnkv::NamespaceFacts facts;
    facts.model_id = shape.what;
    facts.layer_last = shape.layers;
    facts.kv_heads = shape.heads;
    facts.k_width = shape.k_width;
    facts.v_width = shape.v_width;
    facts.block_tokens = shape.block_tokens;
    auto registered = client.RegisterNamespace(facts);
    EXPECT_TRUE(registered.ok()) << registered.status();
    if (registered.ok()) ns_ = *registered;
    values_ = KnownValues((ns_.KBytes(tokens_) + ns_.VBytes(tokens_)) / 2, number);
  }

  firnkv::PutResult Put() {
    const auto* bytes = reinterpret_cast<const uint8_t*>(values_.data());
    firnkv::PutItem item{.key = key_, .tokens = tokens_};
    item.parts.k = firnkv::SourcePieces(bytes, ns_.KBytes(tokens_));
    item.parts.v = firnkv::SourcePieces(bytes + ns_.KBytes(tokens_), ns_.VBytes(tokens_));
    auto results = client_.Put(ns_, std::span(&item, 1));
    EXPECT_TRUE(results.ok()) << results.status();
    return results.ok() ? std::move(results->front()) : firnkv::PutResult{.status = results.status()};
  }

  // As FP16; its relative error goes to `error`.
  firnkv::GetResult Get(double* error, firnkv::Precision most = firnkv::Precision::kExact) {
    std::vector<uint16_t> values(values_.size());
    auto* bytes = reinterpret_cast<uint8_t*>(values.data());
    firnkv::GetItem item{.key = key_};
    item.parts.k = firnkv::TargetPieces(bytes, ns_.KBytes(tokens_));
    item.parts.v = firnkv::TargetPieces(bytes + ns_.KBytes(tokens_), ns_.VBytes(tokens_));
    firnkv::GetOptions options{.representation = firnkv::Representation::kFp16, .most = {most, most}};
    auto results = client_.Get(ns_, std::span(&item, 1), options);
    if (!results.ok()) return {.status = results.status()};
    *error = RelativeError(values_, values);
    return std::move(results->front());
  }

  // The block is served from `tier` in the class `coded`, and whole: its error is not above what that class allows.
  void ExpectServed(uint32_t tier, firnkv::Precision coded, firnkv::Precision most = firnkv::Precision::kExact) {
    firnkv::Precision precision = tokens_ <= kSinks ? firnkv::Precision::kExact : coded;
    double error = 2;
    firnkv::GetResult got = Get(&error, most);
    ASSERT_TRUE(got.status.ok()) << got.status;
    EXPECT_EQ(got.served.k, precision) << firnkv::PrecisionName(got.served.k);
    // A part that the model does not have counts as exact.
    EXPECT_EQ(got.served.v, ns_.facts.v_width == 0 ? firnkv::Precision::kExact : precision);
    EXPECT_EQ(got.tier, tier);
    EXPECT_EQ(got.tokens, tokens_);
    EXPECT_EQ(got.k_bytes, ns_.KBytes(tokens_));
    EXPECT_EQ(got.v_bytes, ns_.VBytes(tokens_));
    EXPECT_LE(error, ErrorLimit(precision));
  }

  void Move(const std::string& tier, firnkv::Precision coded) {
    auto moved = client_.Demote(ns_, std::span(&key_, 1), tier);
    ASSERT_TRUE(moved.ok()) << moved.status();
    ASSERT_TRUE(moved->front().status.ok()) << tier << ": " << moved->front().status;
    EXPECT_EQ(moved->front().now.k, tokens_ <= kSinks ? firnkv::Precision::kExact : coded);
  }

 private:
  firnkv::Client& client_;
  const uint32_t tokens_;
  const firnkv::BlockKey key_;
  firnkv::Namespace ns_;
  std::vector<uint16_t> values_;  // K, then V.
};

// A Get must leave the block where it is, so that what is checked is the tier that was asked for.
DaemonOptions Chain(const std::string& hot, const std::string& warm, const std::string& cold) {
  DaemonOptions options;
  options.hot_capacity = hot;
  options.warm_capacity = warm;
  options.cold_capacity = cold;
  options.extra_toml = "[store]\npromote_on_get = false\n";
  return options;
}

void RunDown(Subject& subject) {
  firnkv::PutResult put = subject.Put();
  ASSERT_TRUE(put.status.ok() && put.stored) << put.status;
  ASSERT_NO_FATAL_FAILURE(subject.ExpectServed(0, firnkv::Precision::kExact));
  ASSERT_NO_FATAL_FAILURE(subject.Move("warm", firnkv::Precision::kInt8));
  ASSERT_NO_FATAL_FAILURE(subject.ExpectServed(1, firnkv::Precision::kInt8));
  ASSERT_NO_FATAL_FAILURE(subject.ExpectServed(1, firnkv::Precision::kInt2, firnkv::Precision::kInt2));
  ASSERT_NO_FATAL_FAILURE(subject.Move("cold", firnkv::Precision::kInt4));
  ASSERT_NO_FATAL_FAILURE(subject.ExpectServed(2, firnkv::Precision::kInt4));
}

void RunAll(const std::vector<Shape>& shapes, const DaemonOptions& options) {
  DaemonProcess daemon(options);
  absl::Status started = daemon.Start();
  ASSERT_TRUE(started.ok()) << started;
  auto client = daemon.Connect();
  for (size_t i = 0; i < shapes.size(); ++i) {
    SCOPED_TRACE(shapes[i].what);
    Subject subject(*client, shapes[i], i);
    ASSERT_NO_FATAL_FAILURE(RunDown(subject));
  }
  auto verified = client->Verify();
  ASSERT_TRUE(verified.ok()) << verified.status();
  EXPECT_TRUE(verified->consistent) << testing::PrintToString(verified->findings);
  daemon.KillNow();
  client.reset();
  started = daemon.Start();
  ASSERT_TRUE(started.ok()) << started;
  client = daemon.Connect();
  for (size_t i = 0; i < shapes.size(); ++i) {
    SCOPED_TRACE(std::string(shapes[i].what) + ", after a kill");
    Subject subject(*client, shapes[i], i);
    ASSERT_NO_FATAL_FAILURE(subject.ExpectServed(2, firnkv::Precision::kInt4));
    ASSERT_NO_FATAL_FAILURE(subject.ExpectServed(2, firnkv::Precision::kInt2, firnkv::Precision::kInt2));
  }
}

TEST(Shapes, C01_C39_sizes_from_two_kibibytes_to_sixteen_mebibytes) {
  RunAll({{"2 KiB", 1, 1, 32, 32, 16, 16},
          {"64 KiB", 2, 2, 64, 64, kBlockTokens, kBlockTokens},
          {"1 MiB", 8, 4, 128, 128, kBlockTokens, kBlockTokens},
          {"4 MiB", 32, 8, 128, 128, 32, 32},
          {"16 MiB", 32, 8, 128, 128, 128, 128}},
         Chain("32MiB", "32MiB", "256MiB"));
}

TEST(Shapes, C01_widths_heads_and_layers) {
  std::vector<Shape> shapes = {{"1 layer", 1, 8, 128, 128, kBlockTokens, kBlockTokens},
                               {"128 layers", 128, 2, 64, 64, kBlockTokens, kBlockTokens},
                               {"3 heads of 80", 4, 3, 80, 80, kBlockTokens, kBlockTokens},
                               {"7 heads of 80", 4, 7, 80, 80, kBlockTokens, kBlockTokens},
                               {"3 heads of 96", 4, 3, 96, 96, kBlockTokens, kBlockTokens},
                               {"7 heads of 96", 2, 7, 96, 96, kBlockTokens, kBlockTokens},
                               {"1 head of 576", 4, 1, 576, 576, kBlockTokens, kBlockTokens},
                               {"3 heads of 576", 3, 3, 576, 576, kBlockTokens, kBlockTokens},
                               {"1 layer of 7 heads of 96", 1, 7, 96, 96, kBlockTokens, kBlockTokens},
                               {"128 layers of 3 heads of 80", 128, 3, 80, 80, kBlockTokens, kBlockTokens}};
  RunAll(shapes, Chain("32MiB", "32MiB", "256MiB"));
}

TEST(Shapes, C04_v_absent_or_of_another_width) {
  RunAll({{"K of 576, no V", 4, 1, 576, 0, kBlockTokens, kBlockTokens},
          {"K of 576, no V, 61 layers", 61, 1, 576, 0, kBlockTokens, kBlockTokens},
          {"K of 80, no V, 3 heads, a tail", 2, 3, 80, 0, kBlockTokens, 17},
          {"K of 132, V of 576", 61, 1, 132, 576, kBlockTokens, kBlockTokens},
          {"K of 96, V of 80, 7 heads", 3, 7, 96, 80, kBlockTokens, kBlockTokens}},
         Chain("32MiB", "32MiB", "256MiB"));
}

TEST(Shapes, C05_tails) {
  RunAll({{"1 of 64", 2, 2, 64, 64, kBlockTokens, 1},
          {"4 of 64, all of them sinks", 2, 2, 64, 64, kBlockTokens, 4},
          {"5 of 64", 2, 2, 64, 64, kBlockTokens, 5},
          {"5 of 64, 3 heads of 80", 2, 3, 80, 80, kBlockTokens, 5},
          {"63 of 64, 7 heads of 96", 2, 7, 96, 96, kBlockTokens, 63},
          {"33 of 64, 128 layers", 128, 1, 128, 128, kBlockTokens, 33},
          {"65 of 256", 4, 4, 128, 128, 256, 65}},
         Chain("32MiB", "32MiB", "256MiB"));
}

// The segments of a tier of 64 MiB have 2 MiB: one plane of such a block is larger.
TEST(Shapes, C39_blocks_larger_than_a_cold_segment) {
  RunAll({{"16 MiB, one of many", 32, 8, 128, 128, 128, 128}, {"32 MiB", 32, 8, 128, 128, 256, 256}},
         Chain("64MiB", "64MiB", "64MiB"));
}

TEST(Shapes, C39_a_block_of_256_mebibytes) {
  std::vector<Shape> shapes = {{"256 MiB", 64, 8, 128, 128, 1024, 1024}};
  RunAll(shapes, Chain("320MiB", "192MiB", "256MiB"));
}

}  // namespace
}  // namespace firn
