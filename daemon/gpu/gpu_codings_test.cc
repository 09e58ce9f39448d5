// Every coding through the child as the process that it is, on the processor and on a GPU: a block is coded as the
// codecs code it, byte for byte, and what comes back into a worker's memory is what they decode.
//
// Nothing here may pass because the child leaves it to the processor: what is Unimplemented is a failure, unless the
// test says so. A case that fails does not keep the others from running.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <limits>

#include "codecs/rules_test_util.h"
#include "daemon/gpu/gpu_child_fixture_test_util.h"
#include "daemon/gpu/gpu_worker_memory_test_util.h"

namespace firn {
namespace {

using enum PrecisionClass;

constexpr BlockShape kShapes[] = {
    {.layers = 3, .heads = 2, .k_width = 64, .v_width = 96, .tokens = 37},
    {.layers = 8, .heads = 4, .k_width = 128, .v_width = 128, .tokens = 64},
    {.layers = 2, .heads = 1, .k_width = 576, .v_width = 80, .tokens = 5},
    {.layers = 5, .heads = 3, .k_width = 7, .v_width = 130, .tokens = 17},
    {.layers = 9, .heads = 4, .k_width = 128, .v_width = 256, .tokens = 65},
    {.layers = 4, .heads = 2, .k_width = 128, .v_width = 0, .tokens = 16},
};

constexpr uint8_t kRotated = PartCoding::kRotated, kCentred = PartCoding::kCentred, kBalanced = PartCoding::kBalanced;
constexpr uint8_t kPreRope = PartCoding::kPreRope, kSymmetric = PartCoding::kSymmetric;
constexpr uint8_t kCalibrated = PartCoding::kCalibrated;
constexpr uint8_t kConditionings[] = {
    0, kRotated, kCentred, kRotated | kCentred | kBalanced, kPreRope, kPreRope | kRotated | kBalanced};

PrecisionClass ClassOfBits(uint8_t bits) { return static_cast<PrecisionClass>(bits); }

RuleCase Rule(CodecId codec, PrecisionClass at, uint8_t bits, uint16_t group, uint8_t flags, uint8_t outliers = 0,
              MetaType meta = MetaType::kNone) {
  RuleCase c{"", at, codec, bits, group, flags, outliers, meta};
  bool codebook = codec == CodecId::kNuqChannel || codec == CodecId::kNuqToken;
  c.uses_artifact = codebook || (flags & (kCentred | kBalanced | kPreRope | kCalibrated)) != 0;
  c.name = fmt::format("codec {} bits {} group {} flags {:#x} outliers {} meta {}", static_cast<int>(codec), bits,
                       group, flags, outliers, static_cast<int>(meta));
  return c;
}

// K and V by rules of their own.
EncodeSpec SpecOf(const RuleCase& k, const RuleCase& v, const BlockShape& shape, TestArtifacts* artifacts) {
  EncodeSpec spec = RuleSpec(k, shape, artifacts);
  spec.rules[1] = RuleSpec(v, shape, artifacts).rules[1];
  spec.target.v = v.at;
  return spec;
}

// Where a worker has a block: canonically, or in pages with others' between them, all heads of a token together.
class WorkerRows {
 public:
  WorkerRows(const BlockShape& shape, uint32_t value_bytes, const DeviceHandle& handle, bool paged) : shape_(shape) {
    rows_.memory = {handle};
    for (Part part : kParts) {
      const PartShape of = shape.part(part);
      if (of.width == 0) continue;
      DevicePart& to = rows_.parts[static_cast<size_t>(part)];
      const uint64_t row_bytes = uint64_t{of.width} * value_bytes;
      to.page_tokens = paged ? 16 : of.tokens;
      const uint32_t pages = (of.tokens - 1) / to.page_tokens + 1;
      for (uint32_t i = 0; i < pages; ++i) to.pages.push_back(paged ? 2 * (pages - 1 - i) + 1 : 0);
      to.token_stride = paged ? of.heads * row_bytes : row_bytes;
      to.head_stride = paged ? row_bytes : of.tokens * row_bytes;
      to.page_stride = to.page_tokens * of.heads * row_bytes;
      for (uint32_t layer = 0; layer < of.layers; ++layer) {
        to.layers.push_back({0, bytes_});
        bytes_ += (paged ? 2 * pages : 1) * to.page_stride;
      }
      bytes_ = (bytes_ + 255) / 256 * 256;
    }
  }
  const DeviceRows& rows() const { return rows_; }
  uint64_t bytes() const { return bytes_; }
  // A part in canonical order.
  std::vector<uint8_t> Gather(const std::vector<uint8_t>& memory, Part part, uint32_t value_bytes) const {
    const PartShape of = shape_.part(part);
    const DevicePart& from = rows_.parts[static_cast<size_t>(part)];
    std::vector<uint8_t> canonical;
    for (const DeviceLayer& layer : from.layers) {
      for (uint32_t head = 0; head < of.heads; ++head) {
        for (uint32_t token = 0; token < of.tokens; ++token) {
          const uint8_t* row = memory.data() + layer.offset + from.pages[token / from.page_tokens] * from.page_stride +
                               token % from.page_tokens * from.token_stride + head * from.head_stride;
          canonical.insert(canonical.end(), row, row + uint64_t{of.width} * value_bytes);
        }
      }
    }
    return canonical;
  }

