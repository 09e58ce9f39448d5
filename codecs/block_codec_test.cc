// Whole blocks through the codec door: every method, shape and class, memory in pieces, narrowing, damage, conversions.

#include "codecs/block_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codecs/block_test_util.h"
#include "codecs/codec_table.h"

namespace firn {
namespace {

constexpr uint64_t kSeed = 4711;
constexpr PrecisionClass kExactClass = PrecisionClass::kExact, k8 = PrecisionClass::k8Bit, k4 = PrecisionClass::k4Bit,
                         k2 = PrecisionClass::k2Bit;

struct Method {
  const char* name;
  KeyMethod key_method;
  bool fp8;
  Ladder ladder = Ladder::kMinMax;
};
constexpr Method kMethods[] = {{"channel", KeyMethod::kPerChannel, false},
                               {"balanced", KeyMethod::kBalancedRotated, false},
                               {"rotated", KeyMethod::kRotated, false},
                               {"fp8", KeyMethod::kPerChannel, true},
                               {"gain", KeyMethod::kBalancedRotated, false, Ladder::kGain},
                               {"trellis", KeyMethod::kBalancedRotated, false, Ladder::kTrellis}};

constexpr BlockShape kShapes[] = {
    {1, 1, 1, 1, 1},     {1, 2, 3, 3, 5},       {2, 1, 64, 64, 16},   {3, 2, 80, 80, 65},   {1, 3, 96, 96, 64},
    {2, 2, 112, 112, 7}, {1, 2, 128, 128, 130}, {61, 1, 132, 576, 3}, {2, 1, 576, 0, 33},   {2, 2, 0, 128, 17},
    {1, 5, 160, 192, 9}, {128, 1, 16, 16, 2},   {1, 1, 256, 256, 64}, {2, 3, 31, 130, 129},
};

class EveryMethod : public testing::TestWithParam<Method> {
 protected:
  EncodeSpec SpecFor(const BlockShape& shape, PrecisionClass k, PrecisionClass v) {
    EncodeSpec spec = Spec(k, v, GetParam().key_method);
    spec.use_fp8 = GetParam().fp8;
    spec.ladder = GetParam().ladder;
    if (spec.key_method == KeyMethod::kBalancedRotated && shape.k_width > 0) {
      spec.balance = artifacts_.Add(MakeBalance(shape, kSeed));
    }
    if (shape.k_width == 0) spec.key_method = KeyMethod::kPerChannel;
    return spec;
  }
  TestArtifacts artifacts_;
};

// Relative errors that no class of any codec passes for values like these.
// Made-up balance vectors spread the keys instead of evening them out, and so does a rotation of few channels.
double Bound(PrecisionClass c, uint32_t width, bool unbalanced) {
  double bound = c == k8 ? 0.04 : c == k4 ? 0.12 : 0.6;
  return (width < 16 && c == k2 ? 1.0 : bound) * (unbalanced ? 3 : 1);
}

TEST_P(EveryMethod, BlocksComeBackAtEveryClass) {
  for (const BlockShape& shape : kShapes) {
    for (DType dtype : {DType::kFp16, DType::kBf16}) {
      SCOPED_TRACE(fmt::format("layers {} heads {} widths {} {} tokens {} {}", shape.layers, shape.heads, shape.k_width,
                               shape.v_width, shape.tokens, DTypeName(dtype)));
      RawBlock raw = MakeBlock(shape, dtype, kSeed);
      EncodedBlock source = raw.Wrap();
      DecodedBlock exact = *DecodeFloats(source, artifacts_);
      auto encoded = EncodeToHeap(source, SpecFor(shape, k8, k8), artifacts_);
      ASSERT_TRUE(encoded.ok()) << encoded.status();
      EXPECT_EQ(IntactRuns(*encoded), encoded->present);
      for (PrecisionClass c : {k8, k4, k2}) {
        if (GetParam().fp8 && c != k8) continue;
        ASSERT_TRUE(CanNarrow(*encoded, {c, c}));
        EncodedBlock narrow = encoded->Narrowed(RunsFor(*encoded->header, {c, c}));
        auto decoded = DecodeFloats(narrow, artifacts_);
        ASSERT_TRUE(decoded.ok()) << decoded.status();
        for (Part part : kParts) {
          uint32_t width = shape.part(part).width;
          if (width == 0) continue;
          double error = RelativeError(exact.part(part), decoded->part(part));
          bool unbalanced = part == Part::kK && GetParam().key_method != KeyMethod::kPerChannel;
          EXPECT_LT(error, Bound(c, width, unbalanced)) << PrecisionClassName(c) << (part == Part::kK ? " K" : " V");
          const PartErrors& errors = encoded->header->errors[static_cast<size_t>(part)];
          float stated = c == k8 ? errors.int8 : c == k4 ? errors.int4 : errors.int2;
          // Exact where all rows are measured, a sample beyond.
          EXPECT_NEAR(stated, error, 0.35 * error + 1e-6) << PrecisionClassName(c);
        }
      }
    }
  }
}

TEST_P(EveryMethod, PiecesOfMemoryChangeNothing) {
  for (const BlockShape& shape : kShapes) {
    RawBlock raw = MakeBlock(shape, DType::kFp16, kSeed + 1);
    EncodedBlock source = raw.Wrap();
    EncodeSpec spec = SpecFor(shape, k8, k8);
    spec.keep_first_tokens = 2;
    auto whole = EncodeToHeap(source, spec, artifacts_);
    ASSERT_TRUE(whole.ok()) << whole.status();
    for (uint64_t piece_bytes_max : {3, 100, 70000}) {
      RecordLayout raw_layout = source.Layout(source.present);
      ScatteredMemory raw_pieces(raw_layout, piece_bytes_max, kSeed);
      for (uint32_t i = 0; i < kRunIds; ++i) CopyScattered(source.runs[i], raw_pieces.runs()[i]);
      EncodedBlock scattered_source = raw_pieces.Block(source.header);
      auto plan = PrepareEncode(scattered_source, spec, artifacts_);
      ASSERT_TRUE(plan.ok()) << plan.status();
      ScatteredMemory pieces(plan->layout, piece_bytes_max, kSeed + 2);
      auto header = Encode(scattered_source, spec, artifacts_, *plan, pieces.runs());
      ASSERT_TRUE(header.ok()) << header.status();
      EncodedBlock scattered = pieces.Block(*header);
      EXPECT_EQ(SerializeHeader(**header), SerializeHeader(*whole->header));
      EXPECT_EQ(BytesOf(scattered), BytesOf(*whole));
      auto a = DecodeAs(scattered, artifacts_, DType::kFp16), b = DecodeAs(*whole, artifacts_, DType::kFp16);
      ASSERT_TRUE(a.ok() && b.ok());
      EXPECT_EQ(*a, *b);
    }
  }
}

TEST_P(EveryMethod, DirectAndStepwiseDemotionGiveTheSameBytes) {
  if (GetParam().fp8) GTEST_SKIP() << "FP8 has one class";
  BlockShape shape{2, 2, 128, 96, 70};
  EncodedBlock source = MakeBlock(shape, DType::kFp16, kSeed + 3).Wrap();
  EncodedBlock eight = *EncodeToHeap(source, SpecFor(shape, k8, k8), artifacts_);
  for (ClassPair target : {ClassPair{k4, k4}, ClassPair{k2, k2}, ClassPair{k8, k4}, ClassPair{k4, k2}}) {
    EncodeSpec spec = SpecFor(shape, target.k, target.v);
    EncodedBlock direct = *EncodeToHeap(source, spec, artifacts_);
    EncodedBlock stepwise = *EncodeToHeap(eight, spec, artifacts_);
    EncodedBlock dropped = eight.Narrowed(RunsFor(*eight.header, target));
    EXPECT_EQ(BytesOf(direct), BytesOf(stepwise));
    EXPECT_EQ(BytesOf(direct), BytesOf(dropped));
    EXPECT_EQ(ClassOf(*direct.header, direct.present), target);
    for (uint32_t i = 0; i < kRunIds; ++i) {
      EXPECT_TRUE(!direct.present.Has(i) || direct.header->runs[i] == eight.header->runs[i]);
    }
  }
}

TEST_P(EveryMethod, MissingPlanesLowerTheClassOrFail) {
  BlockShape shape{2, 1, 64, 64, 40};
  EncodedBlock encoded =
      *EncodeToHeap(MakeBlock(shape, DType::kFp16, kSeed).Wrap(), SpecFor(shape, k8, k8), artifacts_);
  DecodedBlock full = *DecodeFloats(encoded, artifacts_);
  EXPECT_EQ(DecodeFloats(encoded, artifacts_, encoded.present - RunMask::Of(RunKind::kMeta, Part::kK)).status().code(),
            absl::StatusCode::kDataLoss);
  if (GetParam().fp8) return;
  DecodedBlock without = *DecodeFloats(encoded, artifacts_, encoded.present - RunMask::Of(RunKind::kP8, Part::kV));
  EXPECT_EQ(without.k, full.k);
  EXPECT_NE(without.v, full.v);
  // A low plane under a missing higher one is of no use.
  RunMask gap = encoded.present - RunMask::Both(RunKind::kP4);
  EXPECT_EQ(DecodeFloats(encoded, artifacts_, gap)->v,
            DecodeFloats(encoded, artifacts_, gap - RunMask::Both(RunKind::kP8))->v);
}

TEST_P(EveryMethod, LayersDecodeAlone) {
  BlockShape shape{5, 2, 64, 48, 21};
  EncodeSpec spec = SpecFor(shape, k4, k8);
  spec.keep_first_tokens = 3;
  EncodedBlock encoded = *EncodeToHeap(MakeBlock(shape, DType::kFp16, kSeed).Wrap(), spec, artifacts_);
  auto whole = *DecodeAs(encoded, artifacts_, DType::kFp16);
  size_t k_layer = whole.first.size() / 5, v_layer = whole.second.size() / 5;
  for (uint32_t first = 0; first < 5; ++first) {
    for (uint32_t count = 1; first + count <= 5; ++count) {
      std::vector<uint8_t> k(k_layer * count), v(v_layer * count);
      ASSERT_TRUE(Decode(encoded, artifacts_, {.first_layer = first, .layers = count}, k, v).ok());
      EXPECT_TRUE(std::equal(k.begin(), k.end(), whole.first.begin() + static_cast<ptrdiff_t>(first * k_layer)));
      EXPECT_TRUE(std::equal(v.begin(), v.end(), whole.second.begin() + static_cast<ptrdiff_t>(first * v_layer)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, EveryMethod, testing::ValuesIn(kMethods),
                         [](const testing::TestParamInfo<Method>& method) { return std::string(method.param.name); });

TEST(BlockCodec, IdentityGivesBytesBackAndConvertsOnRequest) {
  TestArtifacts artifacts;
  BlockShape shape{2, 2, 40, 24, 9};
  for (DType dtype : {DType::kFp16, DType::kBf16, DType::kFp8E4m3, DType::kFp8E5m2, DType::kBytes}) {
    RawBlock raw = MakeBlock(shape, dtype == DType::kBytes ? DType::kFp8E4m3 : dtype, kSeed);
    raw.dtype = dtype;
    if (dtype == DType::kBytes) raw.k_scales.clear(), raw.v_scales.clear();
    EncodedBlock block = raw.Wrap();
    auto same = DecodeAs(block, artifacts, dtype);
    ASSERT_TRUE(same.ok()) << same.status();
    EXPECT_EQ(same->first, raw.k);
    EXPECT_EQ(same->second, raw.v);
    auto floats = DecodeFloats(block, artifacts);
    if (dtype == DType::kBytes) {
      EXPECT_EQ(floats.status().code(), absl::StatusCode::kInvalidArgument);
      continue;
    }
    float scale = raw.k_scales.empty() ? 1.0f : LoadLe<float>(raw.k_scales.data() + 4 * 3);
    uint64_t index = raw.Index(Part::kK, 1, 1, 4, 5);
    EXPECT_EQ(floats->k[index], raw.Get(Part::kK, index) * scale);
    auto wrong = DecodeAs(block, artifacts, DType::kBytes);
    EXPECT_EQ(wrong.status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(BlockCodec, OpaqueBytesAreNeverCoded) {
  TestArtifacts artifacts;
  BlockShape shape{1, 1, 1000, 0, 3};
  RawBlock raw{.dtype = DType::kBytes, .shape = shape};
  raw.k.assign(3000, 0x7F);
  EncodedBlock kept = *EncodeToHeap(raw.Wrap(), Spec(k2, k2), artifacts);
  EXPECT_EQ(BytesOf(kept), raw.k);
  EXPECT_EQ(ClassOf(*kept.header, kept.present).k, kExactClass);
}

TEST(BlockCodec, Fp8PassesThroughAndIsNestedBelow) {
  TestArtifacts artifacts;
  BlockShape shape{2, 2, 64, 128, 70};
  for (DType dtype : {DType::kFp8E4m3, DType::kFp8E5m2}) {
    RawBlock raw = MakeBlock(shape, dtype, kSeed);
    EncodedBlock source = raw.Wrap();
    EncodedBlock eight = *EncodeToHeap(source, Spec(k8, k8), artifacts);
    EXPECT_EQ(BytesOf(eight), BytesOf(source));
    EXPECT_EQ(ClassOf(*eight.header, eight.present), (ClassPair{k8, k8}));
    EncodeSpec spec = Spec(k4, k4);
    spec.keep_first_tokens = 3;
    auto four = EncodeToHeap(source, spec, artifacts);
    ASSERT_TRUE(four.ok()) << four.status();
    EXPECT_EQ(four->header->exact_tokens, 3u);
    DecodedBlock exact = *DecodeFloats(source, artifacts), decoded = *DecodeFloats(*four, artifacts);
    EXPECT_LT(RelativeError(exact.k, decoded.k), 0.12);
    EXPECT_LT(RelativeError(exact.v, decoded.v), 0.12);
    for (uint32_t t = 0; t < 3; ++t) {
      uint64_t index = raw.Index(Part::kV, 1, 1, t, 77);
      EXPECT_EQ(decoded.v[index], exact.v[index]);
    }
    // Only one part coded: the other is split into exact and other rows, byte for byte.
    EncodeSpec mixed = Spec(k8, k2);
    mixed.keep_first_tokens = 3;
    auto split = EncodeToHeap(source, mixed, artifacts);
    ASSERT_TRUE(split.ok()) << split.status();
    EXPECT_EQ(DecodeFloats(*split, artifacts)->k, exact.k);
  }
}

TEST(BlockCodec, RecodesFromEightBitsToAnotherCoding) {
  TestArtifacts artifacts;
  BlockShape shape{2, 2, 128, 128, 64};
  EncodedBlock source = MakeBlock(shape, DType::kFp16, kSeed).Wrap();
  DecodedBlock exact = *DecodeFloats(source, artifacts);
  EncodeSpec fp8 = Spec(k8, k8);
  fp8.use_fp8 = true;
  EncodedBlock hot = *EncodeToHeap(source, fp8, artifacts);
  EXPECT_FALSE(CanNarrow(hot, {k4, k4}));
  EXPECT_TRUE(CanNarrow(hot, {k8, k8}));
  EncodedBlock four = *EncodeToHeap(hot, Spec(k4, k4), artifacts);
  EXPECT_LT(RelativeError(exact.k, DecodeFloats(four, artifacts)->k), 0.12);
  EXPECT_GT(four.header->errors[0].int4, hot.header->errors[0].int8) << "errors add up";
  // The same class by another codec would only lose: it is kept.
  EncodedBlock kept = *EncodeToHeap(hot, Spec(k8, k8), artifacts);
  EXPECT_EQ(BytesOf(kept), BytesOf(hot));

  EncodedBlock by_channel = *EncodeToHeap(source, Spec(k8, k8), artifacts);
  auto balance = artifacts.Add(MakeBalance(shape, kSeed));
  EncodeSpec by_token = Spec(k4, k4, KeyMethod::kBalancedRotated, balance);
  EncodedBlock recoded = *EncodeToHeap(by_channel, by_token, artifacts);
  EXPECT_EQ(recoded.header->CodingOf(Part::kK).codec, CodecId::kNestedToken);
  EXPECT_EQ(recoded.header->CodingOf(Part::kK).artifact, balance->digest());
  EXPECT_LT(RelativeError(exact.k, DecodeFloats(recoded, artifacts)->k), 0.3);
}

TEST(BlockCodec, MetadataWidensWhereHalvesWouldNotDo) {
  TestArtifacts artifacts;
  BlockShape shape{1, 1, 64, 64, 32};
  auto meta_type = [&](const RawBlock& raw, Part part) {
    return EncodeToHeap(raw.Wrap(), Spec(k4, k4), artifacts)->header->CodingOf(part).meta_type;
  };
  EXPECT_EQ(meta_type(MakeBlock(shape, DType::kFp16, kSeed), Part::kK), MetaType::kFp16);
  EXPECT_EQ(meta_type(MakeBlock(shape, DType::kFp16, kSeed), Part::kV), MetaType::kFp16);
  EXPECT_EQ(meta_type(MakeBlock(shape, DType::kBf16, kSeed), Part::kV), MetaType::kBf16);
  RawBlock tiny = MakeBlock(shape, DType::kFp16, kSeed, 1e-5f);
  EXPECT_EQ(meta_type(tiny, Part::kK), MetaType::kFp32);
  EXPECT_EQ(meta_type(tiny, Part::kV), MetaType::kFp32);
  RawBlock huge = MakeBlock(shape, DType::kFp16, kSeed);
  for (uint64_t i = 0; i < 64; ++i) huge.Set(Part::kV, i, 65504);
  EXPECT_EQ(meta_type(huge, Part::kV), MetaType::kFp32) << "the rotation reaches 65504 * 8";
}

TEST(BlockCodec, LaddersTakeRowsThatAreWideEnough) {
  TestArtifacts artifacts;
  auto coding = [&](uint32_t width, Ladder ladder, KeyMethod method, Part part, float size = 1.0f) {
    EncodeSpec spec = Spec(k4, k4, method);
    spec.ladder = ladder;
    RawBlock raw = MakeBlock({1, 1, width, width, 32}, DType::kFp16, kSeed, size);
    return EncodeToHeap(raw.Wrap(), spec, artifacts)->header->CodingOf(part);
  };
  constexpr KeyMethod kRotated = KeyMethod::kRotated;
  EXPECT_EQ(coding(128, Ladder::kGain, kRotated, Part::kK).codec, CodecId::kNestedGain);
  EXPECT_EQ(coding(64, Ladder::kTrellis, kRotated, Part::kK).codec, CodecId::kNestedTrellis);
  EXPECT_EQ(coding(96, Ladder::kTrellis, kRotated, Part::kK).codec, CodecId::kNestedToken);
  EXPECT_EQ(coding(96, Ladder::kTrellis, kRotated, Part::kV).group, 96);
  EXPECT_EQ(coding(128, Ladder::kGain, KeyMethod::kPerChannel, Part::kK).codec, CodecId::kNestedChannel);
  EXPECT_EQ(coding(128, Ladder::kGain, KeyMethod::kPerChannel, Part::kV).codec, CodecId::kNestedGain);
  EXPECT_EQ(coding(128, Ladder::kTrellis, kRotated, Part::kV).meta_type, MetaType::kFp16);
  EXPECT_EQ(coding(128, Ladder::kTrellis, kRotated, Part::kV, 1e-5f).meta_type, MetaType::kFp32);
}

TEST(BlockCodec, BadRequestsAreRefusedWithReasons) {
  TestArtifacts artifacts;
  BlockShape shape{2, 2, 32, 32, 8};
  RawBlock raw = MakeBlock(shape, DType::kFp16, kSeed);
  EncodedBlock source = raw.Wrap();
  auto code = [](const auto& result) { return result.status().code(); };
  EXPECT_EQ(code(EncodeToHeap(source, Spec(k4, k4, KeyMethod::kBalancedRotated), artifacts)),
            absl::StatusCode::kFailedPrecondition);
  BlockShape other = shape;
  other.layers = 3;
  EXPECT_EQ(code(EncodeToHeap(source, Spec(k4, k4, KeyMethod::kBalancedRotated, MakeBalance(other, 1)), artifacts)),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(EncodeToHeap(source, Spec(PrecisionClass::kNone, k4), artifacts)), absl::StatusCode::kInvalidArgument);
  raw.k.pop_back();
  EXPECT_EQ(code(WrapRaw({}, DType::kFp16, shape, raw.k, raw.v, {}, {})), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(PlanIdentity({}, DType::kFp32, shape)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(PlanIdentity({}, DType::kFp16, {0, 1, 1, 1, 1})), absl::StatusCode::kInvalidArgument);

  // An artifact that has gone is an error, not wrong bytes.
  auto balance = MakeBalance(shape, 1);
  EncodedBlock coded = *EncodeToHeap(source, Spec(k4, k4, KeyMethod::kBalancedRotated, balance), artifacts);
  EXPECT_EQ(code(DecodeFloats(coded, artifacts)), absl::StatusCode::kFailedPrecondition);
  artifacts.Add(balance);
  EXPECT_TRUE(DecodeFloats(coded, artifacts).ok());
  std::vector<uint8_t> k(7), v(7);
  EXPECT_EQ(Decode(coded, artifacts, {}, k, v).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Decode(coded, artifacts, {.first_layer = 2}, k, v).code(), absl::StatusCode::kInvalidArgument);
  auto as_fp8 = DecodeAs(coded, artifacts, DType::kFp8E4m3);
  EXPECT_EQ(code(as_fp8), absl::StatusCode::kInvalidArgument);
}

TEST(BlockCodec, HeadersThatLieAreDataLoss) {
  TestArtifacts artifacts;
  BlockShape shape{2, 2, 32, 32, 8};
  EncodedBlock coded = *EncodeToHeap(MakeBlock(shape, DType::kFp16, kSeed).Wrap(), Spec(k8, k8), artifacts);
  auto lie = [&](auto change) {
    auto header = std::make_shared<RecordHeader>(*coded.header);
    change(header.get());
    EncodedBlock block = coded;
    block.header = std::move(header);
    return DecodeFloats(block, artifacts).status().code();
  };
  constexpr auto kLoss = absl::StatusCode::kDataLoss;
  EXPECT_EQ(lie([](RecordHeader* h) { h->coding[0].group = 0; }), kLoss);
  EXPECT_EQ(lie([](RecordHeader* h) { h->coding[0].group = 3; }), kLoss);
  EXPECT_EQ(lie([](RecordHeader* h) { h->coding[1].meta_type = MetaType::kFp32; }), kLoss);
  EXPECT_EQ(lie([](RecordHeader* h) { h->coding[1].meta_type = MetaType::kNone; }), kLoss);
  EXPECT_EQ(lie([](RecordHeader* h) { h->coding[0].flags = PartCoding::kRotated; }), kLoss);
  EXPECT_EQ(lie([](RecordHeader* h) { h->coding[1].flags |= PartCoding::kBalanced; }), kLoss);
  EXPECT_EQ(lie([](RecordHeader* h) { h->shape.tokens = 9; }), kLoss);
  EXPECT_EQ(lie([](RecordHeader* h) { h->exact_tokens = 1; }), kLoss);
  EXPECT_EQ(lie([](RecordHeader* h) { h->coding[0].codec = CodecId::kIdentity; }), kLoss);
  EXPECT_EQ(lie([](RecordHeader*) {}), absl::StatusCode::kOk);
  EncodedBlock cut = coded;
  cut.runs[RunIndex(RunKind::kP4, Part::kV)] = coded.runs[RunIndex(RunKind::kP4, Part::kV)].Slice(0, 5);
  EXPECT_EQ(DecodeFloats(cut, artifacts).status().code(), kLoss);
}

TEST(BlockCodec, KeptRunsKeepTheirChecksums) {
  TestArtifacts artifacts;
  BlockShape shape{2, 2, 64, 64, 32};
  EncodedBlock eight = *EncodeToHeap(MakeBlock(shape, DType::kFp16, kSeed).Wrap(), Spec(k8, k8), artifacts);
  // A damaged plane is still damaged after a move: copying does not vouch for what it copies.
  std::vector<uint8_t> damaged = BytesOf(eight.runs[RunIndex(RunKind::kP4, Part::kK)]);
  damaged[5] ^= 1;
  EncodedBlock block = eight;
  block.runs[RunIndex(RunKind::kP4, Part::kK)] = RunBytes(ByteSpan(damaged));
  EncodedBlock moved = *EncodeToHeap(block, Spec(k4, k4), artifacts);
  EXPECT_EQ(IntactRuns(moved), moved.present - RunMask::Of(RunKind::kP4, Part::kK));
}

TEST(KeyBalanceTest, SerializesAndRefusesDamage) {
  auto balance = MakeBalance({2, 3, 16, 0, 1}, kSeed);
  auto again = Artifact::Parse(balance->serialized());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ((*again)->digest(), balance->digest());
  EXPECT_TRUE(std::ranges::equal((*again)->Mean(1, 2), balance->Mean(1, 2)));
  EXPECT_TRUE(std::ranges::equal((*again)->Weight(1, 2), balance->Weight(1, 2)));
  for (size_t at = 0; at < balance->serialized().size(); at += 5) {
    std::vector<uint8_t> damaged = balance->serialized();
    damaged[at] ^= 0x10;
    EXPECT_EQ(Artifact::Parse(damaged).status().code(), absl::StatusCode::kDataLoss) << at;
    EXPECT_EQ(Artifact::Parse(ByteSpan(balance->serialized()).first(at)).status().code(), absl::StatusCode::kDataLoss);
  }
  auto create = [](float mean, float weight) {
    return Artifact::CreateBalance(1, 1, 1, {mean}, {weight}).status().code();
  };
  EXPECT_EQ(create(0, 1), absl::StatusCode::kOk);
  for (float weight : {0.0f, -1.0f, NAN, INFINITY, 1e-39f}) {
    EXPECT_EQ(create(0, weight), absl::StatusCode::kInvalidArgument) << weight;
  }
  EXPECT_EQ(create(NAN, 1), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Artifact::CreateBalance(1, 1, 2, {0}, {1}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Artifact::CreateBalance(1024, 4096, 1 << 20, {}, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace firn
