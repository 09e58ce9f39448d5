#include "codecs/layout.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>

#include "base/status.h"

namespace firn {
namespace {

// What value stands where: every element of a block is different from its neighbours in every dimension.
uint64_t ValueAt(Part part, uint32_t layer, uint32_t head, uint32_t token, uint32_t channel) {
  uint64_t x = (static_cast<uint64_t>(part) << 60) ^ (uint64_t{layer} << 45) ^ (uint64_t{head} << 32) ^
               (uint64_t{token} << 18) ^ channel;
  return (x + 1) * 0x9E3779B97F4A7C15u >> 13;
}

std::vector<uint8_t> Canonical(const BlockShape& shape, Part part, uint32_t value_bytes) {
  PartShape p = shape.part(part);
  std::vector<uint8_t> out(p.values() * value_bytes);
  uint8_t* at = out.data();
  for (uint32_t l = 0; l < p.layers; ++l)
    for (uint32_t h = 0; h < p.heads; ++h)
      for (uint32_t t = 0; t < p.tokens; ++t)
        for (uint32_t c = 0; c < p.width; ++c, at += value_bytes) {
          uint64_t value = ValueAt(part, l, h, t, c);
          std::memcpy(at, &value, value_bytes);
        }
  return out;
}

// Writes the block into a caller's buffer by the definition of strides, one value at a time.
void Place(const CallerLayout& layout, const BlockShape& shape, uint32_t value_bytes, std::vector<uint8_t>* buffer) {
  for (Part part : kParts) {
    PartShape p = shape.part(part);
    const PartLayout& s = layout.part(part);
    for (uint32_t l = 0; l < p.layers; ++l)
      for (uint32_t h = 0; h < p.heads; ++h)
        for (uint32_t t = 0; t < p.tokens; ++t)
          for (uint32_t c = 0; c < p.width; ++c) {
            uint64_t value = ValueAt(part, l, h, t, c);
            uint64_t index =
                s.offset + l * s.layer_stride + h * s.head_stride + t * s.token_stride + c * s.channel_stride;
            std::memcpy(buffer->data() + index * value_bytes, &value, value_bytes);
          }
  }
}

// A run scattered over pieces of odd sizes, as arena pages would scatter it.
MutableRunBytes Pieces(std::vector<uint8_t>* bytes, std::mt19937_64* random) {
  MutableRunBytes run;
  MutableByteSpan rest(*bytes);
  while (!rest.empty()) {
    size_t count = std::min<size_t>(rest.size(), 1 + (*random)() % 977);
    run.Append(rest.first(count));
    rest = rest.subspan(count);
  }
  return run;
}

void ExpectRoundTrip(const CallerLayout& layout, const BlockShape& shape, DType dtype, uint64_t buffer_values) {
  constexpr uint64_t kSeed = 17;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937_64 random(kSeed);
  uint32_t value_bytes = DTypeBytes(dtype);
  ASSERT_TRUE(CheckLayout(layout, shape, dtype, buffer_values * value_bytes).ok())
      << CheckLayout(layout, shape, dtype, buffer_values * value_bytes);
  std::vector<uint8_t> caller(buffer_values * value_bytes, 0xA5);
  Place(layout, shape, value_bytes, &caller);
  std::vector<uint8_t> back(caller.size(), 0xA5);
  for (Part part : kParts) {
    std::vector<uint8_t> expected = Canonical(shape, part, value_bytes);
    std::vector<uint8_t> got(expected.size(), 0x11);
    ASSERT_TRUE(GatherPart(layout, shape, dtype, part, caller, Pieces(&got, &random)).ok());
    EXPECT_EQ(got, expected);
    ASSERT_TRUE(ScatterPart(layout, shape, dtype, part, Pieces(&got, &random), back).ok());
  }
  EXPECT_EQ(back, caller) << "values in their places, everything between untouched";
}

TEST(Layout, C17_layout_presets_place_every_value) {
  BlockShape shape{.layers = 3, .heads = 5, .k_width = 80, .v_width = 80, .tokens = 11};
  for (std::string_view order :
       {kOrderCanonical, kOrderKvFirst, kOrderBlockFirst, kOrderHeadsFirst, kOrderFusedToken, kOrderFusedHead,
        kOrderTransposed, std::string_view("DTLH2"), std::string_view("THL2D")}) {
    for (DType dtype : {DType::kFp16, DType::kBf16, DType::kFp8E4m3, DType::kBytes, DType::kFp32}) {
      SCOPED_TRACE(testing::Message() << order << " of " << DTypeName(dtype));
      auto layout = DenseLayout(order, shape, shape.tokens, dtype);
      ASSERT_TRUE(layout.ok()) << layout.status();
      ExpectRoundTrip(*layout, shape, dtype, shape.values());
    }
  }
}

TEST(Layout, C17_layout_presets_mean_what_engines_mean) {
  BlockShape shape{.layers = 2, .heads = 3, .k_width = 4, .v_width = 4, .tokens = 5};
  // [layers][2][tokens][heads][dim], written out.
  CallerLayout block_first = {.k = {0, 2 * 60, 4, 12, 1}, .v = {60, 2 * 60, 4, 12, 1}};
  EXPECT_EQ(*DenseLayout(kOrderBlockFirst, shape, 5, DType::kFp16), block_first);
  // [2][layers][tokens][heads][dim].
  CallerLayout kv_first = {.k = {0, 60, 4, 12, 1}, .v = {120, 60, 4, 12, 1}};
  EXPECT_EQ(*DenseLayout(kOrderKvFirst, shape, 5, DType::kFp16), kv_first);
  // [layers][tokens][heads][2 * dim].
  CallerLayout fused = {.k = {0, 120, 8, 24, 1}, .v = {4, 120, 8, 24, 1}};
  EXPECT_EQ(*DenseLayout(kOrderFusedHead, shape, 5, DType::kFp16), fused);
}

TEST(Layout, C17_layout_of_a_view_into_a_pool) {
  // Block 7 of a pool [2][blocks = 9][layers][tokens][heads][dim] with a padded head.
  BlockShape shape{.layers = 2, .heads = 3, .k_width = 10, .v_width = 10, .tokens = 4};
  uint64_t head = 16, token = 3 * head, layer = 4 * token, block = 2 * layer, part = 9 * block;
  CallerLayout layout = {.k = {7 * block, layer, head, token, 1}, .v = {part + 7 * block, layer, head, token, 1}};
  ExpectRoundTrip(layout, shape, DType::kFp16, 2 * part);
}

TEST(Layout, C17_layout_of_a_transposed_view_with_a_channel_stride) {
  // Every third value of a [layers][dim][tokens][heads] tensor.
  BlockShape shape{.layers = 2, .heads = 2, .k_width = 6, .v_width = 6, .tokens = 7};
  PartLayout k{.offset = 1, .layer_stride = 3 * 84, .head_stride = 3, .token_stride = 6, .channel_stride = 42};
  PartLayout v = k;
  v.offset = 2;
  ExpectRoundTrip({k, v}, shape, DType::kFp16, 3 * 168);
  // Long rows with a step: more than one bounce row.
  BlockShape wide{.layers = 1, .heads = 1, .k_width = 9000, .v_width = 9000, .tokens = 2};
  ExpectRoundTrip({{0, 0, 0, 18000 * 2, 2}, {1, 0, 0, 18000 * 2, 2}}, wide, DType::kFp16, 72000);
}

TEST(Layout, C17_layout_groups_of_different_shape_share_one_object) {
  // A hybrid model: three groups one after another in one buffer.
  const BlockShape groups[] = {{.layers = 4, .heads = 2, .k_width = 64, .v_width = 64, .tokens = 16},
                               {.layers = 2, .heads = 8, .k_width = 32, .v_width = 48, .tokens = 16},
                               {.layers = 1, .heads = 1, .k_width = 300, .v_width = 0, .tokens = 16}};
  uint64_t base = 0;
  for (const BlockShape& shape : groups) {
    auto layout = DenseLayout(kOrderFusedToken, shape, 16, DType::kBf16);
    ASSERT_TRUE(layout.ok()) << layout.status();
    layout->k.offset += base;
    layout->v.offset += base;
    base += shape.values();
    ExpectRoundTrip(*layout, shape, DType::kBf16, base);
  }
}

TEST(Layout, C04_mla_parts_of_different_width) {
  for (auto [k_width, v_width] : {std::pair{132u, 576u}, {576u, 0u}, {0u, 576u}}) {
    BlockShape shape{.layers = 61, .heads = 1, .k_width = k_width, .v_width = v_width, .tokens = 16};
    for (std::string_view order : {kOrderCanonical, kOrderBlockFirst, kOrderFusedToken, kOrderFusedHead}) {
      SCOPED_TRACE(testing::Message() << order << " " << k_width << "+" << v_width);
      auto layout = DenseLayout(order, shape, 16, DType::kBf16);
      ASSERT_TRUE(layout.ok()) << layout.status();
      ExpectRoundTrip(*layout, shape, DType::kBf16, shape.values());
    }
  }
  BlockShape shape{.layers = 61, .heads = 1, .k_width = 132, .v_width = 576, .tokens = 16};
  auto interleaved = DenseLayout("LTHD2", shape, 16, DType::kBf16);
  EXPECT_EQ(interleaved.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(Message(interleaved.status()).find("132"), std::string::npos) << interleaved.status();
  EXPECT_NE(Message(interleaved.status()).find("576"), std::string::npos) << interleaved.status();
}

TEST(Layout, C05_tail_uses_the_strides_of_the_whole_block) {
  BlockShape shape{.layers = 3, .heads = 4, .k_width = 24, .v_width = 40, .tokens = 5};
  for (std::string_view order : {kOrderCanonical, kOrderBlockFirst, kOrderFusedToken, kOrderHeadsFirst}) {
    SCOPED_TRACE(order);
    auto layout = DenseLayout(order, shape, 16, DType::kFp16);
    ASSERT_TRUE(layout.ok()) << layout.status();
    BlockShape whole = shape;
    whole.tokens = 16;
    ExpectRoundTrip(*layout, shape, DType::kFp16, whole.values());
  }
}

TEST(Layout, C05_tail_rows_are_zeroed_and_valid_ones_kept) {
  BlockShape shape{.layers = 3, .heads = 4, .k_width = 24, .v_width = 24, .tokens = 5};
  BlockShape whole = shape;
  whole.tokens = 16;
  for (std::string_view order : {kOrderBlockFirst, kOrderTransposed, kOrderFusedHead}) {
    SCOPED_TRACE(order);
    auto layout = DenseLayout(order, shape, 16, DType::kFp16);
    ASSERT_TRUE(layout.ok()) << layout.status();
    std::vector<uint8_t> caller(whole.values() * 2, 0xFF);  // Every value a NaN.
    Place(*layout, shape, 2, &caller);
    std::vector<uint8_t> expected(whole.values() * 2, 0);
    Place(*layout, shape, 2, &expected);
    ASSERT_TRUE(ZeroTail(*layout, shape, 16, DType::kFp16, caller).ok());
    EXPECT_EQ(caller, expected);
  }
}

TEST(Layout, RefusesWhatReachesPastTheBufferAndNamesBothNumbers) {
  BlockShape shape{.layers = 2, .heads = 2, .k_width = 8, .v_width = 8, .tokens = 4};
  auto layout = *DenseLayout(kOrderBlockFirst, shape, 4, DType::kFp16);
  std::vector<uint8_t> caller(shape.values() * 2 - 1);
  std::vector<uint8_t> canonical(shape.part(Part::kV).values() * 2);
  for (const absl::Status& status :
       {CheckLayout(layout, shape, DType::kFp16, caller.size()),
        GatherPart(layout, shape, DType::kFp16, Part::kV, caller, MutableRunBytes(canonical)),
        ScatterPart(layout, shape, DType::kFp16, Part::kV, RunBytes(canonical), caller)}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(Message(status).find("512"), std::string::npos) << status;
    EXPECT_NE(Message(status).find("511"), std::string::npos) << status;
  }
  EXPECT_FALSE(ZeroTail(layout, shape, 5, DType::kFp16, caller).ok());
}

TEST(Layout, RefusesStridesThatOverflow) {
  BlockShape shape{.layers = 2, .heads = 2, .k_width = 8, .v_width = 0, .tokens = 4};
  constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();
  for (uint64_t stride : {kHuge, kHuge / 2, kHuge / 2 + 1, kHuge / 3, uint64_t{1} << 63}) {
    for (uint64_t PartLayout::*member : {&PartLayout::offset, &PartLayout::layer_stride, &PartLayout::head_stride,
                                         &PartLayout::token_stride, &PartLayout::channel_stride}) {
      auto layout = *DenseLayout(kOrderCanonical, shape, 4, DType::kFp16);
      layout.k.*member = stride;
      EXPECT_EQ(CheckLayout(layout, shape, DType::kFp16, 1 << 20).code(), absl::StatusCode::kInvalidArgument) << stride;
    }
  }
}

TEST(Layout, RefusesValuesThatShareAPlace) {
  BlockShape shape{.layers = 2, .heads = 3, .k_width = 8, .v_width = 8, .tokens = 4};
  auto good = *DenseLayout(kOrderBlockFirst, shape, 4, DType::kFp16);
  uint64_t bytes = shape.values() * 2;
  auto refused = [&](CallerLayout layout) {
    absl::Status status = CheckLayout(layout, shape, DType::kFp16, bytes);
    return status.code() == absl::StatusCode::kInvalidArgument && Message(status).find("share") != std::string::npos;
  };
  CallerLayout broadcast = good, same = good, shifted = good;
  broadcast.k.head_stride = 0;
  same.v = same.k;
  shifted.v.offset -= 1;
  EXPECT_TRUE(refused(broadcast));
  EXPECT_TRUE(refused(same));
  EXPECT_TRUE(refused(shifted));
  EXPECT_TRUE(CheckLayout(good, shape, DType::kFp16, bytes).ok());
}

// Random dense orders with random gaps: whatever CheckLayout accepts must agree with a map of every byte.
TEST(Layout, OverlapCheckAgreesWithCountingEveryValue) {
  uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  int accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    auto count = [&] { return static_cast<uint32_t>(1 + random() % 3); };
    BlockShape shape{.layers = count(), .heads = count(), .k_width = count(), .v_width = count(), .tokens = count()};
    auto stride = [&] { return random() % 40; };
    CallerLayout layout = {{stride(), stride(), stride(), stride(), stride()},
                           {stride(), stride(), stride(), stride(), stride()}};
    if (random() % 2 == 0) {
      uint64_t offset = layout.v.offset;
      layout.v = layout.k;
      layout.v.offset = offset;
    }
    if (!CheckLayout(layout, shape, DType::kBytes, 1000).ok()) continue;
    ++accepted;
    std::vector<int> uses(1000, 0);
    for (Part part : kParts) {
      PartShape p = shape.part(part);
      const PartLayout& s = layout.part(part);
      for (uint32_t l = 0; l < p.layers; ++l)
        for (uint32_t h = 0; h < p.heads; ++h)
          for (uint32_t t = 0; t < p.tokens; ++t)
            for (uint32_t c = 0; c < p.width; ++c)
              ++uses[s.offset + l * s.layer_stride + h * s.head_stride + t * s.token_stride + c * s.channel_stride];
    }
    EXPECT_EQ(std::count_if(uses.begin(), uses.end(), [](int n) { return n > 1; }), 0) << "round " << round;
  }
  EXPECT_GT(accepted, 50);
}

}  // namespace
}  // namespace firn
