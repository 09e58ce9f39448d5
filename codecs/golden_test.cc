// The bytes of every codec on fixed input, kept in tests/golden/codecs: formats are persistent, so any change of a byte
// fails.
//
// FIRN_WRITE_GOLDEN=1 writes the files instead: for a codec or a case that is new, never to make a changed format pass.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "codecs/block_test_util.h"
#include "codecs/codec_table.h"
#include "codecs/tile_test_util.h"

namespace firn {
namespace {

struct GoldenCase {
  const char* name;
  DType dtype;
  BlockShape shape;
  KeyMethod key_method;
  bool fp8;
  uint16_t group;
  uint32_t keep_first_tokens;
  Ladder ladder = Ladder::kMinMax;
  float important_fraction = 0;
};

constexpr GoldenCase kCases[] = {
    {"identity_fp8_e4m3", DType::kFp8E4m3, {1, 2, 5, 4, 3}, KeyMethod::kPerChannel, false, 0, 0},
    {"fp8_e4m3", DType::kFp16, {1, 2, 16, 12, 4}, KeyMethod::kPerChannel, true, 0, 1},
    {"nested_channel_fp16", DType::kFp16, {2, 1, 20, 16, 9}, KeyMethod::kPerChannel, false, 4, 1},
    {"nested_channel_bf16", DType::kBf16, {1, 2, 7, 12, 6}, KeyMethod::kPerChannel, false, 0, 0},
    {"nested_token_balanced_fp16", DType::kFp16, {1, 2, 128, 96, 3}, KeyMethod::kBalancedRotated, false, 0, 0},
    {"nested_token_rotated_bf16", DType::kBf16, {1, 1, 80, 33, 3}, KeyMethod::kRotated, false, 32, 0},
    {"nested_gain_balanced_fp16",
     DType::kFp16,
     {1, 2, 128, 64, 3},
     KeyMethod::kBalancedRotated,
     false,
     0,
     1,
     Ladder::kGain},
    {"nested_gain_rotated_bf16", DType::kBf16, {1, 1, 192, 96, 3}, KeyMethod::kRotated, false, 0, 0, Ladder::kGain},
    {"nested_trellis_balanced_fp16",
     DType::kFp16,
     {1, 2, 128, 64, 3},
     KeyMethod::kBalancedRotated,
     false,
     0,
     1,
     Ladder::kTrellis},
    {"nested_trellis_rotated_bf16",
     DType::kBf16,
     {1, 1, 192, 96, 3},
     KeyMethod::kRotated,
     false,
     0,
     0,
     Ladder::kTrellis},
    {"nested_channel_set_fp16",
     DType::kFp16,
     {2, 1, 20, 16, 9},
     KeyMethod::kPerChannel,
     false,
     4,
     1,
     Ladder::kMinMax,
     0.4f},
    {"nested_from_fp8", DType::kFp8E5m2, {1, 1, 32, 16, 5}, KeyMethod::kPerChannel, false, 0, 2},
};

// Made of integers alone, so that every machine has the same input: a generator of its own, no library's distribution.
RawBlock FixedBlock(const GoldenCase& c) {
  RawBlock raw{.dtype = c.dtype, .shape = c.shape};
  uint64_t state = 12345;
  auto next = [&] { return static_cast<int32_t>((state = state * 6364136223846793005u + 1442695040888963407u) >> 44); };
  for (Part part : kParts) {
    PartShape shape = c.shape.part(part);
    raw.part(part).resize(shape.values() * DTypeBytes(c.dtype));
    bool fp8 = DTypeBytes(c.dtype) == 1;
    for (uint64_t i = 0; i < shape.values(); ++i) {
      // A sum of four uniform numbers, about normal; every fifth channel of K is large.
      int32_t sum = next() + next() + next() + next() - 2 * (1 << 20);
      float value =
          static_cast<float>(sum) / static_cast<float>(1 << 19) * (part == Part::kK && i % 5 == 0 ? 9.0f : 1.0f);
      if (fp8) {
        raw.part(part)[i] = c.dtype == DType::kFp8E4m3 ? FloatToE4m3(value * 16) : FloatToE5m2(value * 16);
      } else {
        raw.Set(part, i, value);
      }
    }
    auto& scales = part == Part::kK ? raw.k_scales : raw.v_scales;
    if (fp8) scales.resize(size_t{shape.layers} * shape.heads * 4);
    for (size_t i = 0; i < scales.size(); i += 4)
      StoreLe<float>(scales.data() + i, 0.0625f * static_cast<float>(i / 4 + 3));
  }
  return raw;
}

std::shared_ptr<const Artifact> FixedBalance(const BlockShape& shape) {
  size_t count = size_t{shape.layers} * shape.heads * shape.k_width;
  std::vector<float> mean(count), weight(count);
  for (size_t i = 0; i < count; ++i) {
    mean[i] = static_cast<float>(static_cast<int>(i * 7 % 11) - 5) / 8;
    weight[i] = static_cast<float>(i * 5 % 13 + 2) / 6;
  }
  return *Artifact::CreateBalance(shape.layers, shape.heads, shape.k_width, std::move(mean), std::move(weight));
}

void Append(std::vector<uint8_t>* all, const std::vector<uint8_t>& bytes) {
  all->resize(all->size() + 4);
  StoreLe<uint32_t>(all->data() + all->size() - 4, static_cast<uint32_t>(bytes.size()));
  all->insert(all->end(), bytes.begin(), bytes.end());
}

// Header, runs, and the decoded values of every class, each with its length in front.
std::vector<uint8_t> GoldenBytes(const GoldenCase& c) {
  TestArtifacts artifacts;
  RawBlock raw = FixedBlock(c);
  EncodeSpec spec = Spec(PrecisionClass::k8Bit, PrecisionClass::k8Bit, c.key_method);
  if (c.key_method == KeyMethod::kBalancedRotated) spec.balance = artifacts.Add(FixedBalance(c.shape));
  bool nested_from_fp8 = std::string_view(c.name) == "nested_from_fp8";
  if (nested_from_fp8) spec.target = {PrecisionClass::k4Bit, PrecisionClass::k4Bit};
  spec.use_fp8 = c.fp8;
  spec.ladder = c.ladder;
  spec.key_group = spec.value_group = c.group;
  spec.keep_first_tokens = c.keep_first_tokens;
  std::vector<uint8_t> ranks;
  for (uint32_t t = 0; t < c.shape.tokens; ++t) ranks.push_back(static_cast<uint8_t>(t * 7 % 11));
  spec.important_fraction = c.important_fraction;
  spec.importance = std::make_shared<const std::vector<uint8_t>>(std::move(ranks));
  EncodedBlock encoded = *EncodeToHeap(raw.Wrap(), spec, artifacts);
  std::vector<uint8_t> all;
  if (spec.balance != nullptr) Append(&all, spec.balance->serialized());
  Append(&all, SerializeHeader(*encoded.header));
  for (const RunBytes& run : encoded.runs) Append(&all, BytesOf(run));
  for (PrecisionClass precision : {PrecisionClass::k8Bit, PrecisionClass::k4Bit, PrecisionClass::k2Bit}) {
    if (!CanNarrow(encoded, {precision, precision})) continue;
    EncodedBlock narrow = encoded.Narrowed(RunsFor(*encoded.header, {precision, precision}));
    for (DType out : {DType::kFp16, DType::kBf16}) {
      auto decoded = DecodeAs(narrow, artifacts, out);
      Append(&all, decoded->first);
      Append(&all, decoded->second);
    }
  }
  return all;
}

// Writes the file where asked to; compares it otherwise.
void CompareWithFile(const std::string& name, const std::vector<uint8_t>& bytes) {
  std::filesystem::path folder = std::filesystem::path(FIRN_SOURCE_DIR) / "tests/golden/codecs";
  std::filesystem::path path = folder / (name + ".bin");
  if (std::getenv("FIRN_WRITE_GOLDEN") != nullptr) {
    std::filesystem::create_directories(folder);
    std::ofstream out(path, std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    GTEST_SKIP() << "wrote " << path;
  }
  std::ifstream in(path, std::ios::binary);
  ASSERT_TRUE(in.good()) << path << " is missing";
  std::vector<uint8_t> expected{std::istreambuf_iterator<char>(in), {}};
  ASSERT_EQ(expected.size(), bytes.size());
  auto [a, b] = std::mismatch(expected.begin(), expected.end(), bytes.begin());
  EXPECT_TRUE(a == expected.end()) << "byte " << a - expected.begin() << " was " << int{*a} << ", is " << int{*b};
}

class Golden : public testing::TestWithParam<GoldenCase> {};

TEST_P(Golden, BytesAreWhatTheyWere) { CompareWithFile(GetParam().name, GoldenBytes(GetParam())); }

INSTANTIATE_TEST_SUITE_P(Codecs, Golden, testing::ValuesIn(kCases),
                         [](const testing::TestParamInfo<GoldenCase>& golden) {
                           return std::string(golden.param.name);
                         });

// The first rows, also those that no block asked for when they were new.
TEST(GoldenRows, BytesAreWhatTheyWere) {
  std::vector<uint8_t> all;
  RawBlock raw = FixedBlock({"", DType::kFp16, {1, 1, 24, 0, 6}, KeyMethod::kPerChannel, false, 0, 0});
  for (CodecId id :
       {CodecId::kIdentity, CodecId::kFp8E4m3, CodecId::kFp8E5m2, CodecId::kNestedChannel, CodecId::kNestedToken}) {
    const CodecRow& row = *FindCodec(id);
    PartCoding coding = TestCodings(row).front();
    TileMemory memory(row, coding, raw.dtype, 24, 6);
    EncodeTile tile;
    tile.coding = &coding;
    tile.width = 24;
    tile.tokens = 6;
    tile.source = raw.k.data();
    memory.Attach(&tile);
    row.encode(tile);
    for (const std::vector<uint8_t>& run : memory.runs) Append(&all, run);
  }
  CompareWithFile("rows", all);
}

// Rows by themselves, each with several codings.
struct CodingCase {
  MetaType meta_type;
  uint8_t flags;
  uint16_t group;
  uint8_t bits, outliers;
};
struct RowCase {
  CodecId id;
  std::vector<CodingCase> codings;
  const char* suffix = "";  // Of the file's name: codings that came later have a file of their own.

  std::string name() const { return std::string(FindCodec(id)->name) + suffix; }
};

constexpr uint8_t kSymmetric = PartCoding::kSymmetric, kCalibrated = PartCoding::kCalibrated;
constexpr MetaType kHalf = MetaType::kFp16, kBfloat = MetaType::kBf16, kFloat = MetaType::kFp32;

const RowCase kRowCases[] = {
    {CodecId::kIntToken,
     {{kHalf, 0, 32, 8, 0},
      {kHalf, 0, 32, 4, 0},
      {kHalf, 0, 16, 3, 0},
      {kBfloat, 0, 32, 2, 0},
      {kHalf, kSymmetric, 24, 8, 0},
      {kHalf, kSymmetric, 24, 4, 0},
      {kFloat, kSymmetric, 24, 3, 0},
      {kHalf, kSymmetric | kCalibrated, 0, 8, 0}}},
    {CodecId::kIntChannel,
     {{kHalf, 0, 4, 8, 0},
      {kHalf, 0, 32, 4, 0},
      {kHalf, 0, 32, 3, 0},
      {kBfloat, 0, 5, 2, 0},
      {kHalf, kSymmetric, 4, 4, 0},
      {kFloat, kSymmetric, 4, 2, 0}}},
    {CodecId::kIntTensor, {{kHalf, 0, 0, 8, 0}, {kHalf, 0, 0, 4, 0}, {kFloat, kSymmetric, 0, 8, 0}}},
    {CodecId::kFp8E4m3, {{kFloat, 0, 16, 0, 0}, {kFloat, kCalibrated, 0, 0, 0}}},
    {CodecId::kFp8E5m2, {{kFloat, 0, 16, 0, 0}, {kFloat, kCalibrated, 0, 0, 0}}},
    {CodecId::kFp8E4m3Tensor, {{kFloat, 0, 0, 0, 0}}},
    {CodecId::kFp8E5m2Tensor, {{kFloat, 0, 0, 0, 0}}},
    {CodecId::kNvFp4, {{kFloat, 0, 0, 0, 0}}},
    {CodecId::kMxFp4, {{kFloat, 0, 0, 0, 0}}},
    {CodecId::kNuqChannel, {{kHalf, 0, 0, 4, 10}, {kHalf, 0, 0, 3, 10}, {kFloat, 0, 0, 2, 50}, {kHalf, 0, 0, 4, 0}}},
    {CodecId::kNuqChannel, {{kHalf, 0, 4, 4, 15}, {kHalf, 0, 3, 3, 50}, {kFloat, 0, 64, 2, 50}}, "_groups"},
    {CodecId::kNuqToken, {{kHalf, 0, 0, 4, 10}, {kBfloat, 0, 0, 3, 10}, {kFloat, 0, 0, 2, 50}, {kHalf, 0, 0, 4, 0}}},
};

// Sources, runs and decoded values of every coding.
std::vector<uint8_t> RowBytes(const RowCase& c) {
  const CodecRow& row = *FindCodec(c.id);
  const bool layer = row.scope == TileScope::kLayer;
  const uint32_t width = 37, tokens = 6, heads = layer ? 2 : 1;
  RawBlock raw = FixedBlock({"", DType::kFp16, {1, heads, width, 0, tokens}, KeyMethod::kPerChannel, false, 0, 0});
  std::vector<float> floats(raw.k.size() / 2);
  LoadFloats(raw.k.data(), DType::kFp16, floats.size(), floats.data());
  const DType type = layer ? DType::kFp32 : DType::kFp16;
  std::vector<uint8_t> all;
  for (const CodingCase& coding_case : c.codings) {
    PartCoding coding;
    coding.codec = c.id;
    coding.meta_type = coding_case.meta_type;
    coding.flags = coding_case.flags;
    coding.group = coding_case.group;
    coding.bits = coding_case.bits;
    coding.outliers = coding_case.outliers;
    EXPECT_TRUE(row.validate(coding, DType::kFp16, width).ok()) << Describe(coding, width, tokens);
    TestTransform transform(row, coding, width);
    TestModel model(coding);
    TileMemory memory(row, coding, DType::kFp16, width, tokens, heads);
    EncodeTile tile{.coding = &coding,
                    .width = width,
                    .tokens = tokens,
                    .heads = heads,
                    .in = type,
                    .source = layer ? reinterpret_cast<const uint8_t*>(floats.data()) : raw.k.data(),
                    .transform = transform.view(),
                    .model = model.view()};
    memory.Attach(&tile);
    row.encode(tile);
    for (const std::vector<uint8_t>& run : memory.runs) Append(&all, run);
    std::vector<uint8_t> decoded(floats.size() * DTypeBytes(type));
    DecodeTile decode{.coding = &coding,
                      .width = width,
                      .tokens = tokens,
                      .heads = heads,
                      .out = type,
                      .target = decoded.data(),
                      .precision = ClassOfCodes(coding),
                      .transform = transform.view(),
                      .model = model.view()};
    memory.Attach(&decode);
    row.decode(decode);
    Append(&all, decoded);
  }
  return all;
}

class GoldenRow : public testing::TestWithParam<RowCase> {};

TEST_P(GoldenRow, BytesAreWhatTheyWere) { CompareWithFile("row_" + GetParam().name(), RowBytes(GetParam())); }

INSTANTIATE_TEST_SUITE_P(Rows, GoldenRow, testing::ValuesIn(kRowCases),
                         [](const testing::TestParamInfo<RowCase>& row) { return row.param.name(); });

}  // namespace
}  // namespace firn
