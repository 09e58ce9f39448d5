#include "codecs/record.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <set>

#include "base/checksum.h"
#include "base/status.h"
#include "codecs/encoded_block.h"

namespace firn {
namespace {

Digest Numbered(uint8_t first) {
  Digest digest;
  for (size_t i = 0; i < 32; ++i) digest.bytes[i] = static_cast<uint8_t>(first + i);
  return digest;
}

std::vector<uint8_t> Sequence(size_t count, uint8_t first) {
  std::vector<uint8_t> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(first + i * 7);
  return bytes;
}

// A record and its bytes.
struct Sample {
  RecordHeader header;
  std::array<std::vector<uint8_t>, kRunIds> bytes;

  std::array<RunBytes, kRunIds> Runs() const {
    std::array<RunBytes, kRunIds> runs;
    for (uint32_t i = 0; i < kRunIds; ++i) runs[i] = RunBytes(ByteSpan(bytes[i]));
    return runs;
  }
  EncodedBlock Block() const {
    EncodedBlock block;
    block.header = std::make_shared<RecordHeader>(header);
    block.present = header.encoded;
    block.runs = Runs();
    return block;
  }
};

void AddRun(Sample* sample, RunKind kind, Part part, uint64_t bytes) {
  uint32_t i = RunIndex(kind, part);
  sample->header.encoded |= RunMask::Of(kind, part);
  sample->header.runs[i].bytes = bytes;
  sample->bytes[i] = Sequence(bytes, static_cast<uint8_t>(i * 16 + 1));
}

// Nested, with sinks, K and V of different width, every field set.
Sample NestedSample() {
  Sample sample;
  RecordHeader& header = sample.header;
  header.identity = {Numbered(0x10), Numbered(0x40), 3, 0x0102030405060708};
  header.parent = Numbered(0x80);
  header.first_token = 256;
  header.exact_tokens = 2;
  header.dtype = DType::kBf16;
  header.shape = {.layers = 3, .heads = 2, .k_width = 16, .v_width = 8, .tokens = 10};
  header.expires_unix_ms = 1'800'000'000'000;
  header.coding[0] = {.codec = CodecId::kNestedToken,
                      .meta_type = MetaType::kBf16,
                      .flags = PartCoding::kRotated | PartCoding::kCentred,
                      .group = 16,
                      .artifact = Numbered(0xC0)};
  header.coding[1] = {.codec = CodecId::kNestedChannel, .meta_type = MetaType::kFp32, .group = 64};
  header.errors[0] = {0.25f, 0.5f, 1.0f};
  header.errors[1] = {0.125f, std::numeric_limits<float>::quiet_NaN(), 2.0f};
  for (Part part : kParts) {
    uint64_t width = header.shape.part(part).width;
    AddRun(&sample, RunKind::kMeta, part, 3 * 2 * 8 * 4);
    AddRun(&sample, RunKind::kExact, part, 3 * 2 * 2 * width * 2);
    AddRun(&sample, RunKind::kP2, part, 3 * 2 * 8 * width / 4);
    AddRun(&sample, RunKind::kP4, part, 3 * 2 * 8 * width / 4);
    AddRun(&sample, RunKind::kP8, part, 3 * 2 * 8 * width / 2);
  }
  ComputeChecks(&header, header.encoded, sample.Runs());
  return sample;
}

// The same with two exact tokens that do not lead.
Sample SetSample() {
  Sample sample = NestedSample();
  sample.header.exact_map = {0x208};
  return sample;
}

Sample IdentitySample(DType dtype, uint32_t k_width, uint32_t v_width) {
  Sample sample;
  RecordHeader& header = sample.header;
  header.identity = {Numbered(1), Numbered(2), 0, 1};
  header.dtype = dtype;
  header.shape = {.layers = 4, .heads = 1, .k_width = k_width, .v_width = v_width, .tokens = 16};
  for (Part part : kParts) {
    uint64_t bytes = header.shape.part(part).values() * DTypeBytes(dtype);
    if (bytes == 0) continue;
    header.coding[static_cast<size_t>(part)].codec = CodecId::kIdentity;
    if (dtype == DType::kFp8E4m3 || dtype == DType::kFp8E5m2) AddRun(&sample, RunKind::kMeta, part, 4 * sizeof(float));
    AddRun(&sample, RunKind::kWhole, part, bytes);
  }
  ComputeChecks(&header, header.encoded, sample.Runs());
  return sample;
}

bool SameHeader(const RecordHeader& a, const RecordHeader& b) {
  auto same_float = [](float x, float y) { return x == y || (std::isnan(x) && std::isnan(y)); };
  bool same = a.identity == b.identity && a.parent == b.parent && a.first_token == b.first_token &&
              a.KeepsSameTokens(b) && a.dtype == b.dtype && a.flags == b.flags && a.shape == b.shape &&
              a.expires_unix_ms == b.expires_unix_ms && a.coding == b.coding && a.encoded == b.encoded &&
              a.runs == b.runs;
  for (size_t p = 0; p < 2; ++p) {
    same = same && same_float(a.errors[p].int8, b.errors[p].int8) && same_float(a.errors[p].int4, b.errors[p].int4) &&
           same_float(a.errors[p].int2, b.errors[p].int2);
  }
  return same;
}

std::vector<uint8_t> ReadGolden(const std::string& name) {
  std::ifstream file(std::string(FIRN_SOURCE_DIR) + "/tests/golden/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// tests/golden/record_v1.bin is this record as it stands on a medium: header, then runs. A difference means that
// records written by earlier builds would be misread. The bytes this build makes are left in the build folder for
// comparison.
void CompareWithGolden(const Sample& sample, const std::string& name) {
  std::vector<uint8_t> record = SerializeHeader(sample.header);
  for (const auto& run : sample.bytes) record.insert(record.end(), run.begin(), run.end());
  std::ofstream(std::string(FIRN_BINARY_DIR) + "/" + name, std::ios::binary)
      .write(reinterpret_cast<const char*>(record.data()), static_cast<std::streamsize>(record.size()));
  std::vector<uint8_t> golden = ReadGolden(name);
  ASSERT_FALSE(golden.empty());
  EXPECT_EQ(record, golden);

  uint64_t used = 0;
  auto parsed = ParseHeader(golden, &used);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(SameHeader(*parsed, sample.header));
  EncodedBlock block;
  block.header = std::make_shared<RecordHeader>(*parsed);
  block.present = parsed->encoded;
  for (uint32_t i = 0; i < kRunIds; ++i) {
    block.runs[i] = RunBytes(ByteSpan(golden).subspan(used, parsed->runs[i].bytes));
    used += parsed->runs[i].bytes;
  }
  EXPECT_EQ(used, golden.size());
  EXPECT_EQ(IntactRuns(block), block.present);
}

TEST(RecordFormat, GoldenFileNeverChanges) { CompareWithGolden(NestedSample(), "record_v1.bin"); }

// tests/golden/record_v1_set.bin: the same record with a set of exact tokens.
TEST(RecordFormat, GoldenFileOfASetNeverChanges) { CompareWithGolden(SetSample(), "record_v1_set.bin"); }

TEST(RecordFormat, RoundTripsAndIsCanonical) {
  for (const Sample& sample : {NestedSample(), SetSample(), IdentitySample(DType::kFp16, 32, 32),
                               IdentitySample(DType::kBytes, 576, 0), IdentitySample(DType::kFp8E5m2, 0, 64)}) {
    std::vector<uint8_t> bytes = SerializeHeader(sample.header);
    EXPECT_EQ(bytes.size() % 8, 0u);
    RecordLayout layout = LayoutOf(sample.header);
    EXPECT_EQ(bytes.size(), HeaderBytesBound(layout));
    layout.layers = 0;
    EXPECT_LE(bytes.size(), HeaderBytesBound(layout));
    uint64_t used = 0;
    std::vector<uint8_t> longer = bytes;
    longer.resize(bytes.size() + 100, 0xEE);
    auto parsed = ParseHeader(longer, &used);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(used, bytes.size());
    EXPECT_TRUE(SameHeader(*parsed, sample.header));
    EXPECT_EQ(SerializeHeader(*parsed), bytes);
    EXPECT_EQ(HeaderDigest(bytes), Crc64(ByteSpan(bytes).first(bytes.size() - 8), 0));
  }
}

TEST(RecordFormat, TheLargestHeaderFits) {
  Sample sample;
  sample.header.identity = {Numbered(1), Numbered(2), 0, 1};
  sample.header.shape = {.layers = kLayersMax, .heads = 1, .k_width = 1, .v_width = 1, .tokens = 1};
  for (PartCoding& coding : sample.header.coding) coding.codec = CodecId::kNestedToken;
  for (uint32_t i = 0; i < kRunIds; ++i) {
    sample.header.encoded |= RunMask::Of(RunKindOf(i), RunPartOf(i));
    sample.header.runs[i] = {kLayersMax * kCheckedBytesMin, 1, std::vector<uint64_t>(kLayersMax)};
  }
  std::vector<uint8_t> bytes = SerializeHeader(sample.header);
  EXPECT_LE(bytes.size(), kRecordHeaderBytesMax);
  EXPECT_TRUE(ParseHeader(bytes, nullptr).ok());
}

// An intact header whose map says what its other fields do not.
TEST(RecordFormat, MapsOfExactTokensHaveOneForm) {
  const std::vector<uint8_t> good = SerializeHeader(SetSample().header);
  EXPECT_EQ(good.size(), SerializeHeader(NestedSample().header).size() + 8);
  ASSERT_EQ(LoadLe<uint64_t>(good.data() + good.size() - 16), 0x208u);
  auto parse = [&](uint64_t map, uint32_t tokens, bool flag = true) {
    std::vector<uint8_t> bytes = good;
    StoreLe<uint64_t>(bytes.data() + bytes.size() - 16, map);
    StoreLe<uint32_t>(bytes.data() + 136, tokens);
    if (!flag) bytes[6] = static_cast<uint8_t>(bytes[6] & ~8);
    StoreLe<uint64_t>(bytes.data() + bytes.size() - 8, Crc64(ByteSpan(bytes).first(bytes.size() - 8), 0));
    return ParseHeader(bytes, nullptr).status();
  };
  EXPECT_TRUE(parse(0x208, 2).ok());
  EXPECT_TRUE(parse(0x102, 2).ok());
  EXPECT_TRUE(absl::IsDataLoss(parse(0x208, 3))) << "fewer bits than tokens";
  EXPECT_TRUE(absl::IsDataLoss(parse(0x228, 2))) << "more bits than tokens";
  EXPECT_TRUE(absl::IsDataLoss(parse(0x408, 2))) << "a token that the block does not have";
  EXPECT_TRUE(absl::IsDataLoss(parse(0x003, 2))) << "leading tokens have no map";
  EXPECT_TRUE(absl::IsDataLoss(parse(0, 0)));
  EXPECT_TRUE(absl::IsDataLoss(parse(0x3ff, 10)));
  EXPECT_TRUE(absl::IsDataLoss(parse(0x208, 2, false))) << "a map that no flag announces";
  std::vector<uint8_t> none = SerializeHeader(NestedSample().header);
  none[6] |= 8;
  StoreLe<uint64_t>(none.data() + none.size() - 8, Crc64(ByteSpan(none).first(none.size() - 8), 0));
  EXPECT_TRUE(absl::IsDataLoss(ParseHeader(none, nullptr).status())) << "a flag without its map";
}

TEST(RecordFormat, C38_any_flipped_bit_is_found) {
  std::vector<uint8_t> bytes = SerializeHeader(SetSample().header);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    EXPECT_TRUE(absl::IsDataLoss(ParseHeader(bytes, nullptr).status())) << "bit " << bit;
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
  }
}

TEST(RecordFormat, EveryTruncationIsFound) {
  std::vector<uint8_t> bytes = SerializeHeader(SetSample().header);
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(ParseHeader(ByteSpan(bytes).first(length), nullptr).ok()) << length;
  }
}

// Random bytes, and intact headers with random changes whose CRC was made right again, as no honest fault but any enemy
// could: whatever parses must pass CheckHeader and serialize to the same bytes.
TEST(RecordFormat, SurvivesAnyBytes) {
  uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const std::vector<uint8_t> kinds[] = {SerializeHeader(NestedSample().header), SerializeHeader(SetSample().header)};
  int parsed_count = 0;
  for (int round = 0; round < 60'000; ++round) {
    const std::vector<uint8_t>& good = kinds[random() % 2];
    std::vector<uint8_t> bytes = good;
    if (round % 4 == 0) {
      bytes.resize(random() % 1200);
      for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
      if (bytes.size() > 16) std::copy_n(good.begin(), 8 + random() % 8, bytes.begin());
    } else {
      for (uint64_t change = random() % 4 + 1; change > 0; --change) {
        size_t at = random() % 2 == 0 ? random() % bytes.size() : 8 + random() % 280;
        bytes[at] =
            random() % 2 == 0 ? static_cast<uint8_t>(random()) : static_cast<uint8_t>(bytes[at] ^ 1u << random() % 8);
      }
      if (random() % 4 == 0) bytes.resize(bytes.size() + random() % 64);
    }
    if (bytes.size() >= 16) {
      uint64_t length = LoadLe<uint32_t>(bytes.data() + 8);
      if (length >= 16 && length <= bytes.size()) {
        StoreLe<uint64_t>(bytes.data() + length - 8, Crc64(ByteSpan(bytes).first(length - 8), 0));
      }
    }
    uint64_t used = 0;
    auto parsed = ParseHeader(bytes, &used);
    if (!parsed.ok()) {
      ASSERT_TRUE(absl::IsDataLoss(parsed.status())) << parsed.status();
      continue;
    }
    ++parsed_count;
    ASSERT_TRUE(CheckHeader(*parsed).ok()) << CheckHeader(*parsed);
    bytes.resize(used);
    ASSERT_EQ(SerializeHeader(*parsed), bytes);
  }
  EXPECT_GT(parsed_count, 1000) << "changes to digests and numbers leave a valid header, so the loop must see some";
}

TEST(RecordChecks, ShapesAreBoundedBeforeAnythingIsAllocated) {
  BlockShape good{.layers = 2, .heads = 2, .k_width = 64, .v_width = 64, .tokens = 16};
  EXPECT_TRUE(CheckShape(good, DType::kFp16).ok());
  auto refused = [&](uint32_t BlockShape::*member, uint32_t value, const char* limit) {
    BlockShape shape = good;
    shape.*member = value;
    absl::Status status = CheckShape(shape, DType::kFp16);
    return absl::IsInvalidArgument(status) && Message(status).find(std::to_string(value)) != std::string::npos &&
           Message(status).find(limit) != std::string::npos;
  };
  EXPECT_TRUE(refused(&BlockShape::layers, 0, "1024"));
  EXPECT_TRUE(refused(&BlockShape::layers, kLayersMax + 1, "1024"));
  EXPECT_TRUE(refused(&BlockShape::heads, kHeadsMax + 1, "4096"));
  EXPECT_TRUE(refused(&BlockShape::tokens, 0, "65536"));
  EXPECT_TRUE(refused(&BlockShape::tokens, kTokensMax + 1, "65536"));
  EXPECT_TRUE(refused(&BlockShape::k_width, kWidthMax + 1, "1048576"));
  BlockShape huge{
      .layers = kLayersMax, .heads = kHeadsMax, .k_width = kWidthMax, .v_width = kWidthMax, .tokens = kTokensMax};
  EXPECT_TRUE(absl::IsInvalidArgument(CheckShape(huge, DType::kFp16)));
  BlockShape none = good;
  none.k_width = none.v_width = 0;
  EXPECT_TRUE(absl::IsInvalidArgument(CheckShape(none, DType::kFp16)));
  EXPECT_TRUE(absl::IsInvalidArgument(CheckShape(good, DType::kFp32)));
  EXPECT_TRUE(absl::IsInvalidArgument(CheckShape(good, static_cast<DType>(99))));
}

TEST(RecordChecks, LayersAreJoinedUntilFourKib) {
  EXPECT_EQ(LayersPerCheck(4096, 32), 1u);
  EXPECT_EQ(LayersPerCheck(100'000, 32), 1u);
  EXPECT_EQ(LayersPerCheck(4095, 32), 2u);
  EXPECT_EQ(LayersPerCheck(1000, 32), 5u);
  EXPECT_EQ(LayersPerCheck(1, 32), 32u);
  EXPECT_EQ(LayersPerCheck(0, 32), 32u);
}

TEST(RecordChecks, SeedsOfOneRecordNeverMeetAndDependOnEveryFact) {
  Identity identity{Numbered(1), Numbered(2), 3, 4};
  std::set<uint64_t> seeds;
  for (uint32_t run = 0; run < kRunIds; ++run) {
    for (uint32_t layer = 0; layer < kLayersMax; ++layer) seeds.insert(identity.ChecksumSeed(run, layer));
  }
  EXPECT_EQ(seeds.size(), kRunIds * kLayersMax);
  std::vector<Identity> others(6, identity);
  others[0].namespace_fingerprint.bytes[31] ^= 1;
  others[1].key.bytes[0] ^= 1;
  others[2].shard ^= 1;
  others[3].generation += 1;
  std::swap(others[4].namespace_fingerprint, others[4].key);
  others[5].shard = 4, others[5].generation = 3;
  for (const Identity& other : others) EXPECT_TRUE(seeds.insert(other.ChecksumSeed(0, 0)).second);
}

TEST(RecordChecks, C38_swapped_runs_and_layers_fail_although_their_bytes_are_whole) {
  Sample a = NestedSample(), b = NestedSample();
  b.header.identity.key = Numbered(0x41);
  ComputeChecks(&b.header, b.header.encoded, b.Runs());
  // Equal bytes under two identities: no check of one is a check of the other, nor one plane's or layer's another's.
  std::set<uint64_t> checks;
  size_t count = 0;
  for (const Sample* sample : {&a, &b}) {
    for (const RunInfo& run : sample->header.runs) {
      checks.insert(run.checks.begin(), run.checks.end());
      count += run.checks.size();
    }
  }
  EXPECT_EQ(checks.size(), count);
  EncodedBlock block = a.Block();
  std::swap(block.runs[RunIndex(RunKind::kP2, Part::kK)], block.runs[RunIndex(RunKind::kP4, Part::kK)]);
  EXPECT_EQ(IntactRuns(block),
            block.present - (RunMask::Of(RunKind::kP2, Part::kK) | RunMask::Of(RunKind::kP4, Part::kK)));
}

TEST(RecordChecks, C38_damage_is_found_in_its_run_wherever_the_bytes_lie) {
  Sample sample = IdentitySample(DType::kFp16, 300, 20);
  std::vector<uint8_t>& k = sample.bytes[RunIndex(RunKind::kWhole, Part::kK)];
  for (size_t piece_bytes : {size_t{1}, size_t{7}, size_t{4096}, size_t{9600}, size_t{65536}}) {
    EncodedBlock block = sample.Block();
    RunBytes scattered;
    for (size_t at = 0; at < k.size(); at += piece_bytes) {
      scattered.Append(ByteSpan(k).subspan(at, std::min(piece_bytes, k.size() - at)));
    }
    block.runs[RunIndex(RunKind::kWhole, Part::kK)] = scattered;
    EXPECT_EQ(IntactRuns(block), block.present) << piece_bytes;
    for (size_t at : {size_t{0}, k.size() / 2, k.size() - 1}) {
      k[at] ^= 1;
      EXPECT_EQ(IntactRuns(block), RunMask::Of(RunKind::kWhole, Part::kV)) << piece_bytes << " at " << at;
      k[at] ^= 1;
    }
  }
  EncodedBlock shorter = sample.Block();
  shorter.runs[RunIndex(RunKind::kWhole, Part::kK)] = RunBytes(ByteSpan(k).first(k.size() - 1));
  EXPECT_EQ(IntactRuns(shorter), RunMask::Of(RunKind::kWhole, Part::kV));
}

using PC = PrecisionClass;

TEST(RecordClasses, NestedFollowsThePlanesThatAreThere) {
  Sample sample = NestedSample();
  const RecordHeader& header = sample.header;
  RunMask base = RunMask::Both(RunKind::kMeta) | RunMask::Both(RunKind::kExact);
  RunMask p2 = RunMask::Both(RunKind::kP2), p4 = RunMask::Both(RunKind::kP4), p8 = RunMask::Both(RunKind::kP8);
  EXPECT_EQ(ClassOf(header, RunMask::All()), (ClassPair{PC::k8Bit, PC::k8Bit}));
  EXPECT_EQ(ClassOf(header, base | p2 | p4), (ClassPair{PC::k4Bit, PC::k4Bit}));
  EXPECT_EQ(ClassOf(header, base | p2), (ClassPair{PC::k2Bit, PC::k2Bit}));
  EXPECT_EQ(ClassOf(header, base | p2 | p8), (ClassPair{PC::k2Bit, PC::k2Bit})) << "p8 without p4 is worth nothing";
  EXPECT_EQ(ClassOf(header, base | p4 | p8), (ClassPair{PC::kNone, PC::kNone}));
  EXPECT_EQ(ClassOf(header, base | p2 | p4 | RunMask::Of(RunKind::kP8, Part::kK)), (ClassPair{PC::k8Bit, PC::k4Bit}));
  EXPECT_EQ(ClassOf(header, RunMask::All() - RunMask::Of(RunKind::kMeta, Part::kV)), (ClassPair{PC::k8Bit, PC::kNone}));
  EXPECT_EQ(ClassOf(header, RunMask::All() - RunMask::Of(RunKind::kExact, Part::kK)),
            (ClassPair{PC::kNone, PC::k8Bit}));
  EXPECT_EQ(ClassOf(header, RunMask()), (ClassPair{PC::kNone, PC::kNone}));
}

TEST(RecordClasses, RunsForATargetDecodeToItAndNoFewerDo) {
  Sample sample = NestedSample();
  for (PC k : {PC::k2Bit, PC::k3Bit, PC::k4Bit, PC::k8Bit}) {
    for (PC v : {PC::k2Bit, PC::k3Bit, PC::k4Bit, PC::k8Bit}) {
      RunMask runs = RunsFor(sample.header, {k, v});
      EXPECT_TRUE(ClassOf(sample.header, runs).AtLeast({k, v}));
      for (uint32_t i = 0; i < kRunIds; ++i) {
        if (!runs.Has(i)) continue;
        EXPECT_FALSE(ClassOf(sample.header, runs - RunMask::Of(RunKindOf(i), RunPartOf(i))).AtLeast({k, v}))
            << "run " << i;
      }
    }
  }
  EXPECT_EQ(RunsFor(sample.header, {PC::k3Bit, PC::k2Bit}), RunsFor(sample.header, {PC::k4Bit, PC::k2Bit}));
  EXPECT_EQ(RunsFor(sample.header, {PC::kExact, PC::kExact}), sample.header.encoded);
  EXPECT_TRUE(RunsFor(sample.header, {PC::kNone, PC::kNone}).Empty());
  EXPECT_EQ(ClassOf(sample.header, RunsFor(sample.header, {PC::kNone, PC::k4Bit})), (ClassPair{PC::kNone, PC::k4Bit}));
}

TEST(RecordClasses, SourceBytesAreExactAndFp8IsItsEightBitClass) {
  auto all = [](const Sample& sample) { return ClassOf(sample.header, RunMask::All()); };
  EXPECT_EQ(all(IdentitySample(DType::kFp16, 8, 8)), (ClassPair{PC::kExact, PC::kExact}));
  EXPECT_EQ(all(IdentitySample(DType::kBf16, 8, 8)), (ClassPair{PC::kExact, PC::kExact}));
  EXPECT_EQ(all(IdentitySample(DType::kBytes, 8, 8)), (ClassPair{PC::kExact, PC::kExact}));
  EXPECT_EQ(all(IdentitySample(DType::kFp8E4m3, 8, 8)), (ClassPair{PC::k8Bit, PC::k8Bit}));
  Sample recoded = IdentitySample(DType::kFp16, 8, 8);
  for (PartCoding& coding : recoded.header.coding) coding.codec = CodecId::kFp8E4m3;
  EXPECT_EQ(all(recoded), (ClassPair{PC::k8Bit, PC::k8Bit}));
  Sample k_only = IdentitySample(DType::kFp16, 8, 0);
  EXPECT_EQ(all(k_only), (ClassPair{PC::kExact, PC::kExact}));
  EXPECT_EQ(ClassOf(k_only.header, RunMask()), (ClassPair{PC::kNone, PC::kExact}));
  EXPECT_EQ(RunsFor(k_only.header, {PC::k2Bit, PC::k2Bit}), RunMask::Of(RunKind::kWhole, Part::kK));
}

TEST(RecordClasses, RunsOfNoBytesAreAlwaysThere) {
  Sample sample = NestedSample();
  sample.header.shape.tokens = sample.header.exact_tokens = 2;
  for (RunKind kind : {RunKind::kMeta, RunKind::kP2, RunKind::kP4, RunKind::kP8}) {
    for (Part part : kParts) {
      sample.header.runs[RunIndex(kind, part)].bytes = 0;
      sample.bytes[RunIndex(kind, part)].clear();
    }
  }
  ComputeChecks(&sample.header, sample.header.encoded, sample.Runs());
  EXPECT_TRUE(ParseHeader(SerializeHeader(sample.header), nullptr).ok());
  EXPECT_EQ(IntactRuns(sample.Block()), sample.header.encoded);
  EXPECT_EQ(ClassOf(sample.header, RunMask::Both(RunKind::kExact)), (ClassPair{PC::kExact, PC::kExact}));
  EXPECT_EQ(ClassOf(sample.header, RunMask()), (ClassPair{PC::kNone, PC::kNone}));
}

}  // namespace
}  // namespace firn
