#include "tiers/warm/memory/streaming_copy.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace firn {
namespace {

// `bytes` cut into pieces of up to `piece_max`.
template <typename Byte>
Scattered<Byte> Cut(std::span<Byte> bytes, size_t piece_max, std::mt19937_64* random) {
  Scattered<Byte> pieces;
  while (!bytes.empty()) {
    size_t take = std::min<size_t>(bytes.size(), 1 + (*random)() % piece_max);
    pieces.Append(bytes.first(take));
    bytes = bytes.subspan(take);
  }
  return pieces;
}

TEST(StreamingCopyTest, CopiesEveryByteAndNoOther) {
  uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  constexpr size_t kRoom = 128, kMost = 100'000;
  std::vector<uint8_t> source(kMost + kRoom);
  for (uint8_t& byte : source) byte = static_cast<uint8_t>(random());
  for (int round = 0; round < 300; ++round) {
    size_t bytes = random() % kMost, from = random() % kRoom, to = random() % kRoom;
    std::vector<uint8_t> target(kMost + 2 * kRoom, 0xA5);
    std::vector<uint8_t> expected = target;
    std::copy_n(source.begin() + static_cast<ptrdiff_t>(from), bytes, expected.begin() + static_cast<ptrdiff_t>(to));
    size_t piece_max = round % 2 == 0 ? kMost : 30'000;
    CopyStreaming(Cut(std::span<const uint8_t>(source).subspan(from, bytes), piece_max, &random),
                  Cut(std::span(target).subspan(to, bytes), piece_max, &random));
    ASSERT_TRUE(target == expected) << bytes << " bytes from offset " << from << " to offset " << to;
  }
}

TEST(StreamingCopyTest, ATargetThatIsTooShortIsRefused) {
  std::vector<uint8_t> source(100), target(99);
  EXPECT_DEATH(CopyStreaming(RunBytes(std::span<const uint8_t>(source)), MutableRunBytes(std::span(target))), "");
}

}  // namespace
}  // namespace firn
