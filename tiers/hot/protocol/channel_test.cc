#include "tiers/hot/protocol/channel.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/status.h"

namespace firn::gpu {
namespace {

struct Ends {
  Ends() {
    auto sockets = SocketPair();
    EXPECT_TRUE(sockets.ok());
    raw = ::dup(sockets->first.get());
    a.emplace(std::move(sockets->first));
    b.emplace(std::move(sockets->second));
  }
  ~Ends() { ::close(raw); }
  std::optional<Channel> a, b;
  int raw = -1;  // End a's socket, for bytes that no channel would send.
};

TEST(GpuChannel, LargeMessagesArriveWholeAndInOrder) {
  Ends ends;
  for (uint8_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(ends.a->Queue(ArtifactData{std::vector<uint8_t>((1u << 20) + i, i)}).ok());
  }
  uint8_t next = 0;
  for (int round = 0; round < 10'000 && next < 4; ++round) {
    ASSERT_TRUE(ends.a->Flush().ok());
    ASSERT_TRUE(*ends.b->Receive());
    for (auto got = ends.b->Next(); got.ok() && got->has_value(); got = ends.b->Next()) {
      const auto& data = std::get<ArtifactData>((*got)->message).serialized;
      EXPECT_EQ(data.size(), (1u << 20) + next);
      EXPECT_EQ(data.back(), next++);
    }
  }
  EXPECT_EQ(next, 4);
  EXPECT_FALSE(ends.a->unsent());
}

TEST(GpuChannel, ManySmallMessagesLeaveTogether) {
  Ends ends;
  constexpr int32_t kMessages = 1000;  // More than one call sends, fewer than the socket holds.
  for (int32_t i = 0; i < kMessages; ++i) ASSERT_TRUE(ends.a->Queue(Fatal{i, "x"}).ok());
  int32_t next = 0;
  for (int round = 0; round < 10'000 && next < kMessages; ++round) {
    ASSERT_TRUE(ends.a->Flush().ok());
    ASSERT_TRUE(*ends.b->Receive());
    for (auto got = ends.b->Next(); got.ok() && got->has_value(); got = ends.b->Next()) {
      EXPECT_EQ(std::get<Fatal>((*got)->message).code, next++);
    }
  }
  EXPECT_EQ(next, kMessages);
  EXPECT_FALSE(ends.a->unsent());
}

TEST(GpuChannel, DescriptorsTravelWithTheirMessages) {
  Ends ends;
  UniqueFd one(::memfd_create("one", 0)), two(::memfd_create("two", 0));
  ASSERT_EQ(::ftruncate(two.get(), 77), 0);
  ASSERT_TRUE(ends.a->Queue(MapRegion{1, 1, 1}, one.get()).ok());
  ASSERT_TRUE(ends.a->Queue(Fatal{1, "between"}).ok());
  ASSERT_TRUE(ends.a->Queue(MapRegion{2, 77, 77}, two.get()).ok());
  ASSERT_TRUE(ends.a->Flush().ok());
  ASSERT_TRUE(*ends.b->Receive());
  auto first = ends.b->Next(), between = ends.b->Next(), second = ends.b->Next();
  ASSERT_TRUE(first.ok() && first->has_value() && between.ok() && second.ok() && second->has_value());
  EXPECT_TRUE((*first)->fd.valid());
  EXPECT_FALSE((*between)->fd.valid());
  struct stat status {};
  ASSERT_EQ(::fstat((*second)->fd.get(), &status), 0);
  EXPECT_EQ(status.st_size, 77);
}

TEST(GpuChannel, WhatIsNoFrameIsRefused) {
  auto refuses = [](std::vector<uint8_t> bytes) {
    Ends ends;
    EXPECT_EQ(::send(ends.raw, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    EXPECT_TRUE(*ends.b->Receive());
    return !ends.b->Next().ok();
  };
  ByteWriter good;
  good.Write(kFrameMagic);
  good.Write<uint16_t>(8);
  good.Write<uint16_t>(0);
  good.Write<uint32_t>(8);
  good.Write<uint32_t>(0);
  good.WriteZeros(8);
  EXPECT_FALSE(refuses(good.bytes())) << "a Fatal without text";
  auto with = [&](size_t at, uint8_t value) {
    std::vector<uint8_t> bytes = good.bytes();
    bytes[at] = value;
    return bytes;
  };
  EXPECT_TRUE(refuses(with(0, 0))) << "magic";
  EXPECT_TRUE(refuses(with(4, 77))) << "type";
  EXPECT_TRUE(refuses(with(6, 1))) << "a descriptor that is not there";
  EXPECT_TRUE(refuses(with(11, 0xFF))) << "length";
  EXPECT_TRUE(refuses(with(12, 1))) << "reserved";
  EXPECT_TRUE(refuses(with(20, 1))) << "a text that is not there";
}

TEST(GpuChannel, SaysWhenTheOtherEndIsGone) {
  Ends ends;
  ASSERT_TRUE(ends.a->Queue(Fatal{5, "the last words"}).ok());
  ASSERT_TRUE(ends.a->Flush().ok());
  ::shutdown(ends.raw, SHUT_RDWR);
  auto open = ends.b->Receive();
  ASSERT_TRUE(open.ok());
  EXPECT_FALSE(*open);
  auto last = ends.b->Next();
  ASSERT_TRUE(last.ok() && last->has_value());
  EXPECT_EQ(std::get<Fatal>((*last)->message).message, "the last words");
}

TEST(GpuChannel, WhatWaitsIsBounded) {
  Ends ends;
  absl::Status status;
  for (int i = 0; i < 10 && status.ok(); ++i) {
    status = ends.a->Queue(ArtifactData{std::vector<uint8_t>(200u << 20)});
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
}

}  // namespace
}  // namespace firn::gpu