 private:
  BlockShape shape_;
  DeviceRows rows_;
  uint64_t bytes_ = 0;
};

class GpuCodingsTest : public GpuChildFixture {
 protected:
  void OpenWithMemory() {
    Open();
    if (HasFatalFailure()) return;
    memory = MakeWorkerMemory(GetParam(), 64 * kMiB);
    ASSERT_NE(memory, nullptr) << "this test was built without CUDA";
  }
  void TearDown() override {
    tier.reset();  // The child has the worker's memory open, which goes first otherwise.
    if (checked > 0) std::printf("%d cases, %d wrong, %d that do not fit their metadata\n", checked, wrong, unfit);
    if (wrong > kWrongPrinted) ADD_FAILURE() << wrong - kWrongPrinted << " cases more were wrong";
    // What does not fit is refused, rightly, but says nothing of the coding.
    EXPECT_LE(unfit * 4, checked);
  }
  // One case, which has a name.
  void Check(const std::string& name, const RawBlock& raw, const EncodeSpec& spec) {
    ++checked;
    std::string what = tier->WaitUntilUp(60'000) ? WrongWith(raw, spec) : "no child";
    if (what.empty() || ++wrong > kWrongPrinted) return;
    ADD_FAILURE() << fmt::format("{}; {} layers, {} heads, {} tokens from {}, K {} wide, V {} wide, {}, keeps {}: {}",
                                 name, raw.shape.layers, raw.shape.heads, raw.shape.tokens, raw.first_token,
                                 raw.shape.k_width, raw.shape.v_width, DTypeName(raw.dtype), spec.keep_first_tokens,
                                 what);
  }
  // The processor's child has nothing that the codecs have not: one case in `each` is enough.
  bool Take(int each) { return turns++ % each == 0 || GetParam().cuda; }
  // A block, made once.
  RawBlock Block(const BlockShape& shape, DType dtype, float size) {
    for (const auto& [block, of_size] : blocks) {
      if (block.shape == shape && block.dtype == dtype && of_size == size) return block;
    }
    blocks.emplace_back(MakeBlock(shape, dtype, 11, size), size);
    return blocks.back().first;
  }
  // Every shape and type in turn with the coding of both parts, with exact tokens and without.
  void CheckShapes(const RuleCase& c, float size) {
    for (const BlockShape& shape : kShapes) {
      for (DType dtype : {DType::kFp16, DType::kBf16}) {
        const int turn = turns;
        if (!Take(7)) continue;
        RawBlock raw = Block(shape, dtype, size);
        raw.first_token = turn % 3 == 0 ? 0 : 1000;
        EncodeSpec spec = RuleSpec(c, shape, &artifacts);
        spec.keep_first_tokens = turn % 2 == 0 ? 0 : raw.first_token + 3;
        Check(c.name, raw, spec);
      }
    }
  }

  // What is wrong with coding the block and decoding it again; nothing: all is right.
  std::string WrongWith(const RawBlock& raw, const EncodeSpec& spec) {
    EncodedBlock source = Seal(raw);
    auto expected = EncodeToHeap(source, spec, artifacts);
    if (!expected.ok()) return fmt::format("the codecs: {}", expected.status().ToString());
    auto plan = PlanEncode(source, spec);
    auto copy = Commit(source);
    if (!copy.ok()) return fmt::format("commit: {}", copy.status().ToString());
    Recoded recoded = StartRecode(*copy, spec).get();
    if (plan->header.coding != expected->header->coding) {
      ++unfit;
      if (!DoesNotFit(recoded.status())) return fmt::format("should not fit: {}", recoded.status().ToString());
    } else {
      if (!recoded.ok()) return fmt::format("recode: {}{}", recoded.status().ToString(), LastFailure());
      std::string difference = DifferenceOf(*recoded, *expected);
      if (!difference.empty()) return fmt::format("recode: {}", difference);
    }
    return WrongWithDecoding(*expected);
  }
  // From the pool, where no processor helps.
  std::string WrongWithDecoding(const EncodedBlock& block) {
    auto copy = Commit(block);
    if (!copy.ok()) return fmt::format("commit of codes: {}", copy.status().ToString());
    return WrongWithExport(block, *copy);
  }
  std::string WrongWithExport(const EncodedBlock& block, const CopyPtr& copy) {
    const RecordHeader& header = *block.header;
    const uint32_t value_bytes = DTypeBytes(header.dtype);
    auto expected = DecodeAs(block, artifacts, header.dtype);
    if (!expected.ok()) return fmt::format("decode: {}", expected.status().ToString());
    WorkerRows rows(header.shape, value_bytes, memory->handle(), /*paged=*/exports++ % 2 == 1);
    memory->Fill(0xEE, rows.bytes());
    std::promise<absl::Status> answer;
    tier->device_mover()->Export(block, copy, artifacts, rows.rows(),
                                 [&answer](absl::Status status) { answer.set_value(std::move(status)); });
    absl::Status status = answer.get_future().get();
    if (!status.ok()) return fmt::format("export: {}{}", status.ToString(), LastFailure());
    std::vector<uint8_t> bytes = memory->Read(rows.bytes());
    for (Part part : kParts) {
      std::string difference = DifferenceOf(ByteSpan(rows.Gather(bytes, part, value_bytes)),
                                            part == Part::kK ? expected->first : expected->second);
      if (!difference.empty()) return fmt::format("export of {}: {}", part == Part::kK ? "K" : "V", difference);
    }
    return "";
  }
  static bool DoesNotFit(const absl::Status& status) {
    return absl::IsUnimplemented(status) &&
           status.message().find("do not fit the metadata planned for them") != std::string_view::npos;
  }
  std::string LastFailure() const {
    std::string failure = tier->LinkStats().last_failure;
    return failure.empty() ? "" : fmt::format(" (the child's last failure: {})", failure);
  }

  static constexpr int kWrongPrinted = 40;
  std::unique_ptr<GpuWorkerMemory> memory;
  std::vector<std::pair<RawBlock, float>> blocks;
  int checked = 0, wrong = 0, unfit = 0, turns = 0, exports = 0;
};

TEST_P(GpuCodingsTest, EveryRule) {
  ASSERT_NO_FATAL_FAILURE(OpenWithMemory());
  for (const RuleCase& c : RuleCases()) CheckShapes(c, 1.0f);
}

struct PresetCase {
  const char* name;
  RuleCase k, v;
  uint32_t keep_first_tokens = 0;
};
std::vector<PresetCase> PresetCases() {
  std::vector<PresetCase> presets;
  auto both = [&](const char* name, const RuleCase& c) { presets.push_back({name, c, c}); };
  both("fp8", Rule(CodecId::kFp8E4m3, k8Bit, 0, 0, 0, 0, MetaType::kFp32));
  both("int8", Rule(CodecId::kIntToken, k8Bit, 8, 128, 0));
  both("int4", Rule(CodecId::kIntToken, k4Bit, 4, 64, 0));
  for (uint8_t bits : {4, 2}) {
    presets.push_back({bits == 4 ? "kivi-4" : "kivi-2", Rule(CodecId::kIntChannel, ClassOfBits(bits), bits, 32, 0),
                       Rule(CodecId::kIntToken, ClassOfBits(bits), bits, 32, 0)});
  }
  for (uint8_t bits : {4, 3, 2}) {
    presets.push_back({"kvquant", Rule(CodecId::kNuqChannel, ClassOfBits(bits), bits, 64, kPreRope, 15),
                       Rule(CodecId::kNuqToken, ClassOfBits(bits), bits, 0, 0, 10), 1});
  }
  presets.push_back({"mikv without importance", Rule(CodecId::kIntToken, k3Bit, 3, 64, kBalanced),
                     Rule(CodecId::kIntToken, k3Bit, 3, 64, 0)});
  return presets;
}

TEST_P(GpuCodingsTest, EveryPreset) {
  ASSERT_NO_FATAL_FAILURE(OpenWithMemory());
  for (const BlockShape& shape : kShapes) {
    for (DType dtype : {DType::kFp16, DType::kBf16}) {
      for (const PresetCase& preset : PresetCases()) {
        for (uint32_t first_token : {0u, 512u}) {
          if (!Take(5)) continue;
          RawBlock raw = Block(shape, dtype, 16.0f);
          raw.first_token = first_token;
          EncodeSpec spec = SpecOf(preset.k, preset.v, shape, &artifacts);
          spec.keep_first_tokens = preset.keep_first_tokens;
          Check(fmt::format("preset {}, K {}", preset.name, preset.k.name), raw, spec);
        }
      }
      auto balance = artifacts.Add(MakeBalance(shape, 5));
      for (PrecisionClass target : {k8Bit, k4Bit, k2Bit}) {
        for (KeyMethod method : {KeyMethod::kPerChannel, KeyMethod::kRotated, KeyMethod::kBalancedRotated}) {
          if (!Take(5)) continue;
          EncodeSpec spec = Spec(target, target, method, balance);
          spec.keep_first_tokens = shape.tokens > 8 ? 4 : 0;
          Check("preset firn-fast", Block(shape, dtype, 16.0f), spec);
        }
      }
    }
  }
}

TEST_P(GpuCodingsTest, EveryInteger) {
  ASSERT_NO_FATAL_FAILURE(OpenWithMemory());
  struct Axis {
    CodecId codec;
    uint16_t group;
  };
  constexpr Axis kAxes[] = {{CodecId::kIntToken, 32},
                            {CodecId::kIntToken, 24},
                            {CodecId::kIntChannel, 32},
                            {CodecId::kIntChannel, 5},
                            {CodecId::kIntTensor, 0}};
  for (uint8_t bits : {8, 4, 3, 2}) {
    for (const Axis& axis : kAxes) {
      for (uint8_t flags : kConditionings) {
        CheckShapes(Rule(axis.codec, ClassOfBits(bits), bits, axis.group, flags), 16.0f);
        CheckShapes(Rule(axis.codec, ClassOfBits(bits), bits, axis.group, flags | kSymmetric), 16.0f);
      }
      CheckShapes(Rule(axis.codec, ClassOfBits(bits), bits, axis.group, 0, 0, MetaType::kFp32), 16.0f);
    }
  }
  for (CodecId codec : {CodecId::kIntToken, CodecId::kIntTensor}) {
    for (uint8_t flags : kConditionings) {
      CheckShapes(Rule(codec, k8Bit, 8, 0, flags | kSymmetric | kCalibrated), 1.0f);
    }
  }
}

TEST_P(GpuCodingsTest, EveryCodebook) {
  ASSERT_NO_FATAL_FAILURE(OpenWithMemory());
  for (uint8_t bits : {4, 3, 2}) {
    for (uint8_t outliers : {0, 10, 50}) {
      for (uint8_t flags : {uint8_t{0}, kPreRope}) {
        for (uint16_t group : {0, 1, 5, 64}) {
          CheckShapes(Rule(CodecId::kNuqChannel, ClassOfBits(bits), bits, group, flags, outliers), 1.0f);
        }
      }
      for (uint8_t flags : kConditionings) {
        CheckShapes(Rule(CodecId::kNuqToken, ClassOfBits(bits), bits, 0, flags, outliers), 1.0f);
      }
    }
    CheckShapes(Rule(CodecId::kNuqChannel, ClassOfBits(bits), bits, 48, kPreRope, 15, MetaType::kFp32), 1.0f);
    CheckShapes(Rule(CodecId::kNuqToken, ClassOfBits(bits), bits, 0, 0, 10, MetaType::kFp32), 1.0f);
  }
}

TEST_P(GpuCodingsTest, EveryFloatingPointCode) {
  ASSERT_NO_FATAL_FAILURE(OpenWithMemory());
  for (uint8_t flags : kConditionings) {
    CheckShapes(Rule(CodecId::kNvFp4, k4Bit, 0, 0, flags, 0, MetaType::kFp32), 1.0f);
    CheckShapes(Rule(CodecId::kMxFp4, k4Bit, 0, 0, flags, 0, MetaType::kFp32), 1.0f);
    for (CodecId codec : {CodecId::kFp8E4m3, CodecId::kFp8E5m2}) {
      for (uint16_t group : {0, 7, 32}) {
        CheckShapes(Rule(codec, k8Bit, 0, group, flags, 0, MetaType::kFp32), 1.0f);
      }
      CheckShapes(Rule(codec, k8Bit, 0, 0, flags | kCalibrated, 0, MetaType::kFp32), 1.0f);
    }
    for (CodecId codec : {CodecId::kFp8E4m3Tensor, CodecId::kFp8E5m2Tensor}) {
      CheckShapes(Rule(codec, k8Bit, 0, 0, flags, 0, MetaType::kFp32), 1.0f);
    }
  }
}

// One part coded and the other as it came, a class that some planes are enough for, and codes out of another tier.
TEST_P(GpuCodingsTest, WhatIsThereIsDecoded) {
  ASSERT_NO_FATAL_FAILURE(OpenWithMemory());
  for (const BlockShape& shape : kShapes) {
    if (shape.v_width == 0) continue;
    RawBlock raw = MakeBlock(shape, DType::kFp16, 11, 16.0f);
    for (uint32_t kept : {0u, 3u}) {
      EncodeSpec spec = Spec(kExact, k4Bit);
      spec.keep_first_tokens = kept;
      auto block = EncodeToHeap(Seal(raw), spec, artifacts);
      ASSERT_TRUE(block.ok()) << block.status();
      EXPECT_EQ(WrongWithDecoding(*block), "") << "keys as they came, " << kept << " tokens exact";
    }
    auto ladder = EncodeToHeap(Seal(raw), Spec(k8Bit, k8Bit, KeyMethod::kRotated), artifacts);
    ASSERT_TRUE(ladder.ok()) << ladder.status();
    for (ClassPair classes : {ClassPair{k4Bit, k4Bit}, ClassPair{k2Bit, k4Bit}, ClassPair{k8Bit, k2Bit}}) {
      auto copy = Commit(*ladder);
      ASSERT_TRUE(copy.ok()) << copy.status();
      EncodedBlock some = *ladder;
      some.present = RunsFor(*ladder->header, classes);
      EXPECT_EQ(WrongWithExport(some, *copy), "") << "some planes";
    }
    for (const RuleCase& c : RuleCases()) {
      auto codes = EncodeToHeap(Seal(raw), RuleSpec(c, shape, &artifacts), artifacts);
      ASSERT_TRUE(codes.ok()) << codes.status();
      EXPECT_EQ(WrongWithExport(*codes, nullptr), "") << c.name << " from memory";
    }
  }
}

// Blocks that lie apart in their sequence go together; one that does not fit and one that is damaged among them are
// told apart from the others.
TEST_P(GpuCodingsTest, ManyAtOnceAreAsRightAsOne) {
  ASSERT_NO_FATAL_FAILURE(OpenWithMemory());
  const BlockShape shape = kShapes[0];
  constexpr size_t kBlocks = 20;
  for (const RuleCase& c : RuleCases()) {
    SCOPED_TRACE(c.name);
    EncodeSpec spec = RuleSpec(c, shape, &artifacts);
    std::vector<EncodedBlock> sources;
    std::vector<CopyPtr> copies;
    for (size_t i = 0; i < kBlocks; ++i) {
      RawBlock raw = MakeBlock(shape, DType::kFp16, 100 + i, 16.0f);
      raw.first_token = static_cast<uint32_t>(i * 1000003);
      if (i == 7) raw.Set(Part::kV, 1234, std::numeric_limits<float>::quiet_NaN());
      EncodedBlock source = Seal(raw);
      auto header = std::make_shared<RecordHeader>(*source.header);
      header->flags = 0;  // As a header of before would have it: nobody looked.
      if (i == 11) header->runs[RunIndex(RunKind::kWhole, Part::kK)].checks.back() ^= 4;
      source.header = std::move(header);
      auto copy = Commit(source);
      ASSERT_TRUE(copy.ok()) << copy.status();
      copies.push_back(*std::move(copy));
      sources.push_back(std::move(source));
    }
    std::vector<std::future<Recoded>> answers;
    for (const CopyPtr& copy : copies) answers.push_back(StartRecode(copy, spec));
    for (size_t i = 0; i < kBlocks; ++i) {
      SCOPED_TRACE(i);
      Recoded recoded = answers[i].get();
      if (i == 7) {
        EXPECT_TRUE(DoesNotFit(recoded.status())) << recoded.status();
      } else if (i == 11) {
        EXPECT_TRUE(absl::IsDataLoss(recoded.status())) << recoded.status();
      } else if (!DoesNotFit(recoded.status()) || PlanEncode(sources[i], spec)->header.coding ==
                                                      EncodeToHeap(sources[i], spec, artifacts)->header->coding) {
        ExpectEqual(recoded, sources[i], spec);
      }
    }
  }
}

// BF16 holds values that rotation cannot bring back.
TEST_P(GpuCodingsTest, WhatRotationCannotUndoIsNotCoded) {
  ASSERT_NO_FATAL_FAILURE(OpenWithMemory());
  for (const BlockShape& shape : {kShapes[0], kShapes[1]}) {
    RawBlock raw = MakeBlock(shape, DType::kBf16, 9);
    raw.Set(Part::kV, 1234, 3e38f);
    for (const RuleCase& c : {Rule(CodecId::kFp8E4m3, k8Bit, 0, 0, kRotated, 0, MetaType::kFp32),
                              Rule(CodecId::kFp8E5m2Tensor, k8Bit, 0, 0, kRotated, 0, MetaType::kFp32),
                              Rule(CodecId::kMxFp4, k4Bit, 0, 0, kRotated, 0, MetaType::kFp32),
                              Rule(CodecId::kIntToken, k4Bit, 4, 64, kRotated)}) {
      SCOPED_TRACE(c.name);
      auto copy = Commit(Seal(raw));
      ASSERT_TRUE(copy.ok()) << copy.status();
      Recoded recoded = StartRecode(*copy, RuleSpec(c, shape, &artifacts)).get();
      EXPECT_TRUE(DoesNotFit(recoded.status())) << recoded.status();
    }
  }
}

// A GPU has no kernels for these, and says of which; the processor has.
TEST_P(GpuCodingsTest, WhatHasNoKernelIsLeftToTheProcessor) {
  ASSERT_NO_FATAL_FAILURE(OpenWithMemory());
  const BlockShape shape = kShapes[1];
  struct Left {
    const char* says;
    EncodeSpec spec;
  };
  std::vector<Left> left;
  EncodeSpec trellis = Spec(k4Bit, k4Bit, KeyMethod::kRotated);
  trellis.ladder = Ladder::kTrellis;
  left.push_back({"nested_trellis has no kernel", trellis});
  EncodeSpec gain = trellis;
  gain.ladder = Ladder::kGain;
  left.push_back({"nested_gain has no kernel", gain});
  EncodeSpec mixed = Spec(k2Bit, k2Bit);
  ClassMap classes(size_t{shape.layers} * shape.heads, k2Bit);
  classes[3] = k8Bit;
  mixed.classes[0] = std::make_shared<const ClassMap>(classes);
  left.push_back({"heads that differ in precision", mixed});
  EncodeSpec important = Spec(k4Bit, k4Bit);
  important.important_fraction = 0.2f;
  std::vector<uint8_t> ranks(shape.tokens, 0);
  for (size_t i = 0; i < ranks.size(); i += 3) ranks[i] = 200;
  important.importance = std::make_shared<const std::vector<uint8_t>>(ranks);
  left.push_back({"sets of exact tokens", important});
  for (const Left& of : left) {
    SCOPED_TRACE(of.says);
    EncodedBlock source = Seal(MakeBlock(shape, DType::kFp16, 5));
    auto copy = Commit(source);
    ASSERT_TRUE(copy.ok()) << copy.status();
    Recoded recoded = StartRecode(*copy, of.spec).get();
    if (!GetParam().cuda) {
      ExpectEqual(recoded, source, of.spec);
      continue;
    }
    EXPECT_TRUE(absl::IsUnimplemented(recoded.status())) << recoded.status();
    EXPECT_NE(recoded.status().message().find(of.says), std::string_view::npos) << recoded.status();
    // Gets decode it by the processor.
    auto codes = EncodeToHeap(source, of.spec, artifacts);
    ASSERT_TRUE(codes.ok()) << codes.status();
    EXPECT_EQ(WrongWithExport(*codes, nullptr), "");
  }
}

INSTANTIATE_TEST_SUITE_P(On, GpuCodingsTest, testing::Values(ChildKind{"Processor", false}, ChildKind{"Cuda", true}),
                         ChildKindName);

}  // namespace
}  // namespace firn
