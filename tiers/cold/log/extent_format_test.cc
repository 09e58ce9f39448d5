// The segment format: golden bytes, round trips, and bytes of an enemy.
#include "tiers/cold/log/extent_format.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>

#include "base/checksum.h"
#include "tiers/cold/device/memory_device.h"
#include "tiers/cold/log/segment_reader.h"

namespace firn {
namespace {

constexpr uint64_t kSalt = 0x0123456789abcdef;

Digest Filled(uint8_t byte) {
  Digest digest;
  digest.bytes.fill(byte);
  return digest;
}

// A record extent as in docs/formats/segment.md.
ExtentHeader RecordExtent() {
  ExtentHeader header;
  header.stream = Stream::kBase;
  header.place = {7, 4096};
  header.sequence = 42;
  header.has_record_header = true;
  header.siblings = {{8, 4096}, {9, 8192}};
  RecordNote& note = header.note;
  note.identity = {Filled(0xaa), Filled(0xbb), 3, 5};
  note.parent = Filled(0xcc);
  note.first_token = 128;
  note.tokens = 64;
  note.expires_unix_ms = 1'700'000'000'000;
  note.digest = 0x1122334455667788;
  note.header_bytes = 512;
  note.written = RunMask::Both(RunKind::kMeta) | RunMask::Both(RunKind::kP2) | RunMask::Both(RunKind::kP4) |
                 RunMask::Both(RunKind::kP8);
  note.protect = RunMask::Of(RunKind::kP4, Part::kK);
  for (uint32_t i = 0; i < kRunIds; ++i) note.run_bytes[i] = note.written.Has(i) ? 100 + i : 0;
  note.classes = {ClassPair{PrecisionClass::k8Bit, PrecisionClass::k8Bit},
                  ClassPair{PrecisionClass::k4Bit, PrecisionClass::k4Bit},
                  ClassPair{PrecisionClass::k2Bit, PrecisionClass::k2Bit}};
  header.shape = {RunMask::Both(RunKind::kMeta) | RunMask::Both(RunKind::kP2), 832};
  header.payload_bytes = header.contents().End() - header.header_bytes();
  header.payload_crc = 0x99aabbccddeeff00;
  return header;
}

void ExpectSame(const ExtentHeader& a, const ExtentHeader& b) {
  EXPECT_EQ(a.kind, b.kind);
  EXPECT_EQ(a.stream, b.stream);
  EXPECT_EQ(a.place, b.place);
  EXPECT_EQ(a.sequence, b.sequence);
  EXPECT_EQ(a.payload_bytes, b.payload_bytes);
  EXPECT_EQ(a.payload_crc, b.payload_crc);
  EXPECT_EQ(a.shape, b.shape);
  EXPECT_EQ(a.has_record_header, b.has_record_header);
  EXPECT_EQ(a.relocated, b.relocated);
  EXPECT_EQ(a.siblings, b.siblings);
  EXPECT_EQ(a.note, b.note);
}

// A small segment: header, one record extent, one tombstone extent, footer.
std::vector<uint8_t> SmallSegment() {
  ExtentHeader record = RecordExtent();
  std::vector<uint8_t> payload(record.payload_bytes);
  for (size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<uint8_t>(i * 7);
  record.payload_crc = Crc64(payload, record.sequence);
  std::vector<uint8_t> bytes(16384);
  std::vector<uint8_t> first = SerializeSegmentHeader({7, Stream::kBase, kSalt, 16384});
  std::copy(first.begin(), first.end(), bytes.begin());
  std::vector<uint8_t> header = SerializeExtentHeader(record, kSalt);
  std::copy(header.begin(), header.end(), bytes.begin() + 4096);
  std::copy(payload.begin(), payload.end(), bytes.begin() + 4096 + static_cast<ptrdiff_t>(header.size()));
  std::vector<uint8_t> footer = SerializeFooter(7, kSalt, 8192, header, 1);
  std::copy(footer.begin(), footer.end(), bytes.begin() + 8192);
  return bytes;
}

TEST(SegmentFormat, GoldenSegmentHasNotChanged) {
  std::string path = std::string(FIRN_SOURCE_DIR) + "/tests/golden/segment_v1.bin";
  std::vector<uint8_t> bytes = SmallSegment();
  if (std::getenv("FIRN_WRITE_GOLDEN") != nullptr) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) GTEST_SKIP() << path << " is not there";
  std::vector<uint8_t> golden((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_EQ(golden, bytes) << "bytes that are on disks have changed their meaning";
  // And what is on disks is still read.
  MemoryDevice device(uint64_t{1} << 20);
  FilePtr segment = *device.Create("00000007.seg", golden.size());
  device.Poke("00000007.seg", 0, golden);
  SegmentReader reader(&device, segment);
  auto header = reader.ReadHeader();
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->id, 7u);
  EXPECT_EQ(header->salt, kSalt);
  auto contents = reader.ReadFooter(7, kSalt);
  ASSERT_TRUE(contents.ok()) << contents.status();
  ASSERT_EQ(contents->extents.size(), 1u);
  EXPECT_EQ(contents->extents[0].note, RecordExtent().note);
  auto scanned = reader.Scan(7, kSalt);
  ASSERT_TRUE(scanned.ok());
  ASSERT_EQ(scanned->extents.size(), 1u);
  EXPECT_EQ(scanned->torn, 0u);
  EXPECT_TRUE(reader.ReadPayload(contents->extents[0]).ok());
}

TEST(SegmentFormat, ExtentHeadersRoundTrip) {
  ExtentHeader header = RecordExtent();
  std::vector<uint8_t> bytes = SerializeExtentHeader(header, kSalt);
  EXPECT_EQ(bytes.size(), header.header_bytes());
  auto parsed = ParseExtentHeader(bytes, kSalt);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ExpectSame(*parsed, header);
  EXPECT_FALSE(ParseExtentHeader(bytes, kSalt + 1).ok()) << "a header of another segment";
  header.note.parent.reset();
  header.siblings.clear();
  header.relocated = true;
  header.has_record_header = false;
  header.payload_bytes = header.contents().End() - header.header_bytes();
  parsed = ParseExtentHeader(SerializeExtentHeader(header, kSalt), kSalt);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ExpectSame(*parsed, header);
  ExtentHeader fact;
  fact.kind = ExtentKind::kTombstones;
  fact.stream = Stream::kFacts;
  fact.place = {1, 4160};
  fact.payload_bytes = 24;
  parsed = ParseExtentHeader(SerializeExtentHeader(fact, kSalt), kSalt);
  ASSERT_TRUE(parsed.ok());
  ExpectSame(*parsed, fact);
}

TEST(SegmentFormat, ClassesFollowWhatIsLeft) {
  RecordNote note = RecordExtent().note;
  EXPECT_EQ(note.ClassOf(note.written), (ClassPair{PrecisionClass::k8Bit, PrecisionClass::k8Bit}));
  EXPECT_EQ(note.ClassOf(note.written - RunMask::Of(RunKind::kP8, Part::kV)),
            (ClassPair{PrecisionClass::k8Bit, PrecisionClass::k4Bit}));
  EXPECT_EQ(note.ClassOf(note.written - RunMask::Both(RunKind::kP4)),
            (ClassPair{PrecisionClass::k2Bit, PrecisionClass::k2Bit}));
  EXPECT_EQ(note.ClassOf(note.written - RunMask::Of(RunKind::kMeta, Part::kK)).k, PrecisionClass::kNone);
}

TEST(SegmentFormat, EveryFlippedBitOfAHeaderIsFound) {
  std::vector<uint8_t> bytes = SerializeExtentHeader(RecordExtent(), kSalt);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
    EXPECT_FALSE(ParseExtentHeader(bytes, kSalt).ok()) << "bit " << bit;
    bytes[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
  }
}

// Bytes with right checksums and wrong contents: what a parser must bound by itself.
TEST(SegmentFormat, ForgedFieldsNeverCrashNorPassTheirBounds) {
  uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  std::vector<uint8_t> original = SerializeExtentHeader(RecordExtent(), kSalt);
  for (int round = 0; round < 200'000; ++round) {
    std::vector<uint8_t> bytes = original;
    for (uint64_t edits = 1 + random() % 4; edits > 0; --edits)
      bytes[random() % bytes.size()] = static_cast<uint8_t>(random());
    if (random() % 8 == 0) bytes.resize(random() % (bytes.size() + 1));
    if (bytes.size() >= 16) {
      uint64_t length = LoadLe<uint16_t>(bytes.data() + 6);
      if (length >= 8 && length <= bytes.size()) {
        StoreLe<uint64_t>(bytes.data() + length - 8, Crc64(ByteSpan(bytes).first(length - 8), kSalt));
      }
    }
    auto parsed = ParseExtentHeader(bytes, kSalt);
    if (!parsed.ok() || parsed->kind != ExtentKind::kRecord) continue;
    EXPECT_EQ(parsed->contents().End(), parsed->extent_bytes());
    EXPECT_LE(parsed->note.header_bytes, kRecordHeaderBytesMax);
    EXPECT_LT(parsed->siblings.size(), kRecordExtentsMax);
  }
}

TEST(SegmentFormat, DamagedSegmentsAreReadAsWhatIsLeft) {
  uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  std::vector<uint8_t> original = SmallSegment();
  MemoryDevice device(uint64_t{1} << 20);
  FilePtr file = *device.Create("00000007.seg", original.size());
  SegmentReader reader(&device, file);
  for (int round = 0; round < 3000; ++round) {
    std::vector<uint8_t> bytes = original;
    for (uint64_t edits = 1 + random() % 16; edits > 0; --edits)
      bytes[random() % bytes.size()] = static_cast<uint8_t>(random());
    device.Poke("00000007.seg", 0, bytes);
    auto contents = reader.ReadFooter(7, kSalt);
    if (!contents.ok()) contents = reader.Scan(7, kSalt);
    ASSERT_TRUE(contents.ok());
    for (const ExtentHeader& header : contents->extents) {
      EXPECT_EQ(header.sequence, 42u);
      auto payload = reader.ReadPayload(header);
      if (!payload.ok()) continue;
      EXPECT_EQ(payload->size(), RecordExtent().payload_bytes);
    }
  }
}

TEST(SegmentFormat, FactsAndTombstonesRoundTrip) {
  FactPayload fact{"plan", std::string("a\0b", 3), {1, 2, 3}};
  auto parsed = ParseFact(SerializeFact(fact));
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->kind, fact.kind);
  EXPECT_EQ(parsed->name, fact.name);
  EXPECT_EQ(parsed->value, fact.value);
  std::vector<uint8_t> bytes = SerializeFact(fact);
  for (size_t cut = 0; cut < bytes.size(); ++cut) EXPECT_FALSE(ParseFact(ByteSpan(bytes).first(cut)).ok());
  std::vector<Tombstone> tombstones = {{5, {1, 2, 0, 0}}, {9, {3, 0, 0, 0}}};
  auto back = ParseTombstones(SerializeTombstones(tombstones));
  ASSERT_TRUE(back.ok());
  ASSERT_EQ(back->size(), 2u);
  EXPECT_EQ((*back)[1].sequence, 9u);
  EXPECT_EQ((*back)[0].segments, tombstones[0].segments);
  EXPECT_FALSE(ParseTombstones(ByteSpan(bytes).first(7)).ok());
}

}  // namespace
}  // namespace firn
