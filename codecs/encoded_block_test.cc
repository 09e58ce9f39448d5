#include "codecs/encoded_block.h"

#include <gtest/gtest.h>

#include <numeric>

#include "codecs/rules_test_util.h"

namespace firn {
namespace {

std::vector<uint8_t> Numbers(size_t count) {
  std::vector<uint8_t> bytes(count);
  std::iota(bytes.begin(), bytes.end(), uint8_t{1});
  return bytes;
}

template <typename Byte>
Scattered<Byte> Cut(std::span<Byte> whole, size_t piece_bytes) {
  Scattered<Byte> out;
  for (size_t at = 0; at < whole.size(); at += piece_bytes) {
    out.Append(whole.subspan(at, std::min(piece_bytes, whole.size() - at)));
  }
  return out;
}

TEST(Scattered, CopiesBetweenAnyTwoCuts) {
  const std::vector<uint8_t> source = Numbers(200);
  for (size_t from : {1u, 3u, 64u, 200u}) {
    for (size_t to : {1u, 5u, 63u, 250u}) {
      std::vector<uint8_t> target(220, 0);
      CopyScattered(Cut(ByteSpan(source), from), Cut(MutableByteSpan(target), to));
      EXPECT_TRUE(std::equal(source.begin(), source.end(), target.begin()));
      EXPECT_EQ(std::count(target.begin() + 200, target.end(), 0), 20);
    }
  }
}

TEST(Scattered, SlicesAcrossPieces) {
  const std::vector<uint8_t> source = Numbers(100);
  RunBytes run = Cut(ByteSpan(source), 7);
  for (uint64_t offset : {0u, 6u, 7u, 50u}) {
    for (uint64_t length : {0u, 1u, 8u, 50u}) {
      RunBytes slice = run.Slice(offset, length);
      std::vector<uint8_t> got(length);
      CopyScattered(slice, MutableRunBytes(got));
      EXPECT_TRUE(std::equal(got.begin(), got.end(), source.begin() + static_cast<ptrdiff_t>(offset)));
    }
  }
}

TEST(ScatteredDeathTest, NeverWritesPastTheEnd) {
  const std::vector<uint8_t> source = Numbers(10);
  std::vector<uint8_t> target(9);
  EXPECT_DEATH(CopyScattered(RunBytes(source), MutableRunBytes(target)), "check failed");
  EXPECT_DEATH(RunBytes(source).Slice(5, 6), "check failed");
}

TEST(EncodedBlock, NarrowedKeepsTheOwnerAndDropsTheRest) {
  EncodedBlock block;
  auto bytes = std::make_shared<std::vector<uint8_t>>(Numbers(30));
  auto header = std::make_shared<RecordHeader>();
  header->identity.namespace_fingerprint.bytes[0] = 9;
  block.header = header;
  block.owner = bytes;
  block.present = RunMask::Both(RunKind::kP2);
  block.runs[RunIndex(RunKind::kP2, Part::kK)] = RunBytes(ByteSpan(*bytes).first(10));
  block.runs[RunIndex(RunKind::kP2, Part::kV)] = RunBytes(ByteSpan(*bytes).subspan(10));
  std::weak_ptr<void> watch = bytes;
  bytes.reset();
  EncodedBlock narrowed = block.Narrowed(RunMask::Of(RunKind::kP2, Part::kV) | RunMask::Both(RunKind::kP8));
  block = {};
  EXPECT_FALSE(watch.expired());
  EXPECT_EQ(narrowed.present, RunMask::Of(RunKind::kP2, Part::kV));
  RecordLayout layout = narrowed.Layout(RunMask::All());
  EXPECT_EQ(layout.TotalBytes(), 20u);
  EXPECT_EQ(layout.present, narrowed.present);
  EXPECT_EQ(layout.namespace_tag, NamespaceTag(header->identity.namespace_fingerprint));
  narrowed = {};
  EXPECT_TRUE(watch.expired());
}

// A record whose header has lost a run that its coding reads, tidily and with the CRC put right.
absl::StatusOr<EncodedBlock> Without(const EncodedBlock& block, RunKind kind, Part part) {
  RecordHeader header = *block.header;
  RunMask lost = RunMask::Of(kind, part);
  header.encoded = header.encoded - lost;
  header.runs[RunIndex(kind, part)] = {};
  if (absl::Status status = CheckHeader(header); !status.ok()) return status;
  EncodedBlock out = block.Narrowed(header.encoded);
  FIRN_ASSIGN_OR_RETURN(header, ParseHeader(SerializeHeader(header), nullptr));
  out.header = std::make_shared<const RecordHeader>(std::move(header));
  return out;
}

TEST(DamagedHeaders, MissingRunsAreToldAndNeverRead) {
  BlockShape shape{2, 2, 64, 32, 37};
  TestArtifacts artifacts;
  std::vector<EncodedBlock> blocks;
  auto add = [&](DType dtype, EncodeSpec spec) {
    for (uint32_t kept : {0u, 4u, shape.tokens - 1}) {
      spec.keep_first_tokens = kept;
      blocks.push_back(*EncodeToHeap(MakeBlock(shape, dtype, 3).Wrap(), spec, artifacts));
    }
  };
  for (const RuleCase& c : RuleCases()) {
    add(DType::kBf16, RuleSpec(c, shape, &artifacts));
    // Keys that keep nothing exactly, of a code that may.
    EncodeSpec plain = RuleSpec(c, shape, &artifacts);
    plain.rules[0][0].coding.outliers = 0;
    add(DType::kFp16, plain);
  }
  add(DType::kFp8E4m3, Spec(PrecisionClass::k4Bit, PrecisionClass::k2Bit));
  for (DType dtype : {DType::kFp8E4m3, DType::kFp8E5m2, DType::kBf16}) {
    blocks.push_back(MakeBlock(shape, dtype, 3).Wrap());  // As they came.
  }
  int whole = 0, refused = 0;
  for (const EncodedBlock& block : blocks) {
    EXPECT_TRUE(DecodeFloats(block, artifacts).ok());
    ++whole;
    for (uint32_t run = 0; run < kRunIds; ++run) {
      if (block.runs[run].size() == 0) continue;
      auto lacking = Without(block, RunKindOf(run), RunPartOf(run));
      auto decoded = lacking.ok() ? DecodeFloats(*lacking, artifacts) : lacking.status();
      // Planes of finer classes are not missed.
      bool finer = RunKindOf(run) == RunKind::kP4 || RunKindOf(run) == RunKind::kP8;
      EXPECT_EQ(decoded.ok(), finer) << "run " << run << " of codec "
                                     << static_cast<int>(block.header->CodingOf(RunPartOf(run)).codec);
      refused += decoded.ok() ? 0 : 1;
    }
  }
  EXPECT_GT(refused, 3 * whole);
}

}  // namespace
}  // namespace firn
