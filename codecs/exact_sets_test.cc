// Blocks that keep any set of their tokens exact: the codes are those of a block without these tokens, and the tokens
// come back as they were. Every row of the table, both scopes, all ladders, heads that differ.

#include <gtest/gtest.h>

#include "codecs/codec_table.h"
#include "codecs/exact_sets_test_util.h"
#include "codecs/rules_test_util.h"
#include "hwy/targets.h"

namespace firn {
namespace {

constexpr PrecisionClass k8 = PrecisionClass::k8Bit, k4 = PrecisionClass::k4Bit, k2 = PrecisionClass::k2Bit;

// A way to code both parts of a block.
struct SetCase {
  std::string name;
  std::function<EncodeSpec(const BlockShape&, TestArtifacts*)> spec;
  bool pre_rope = false;
};

std::vector<SetCase> Cases() {
  std::vector<SetCase> cases;
  for (const RuleCase& rule : RuleCases()) {
    auto spec = [rule](const BlockShape& shape, TestArtifacts* artifacts) { return RuleSpec(rule, shape, artifacts); };
    cases.push_back({rule.name, spec, (rule.flags & PartCoding::kPreRope) != 0});
  }
  for (const auto& named : {std::pair(Ladder::kMinMax, "min_max"), std::pair(Ladder::kGain, "gain"),
                            std::pair(Ladder::kTrellis, "trellis")}) {
    const Ladder ladder = named.first;
    const char* ladder_name = named.second;
    for (KeyMethod method : {KeyMethod::kPerChannel, KeyMethod::kRotated, KeyMethod::kBalancedRotated}) {
      auto spec = [ladder, method](const BlockShape& shape, TestArtifacts* artifacts) {
        bool balanced = method == KeyMethod::kBalancedRotated && shape.k_width > 0;
        EncodeSpec s = Spec(k8, k8, shape.k_width > 0 ? method : KeyMethod::kPerChannel,
                            balanced ? artifacts->Add(MakeBalance(shape, 3)) : nullptr);
        s.ladder = ladder;
        return s;
      };
      cases.push_back({fmt::format("{}_keys_{}", ladder_name, static_cast<int>(method)), spec});
    }
  }
  cases.push_back({"fp8", [](const BlockShape&, TestArtifacts*) {
                     EncodeSpec s = Spec(k8, k8);
                     s.use_fp8 = true;
                     return s;
                   }});
  return cases;
}

class ExactSets : public testing::TestWithParam<SetCase> {
 protected:
  void SetUp() override { RecordProperty("seed", std::to_string(seed_)); }
  TestArtifacts artifacts_;
  uint64_t seed_ = std::random_device{}();
  std::mt19937_64 random_{seed_};
};

void ExpectRowsExact(const RawBlock& raw, const EncodedBlock& encoded, const ArtifactSource& artifacts,
                     const std::vector<uint32_t>& positions) {
  auto decoded = DecodeAs(encoded, artifacts, raw.dtype);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  RawBlock back = raw;
  back.k = decoded->first, back.v = decoded->second;
  for (Part part : kParts) EXPECT_EQ(RowsOf(back, part, positions), RowsOf(raw, part, positions));
}

TEST_P(ExactSets, CodesAreThoseOfTheOtherTokens) {
  SCOPED_TRACE(testing::Message() << "seed " << seed_);
  for (const BlockShape& shape : {BlockShape{2, 2, 64, 96, 37}, BlockShape{1, 3, 80, 128, 131},
                                  BlockShape{3, 1, 64, 0, 70}, BlockShape{1, 2, 0, 128, 16}}) {
    for (DType dtype : {DType::kFp16, DType::kBf16}) {
      RawBlock raw = MakeBlock(shape, dtype, random_());
      raw.first_token = 96;
      auto count = static_cast<uint32_t>(1 + random_() % (shape.tokens - 2));
      std::vector<uint32_t> positions = RandomPositions(shape.tokens, count, random_);
      SCOPED_TRACE(fmt::format("tokens {} exact {}", shape.tokens, fmt::join(positions, " ")));
      EncodeSpec spec = GetParam().spec(shape, &artifacts_);
      EncodeSpec plain = spec;
      KeepExact(positions, shape.tokens, &spec);
      auto encoded = EncodeToHeap(raw.Wrap(), spec, artifacts_);
      ASSERT_TRUE(encoded.ok()) << encoded.status();
      EXPECT_EQ(encoded->header->exact_tokens, count);
      ExactTokens expected_set = ExactTokensOf(positions, shape.tokens);
      EXPECT_EQ(encoded->header->exact_map, expected_set.map);
      EXPECT_EQ(IntactRuns(*encoded), encoded->present);
      EXPECT_TRUE(ParseHeader(SerializeHeader(*encoded->header), nullptr).ok());
      ExpectRowsExact(raw, *encoded, artifacts_, positions);

      RawBlock rest = Without(raw, positions);
      auto others = EncodeToHeap(rest.Wrap(), plain, artifacts_);
      ASSERT_TRUE(others.ok()) << others.status();
      auto all = *DecodeFloats(*encoded, artifacts_);
      auto alone = *DecodeFloats(*others, artifacts_);
      for (Part part : kParts) {
        if (shape.part(part).width == 0) continue;
        EXPECT_EQ(BytesOf(encoded->runs[RunIndex(RunKind::kExact, part)]), RowsOf(raw, part, positions));
        if (GetParam().pre_rope) continue;  // Other positions, other turns.
        for (RunKind kind : {RunKind::kMeta, RunKind::kP2, RunKind::kP4, RunKind::kP8, RunKind::kWhole}) {
          EXPECT_EQ(BytesOf(encoded->runs[RunIndex(kind, part)]), BytesOf(others->runs[RunIndex(kind, part)]));
        }
        const PartErrors& a = encoded->header->errors[static_cast<size_t>(part)];
        const PartErrors& b = others->header->errors[static_cast<size_t>(part)];
        for (auto slot : {&PartErrors::int8, &PartErrors::int4, &PartErrors::int2}) {
          EXPECT_EQ(FloatBits(a.*slot), FloatBits(b.*slot)) << "errors are of the coded tokens";
        }
        RawBlock as_floats{.dtype = DType::kFp32, .shape = shape};
        as_floats.part(part).resize(all.part(part).size() * 4);
        std::memcpy(as_floats.part(part).data(), all.part(part).data(), as_floats.part(part).size());
        for (Part p : kParts) as_floats.part(p).resize(shape.part(p).values() * 4);
        std::vector<uint8_t> scattered = Without(as_floats, positions).part(part);
        ASSERT_EQ(scattered.size(), alone.part(part).size() * 4);
        EXPECT_EQ(std::memcmp(scattered.data(), alone.part(part).data(), scattered.size()), 0);
      }
    }
  }
}

// Keys whose embedding is taken back are turned by the positions that they have in the block.
TEST_P(ExactSets, ErrorsStaySmallWhereverTheTokensAre) {
  SCOPED_TRACE(testing::Message() << "seed " << seed_);
  BlockShape shape{2, 2, 64, 64, 48};
  RawBlock raw = MakeBlock(shape, DType::kFp16, random_());
  raw.first_token = 1000;
  EncodeSpec spec = GetParam().spec(shape, &artifacts_), plain = spec;
  KeepExact(RandomPositions(shape.tokens, 12, random_), shape.tokens, &spec);
  auto exact = *DecodeFloats(raw.Wrap(), artifacts_);
  auto with = DecodeFloats(*EncodeToHeap(raw.Wrap(), spec, artifacts_), artifacts_);
  auto without = DecodeFloats(*EncodeToHeap(raw.Wrap(), plain, artifacts_), artifacts_);
  ASSERT_TRUE(with.ok() && without.ok());
  for (Part part : kParts) {
    EXPECT_LT(RelativeError(exact.part(part), with->part(part)),
              1.05 * RelativeError(exact.part(part), without->part(part)));
  }
}

TEST_P(ExactSets, EveryTargetAndPieceOfMemoryGivesTheSameBytes) {
  SCOPED_TRACE(testing::Message() << "seed " << seed_);
  BlockShape shape{2, 2, 128, 64, 35};
  RawBlock raw = MakeBlock(shape, DType::kFp16, random_());
  EncodeSpec spec = GetParam().spec(shape, &artifacts_);
  KeepExact(RandomPositions(shape.tokens, 9, random_), shape.tokens, &spec);
  EncodedBlock source = raw.Wrap();
  EncodedBlock whole = *EncodeToHeap(source, spec, artifacts_);
  auto decoded = *DecodeAs(whole, artifacts_, DType::kFp16);
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    EncodedBlock again = *EncodeToHeap(source, spec, artifacts_);
    EXPECT_EQ(SerializeHeader(*again.header), SerializeHeader(*whole.header)) << hwy::TargetName(target);
    EXPECT_EQ(BytesOf(again), BytesOf(whole)) << hwy::TargetName(target);
    EXPECT_EQ(*DecodeAs(again, artifacts_, DType::kFp16), decoded) << hwy::TargetName(target);
    hwy::SetSupportedTargetsForTest(0);
  }
  for (uint64_t piece_bytes_max : {3, 1000}) {
    ScatteredMemory raw_pieces(source.Layout(source.present), piece_bytes_max, random_());
    for (uint32_t i = 0; i < kRunIds; ++i) CopyScattered(source.runs[i], raw_pieces.runs()[i]);
    EncodedBlock scattered_source = raw_pieces.Block(source.header);
    auto plan = PrepareEncode(scattered_source, spec, artifacts_);
    ASSERT_TRUE(plan.ok()) << plan.status();
    ScatteredMemory pieces(plan->layout, piece_bytes_max, random_());
    auto header = Encode(scattered_source, spec, artifacts_, *plan, pieces.runs());
    ASSERT_TRUE(header.ok()) << header.status();
    EXPECT_EQ(BytesOf(pieces.Block(*header)), BytesOf(whole));
    EXPECT_EQ(*DecodeAs(pieces.Block(*header), artifacts_, DType::kFp16), decoded);
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, ExactSets, testing::ValuesIn(Cases()),
                         [](const testing::TestParamInfo<SetCase>& c) { return c.param.name; });

constexpr BlockShape kShape{.layers = 2, .heads = 3, .k_width = 64, .v_width = 96, .tokens = 41};

class ExactSetsOfBlocks : public testing::Test {
 protected:
  ExactSetsOfBlocks() : trace_(__FILE__, __LINE__, testing::Message() << "seed " << seed_) {
    KeepExact(positions_, kShape.tokens, &spec_);
  }
  uint64_t seed_ = std::random_device{}();
  testing::ScopedTrace trace_;
  std::mt19937_64 random_{seed_};
  TestArtifacts artifacts_;
  RawBlock raw_ = MakeBlock(kShape, DType::kFp16, random_());
  std::vector<uint32_t> positions_ = RandomPositions(kShape.tokens, 8, random_);
  EncodeSpec spec_ = Spec(k8, k8);
};

TEST_F(ExactSetsOfBlocks, NarrowingKeepsTheSet) {
  EncodedBlock eight = *EncodeToHeap(raw_.Wrap(), spec_, artifacts_);
  for (PrecisionClass c : {k4, k2}) {
    EncodedBlock narrow = eight.Narrowed(RunsFor(*eight.header, {c, c}));
    ASSERT_EQ(ClassOf(*narrow.header, narrow.present), (ClassPair{c, c}));
    ExpectRowsExact(raw_, narrow, artifacts_, positions_);
    // A plan that knows of no importance any more, or of another, changes nothing.
    EncodedBlock planned = *EncodeToHeap(eight, Spec(c, c), artifacts_);
    EXPECT_EQ(planned.header->exact_map, eight.header->exact_map);
    EXPECT_EQ(BytesOf(planned), BytesOf(narrow));
    ExpectRowsExact(raw_, planned, artifacts_, positions_);
  }
}

TEST_F(ExactSetsOfBlocks, RecodingKeepsTheSet) {
  EncodedBlock eight = *EncodeToHeap(raw_.Wrap(), spec_, artifacts_);
  for (const RuleCase& rule : RuleCases()) {
    if (rule.at == k8) continue;
    SCOPED_TRACE(rule.name);
    EncodeSpec spec = RuleSpec(rule, kShape, &artifacts_);
    KeepExact(RandomPositions(kShape.tokens, 20, random_), kShape.tokens, &spec);
    spec.keep_first_tokens = 5;
    auto recoded = EncodeToHeap(eight, spec, artifacts_);
    ASSERT_TRUE(recoded.ok()) << recoded.status();
    EXPECT_EQ(recoded->header->CodingOf(Part::kK).codec, rule.codec);
    EXPECT_TRUE(recoded->header->KeepsSameTokens(*eight.header));
    ExpectRowsExact(raw_, *recoded, artifacts_, positions_);
    // The error of the first coding is part of the second's.
    auto slot = PartErrors::SlotOf(rule.at);
    EXPECT_GT(recoded->header->errors[0].*slot, eight.header->errors[0].int8);
  }
}

TEST_F(ExactSetsOfBlocks, OnePartAtATime) {
  EncodeSpec first = spec_;
  first.target = {k8, PrecisionClass::kExact};
  EncodedBlock keys_coded = *EncodeToHeap(raw_.Wrap(), first, artifacts_);
  EXPECT_EQ(ClassOf(*keys_coded.header, keys_coded.present), (ClassPair{k8, PrecisionClass::kExact}));
  EXPECT_EQ(DecodeAs(keys_coded, artifacts_, DType::kFp16)->second, raw_.v);
  ExpectRowsExact(raw_, keys_coded, artifacts_, positions_);
  EncodeSpec second = Spec(k4, k4);
  KeepExact(RandomPositions(kShape.tokens, 30, random_), kShape.tokens, &second);
  EncodedBlock both = *EncodeToHeap(keys_coded, second, artifacts_);
  EXPECT_TRUE(both.header->KeepsSameTokens(*keys_coded.header));
  ExpectRowsExact(raw_, both, artifacts_, positions_);
  spec_.target = {k4, k4};
  EXPECT_EQ(BytesOf(both), BytesOf(*EncodeToHeap(raw_.Wrap(), spec_, artifacts_)));
}

TEST_F(ExactSetsOfBlocks, HeadsThatDiffer) {
  for (KeyMethod method : {KeyMethod::kPerChannel, KeyMethod::kRotated}) {
    EncodeSpec spec = spec_;
    spec.key_method = method;
    spec.target = {k2, k2};
    for (auto& classes : spec.classes) {
      ClassMap map;
      for (uint32_t i = 0; i < kShape.layers * kShape.heads; ++i) map.push_back(i % 3 == 0 ? k8 : i % 3 == 1 ? k4 : k2);
      std::shuffle(map.begin(), map.end(), random_);
      classes = std::make_shared<const ClassMap>(std::move(map));
    }
    EncodedBlock mixed = *EncodeToHeap(raw_.Wrap(), spec, artifacts_);
    ASSERT_TRUE(mixed.header->Mixed(Part::kK) && mixed.header->Mixed(Part::kV));
    EXPECT_FALSE(mixed.header->exact_map.empty());
    std::vector<uint8_t> serialized = SerializeHeader(*mixed.header);
    EXPECT_EQ(serialized.size(), HeaderBytesBound(LayoutOf(*mixed.header)));
    auto parsed = ParseHeader(serialized, nullptr);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->exact_map, mixed.header->exact_map);
    EXPECT_EQ(parsed->ceilings, mixed.header->ceilings);
    ExpectRowsExact(raw_, mixed, artifacts_, positions_);
    EncodeSpec plain = spec;
    plain.important_fraction = 0;
    plain.importance = nullptr;
    EncodedBlock rest = *EncodeToHeap(Without(raw_, positions_).Wrap(), plain, artifacts_);
    for (Part part : kParts) {
      for (RunKind kind : {RunKind::kMeta, RunKind::kP2, RunKind::kP4, RunKind::kP8}) {
        EXPECT_EQ(BytesOf(mixed.runs[RunIndex(kind, part)]), BytesOf(rest.runs[RunIndex(kind, part)]));
      }
    }
  }
}

TEST_F(ExactSetsOfBlocks, Fp8SourcesKeepTheirScales) {
  for (DType dtype : {DType::kFp8E4m3, DType::kFp8E5m2}) {
    RawBlock raw = MakeBlock(kShape, dtype, random_());
    EncodeSpec spec = spec_;
    spec.target = {k4, k4};
    EncodedBlock encoded = *EncodeToHeap(raw.Wrap(), spec, artifacts_);
    ASSERT_EQ(encoded.header->exact_tokens, positions_.size());
    DecodedBlock source = *DecodeFloats(raw.Wrap(), artifacts_), coded = *DecodeFloats(encoded, artifacts_);
    for (Part part : kParts) {
      PartShape shape = kShape.part(part);
      for (uint32_t token : positions_) {
        for (uint32_t head = 0; head < shape.heads * shape.layers; ++head) {
          uint64_t row = (uint64_t{head} * shape.tokens + token) * shape.width;
          ASSERT_EQ(std::memcmp(&source.part(part)[row], &coded.part(part)[row], shape.width * 4), 0);
        }
      }
    }
  }
}

TEST_F(ExactSetsOfBlocks, SinksCountFirstAndAllTokensStayAsTheyCame) {
  raw_.first_token = 2;
  spec_.keep_first_tokens = 5;
  EncodedBlock encoded = *EncodeToHeap(raw_.Wrap(), spec_, artifacts_);
  EXPECT_EQ(encoded.header->exact_tokens, 8u);
  ExpectRowsExact(raw_, encoded, artifacts_, {0, 1, 2});
  spec_.important_fraction = 1;
  EncodedBlock all = *EncodeToHeap(raw_.Wrap(), spec_, artifacts_);
  EXPECT_EQ(all.header->CodingOf(Part::kK).codec, CodecId::kIdentity);
  EXPECT_EQ(all.header->exact_tokens, 0u);
}

// Where scales are a token's own, a token's codes do not depend on which others are kept exact; where its embedding is
// taken back, they do depend on its position.
TEST_F(ExactSetsOfBlocks, TokensAreTurnedByTheirOwnPositions) {
  RuleCase rule{"", k4, CodecId::kIntToken, 4, 32, PartCoding::kPreRope, 0, MetaType::kNone, true};
  raw_.first_token = 700;
  EncodeSpec spec = RuleSpec(rule, kShape, &artifacts_), plain = spec;
  KeepExact(positions_, kShape.tokens, &spec);
  auto with = DecodeFloats(*EncodeToHeap(raw_.Wrap(), spec, artifacts_), artifacts_);
  auto without = DecodeFloats(*EncodeToHeap(raw_.Wrap(), plain, artifacts_), artifacts_);
  ASSERT_TRUE(with.ok() && without.ok());
  for (Part part : kParts) {
    PartShape shape = kShape.part(part);
    for (uint64_t row = 0; row < shape.values() / shape.width; ++row) {
      auto token = static_cast<uint32_t>(row % shape.tokens);
      if (std::binary_search(positions_.begin(), positions_.end(), token)) continue;
      ASSERT_EQ(
          std::memcmp(&with->part(part)[row * shape.width], &without->part(part)[row * shape.width], shape.width * 4),
          0)
          << "token " << token;
    }
  }
}

TEST_F(ExactSetsOfBlocks, BadImportanceIsRefusedWithReasons) {
  auto refused = [&](const char* said) {
    absl::Status status = EncodeToHeap(raw_.Wrap(), spec_, artifacts_).status();
    return absl::IsInvalidArgument(status) && Message(status).find(said) != std::string::npos;
  };
  spec_.importance = std::make_shared<const std::vector<uint8_t>>(40);
  EXPECT_TRUE(refused("40 ranks of importance for 41 tokens"));
  spec_.importance = nullptr;
  for (float fraction : {-0.1f, 1.5f, NAN}) {
    spec_.important_fraction = fraction;
    EXPECT_TRUE(refused("it is 0 to 1"));
  }
}

// Bytes that lie about the set are damage, not a crash.
TEST_F(ExactSetsOfBlocks, HeadersThatLieAreDataLoss) {
  EncodedBlock encoded = *EncodeToHeap(raw_.Wrap(), spec_, artifacts_);
  auto decode = [&](auto change) {
    auto header = std::make_shared<RecordHeader>(*encoded.header);
    change(header.get());
    EncodedBlock block = encoded;
    block.header = header;
    return DecodeAs(block, artifacts_, DType::kFp16).status();
  };
  EXPECT_TRUE(decode([](RecordHeader*) {}).ok());
  EXPECT_TRUE(absl::IsDataLoss(decode([](RecordHeader* h) { ++h->exact_tokens; })));
  EXPECT_TRUE(absl::IsDataLoss(decode([](RecordHeader* h) { h->exact_map.push_back(0); })));
  EXPECT_TRUE(absl::IsDataLoss(decode([](RecordHeader* h) { h->exact_map[0] |= uint64_t{1} << 63; })));
  EXPECT_TRUE(absl::IsDataLoss(decode([](RecordHeader* h) {
    h->exact_tokens = 1;
    h->exact_map[0] = 4;
  }))) << "runs of another length";
}

}  // namespace
}  // namespace firn
