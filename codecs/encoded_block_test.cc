#include "codecs/encoded_block.h"

#include <gtest/gtest.h>

#include <numeric>

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

}  // namespace
}  // namespace firn
