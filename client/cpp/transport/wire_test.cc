#include "client/cpp/transport/wire.h"

#include <random>

#include "gtest/gtest.h"

namespace firnkv {
namespace {

std::span<const uint8_t> BytesOf(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string Flat(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string out;
  for (const auto& slice : slices) out.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return out;
}

// The same bytes, cut into slices at random places, some of them empty.
grpc::ByteBuffer Cut(const std::string& bytes, std::mt19937* random) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size();) {
    size_t count = std::min<size_t>(bytes.size() - at, (*random)() % 9);
    slices.emplace_back(bytes.data() + at, count);
    at += count;
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

std::string PayloadOf(const GetFrame& frame) {
  std::string out;
  for (auto piece : frame.payload) out.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  return out;
}

TEST(Wire, FramesPutAsProtobufReadsIt) {
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{127}, size_t{128}, size_t{16384}, size_t{3} << 20}) {
    firn::v1::PutRequest head;
    head.mutable_start()->set_session("session");
    head.mutable_block()->set_tokens(7);
    head.set_offset(1234567);
    std::string first(bytes / 3, 'a'), second(bytes - bytes / 3, 'b');
    PayloadHold hold;
    {
      std::vector<std::span<const uint8_t>> pieces = {BytesOf(first), {}, BytesOf(second)};
      grpc::ByteBuffer buffer = FramePut(head, pieces, &hold);
      EXPECT_EQ(hold.released(), bytes == 0);
      firn::v1::PutRequest parsed;
      ASSERT_TRUE(parsed.ParseFromString(Flat(buffer))) << bytes;
      EXPECT_EQ(parsed.payload(), first + second);
      parsed.clear_payload();
      EXPECT_EQ(parsed.SerializeAsString(), head.SerializeAsString());
    }
    EXPECT_TRUE(hold.released()) << "the caller's memory is still referred to";
  }
}

TEST(Wire, SplitsGetHoweverItIsSliced) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 500; ++round) {
    firn::v1::GetResponse response;
    response.set_tag(random());
    response.set_index(random() % 1000);
    if (random() % 2) response.mutable_found()->set_record_header(std::string(random() % 300, 'h'));
    if (random() % 2) response.mutable_found()->set_generation(uint64_t{random()} << 32);
    if (random() % 4 == 0) response.mutable_status()->set_message("why");
    response.set_last(random() % 2);
    std::string payload(random() % 400, '\0');
    for (char& byte : payload) byte = static_cast<char>(random());
    response.set_payload(payload);
    GetFrame frame;
    ASSERT_TRUE(ParseGet(Cut(response.SerializeAsString(), &random), &frame).ok());
    EXPECT_EQ(frame.payload_bytes, payload.size());
    EXPECT_EQ(PayloadOf(frame), payload);
    response.clear_payload();
    EXPECT_EQ(frame.head.SerializeAsString(), response.SerializeAsString());
  }
}

TEST(Wire, KeepsUnknownFieldsOutOfTheWay) {
  firn::v1::GetResponse response;
  response.set_index(3);
  response.set_payload("xyz");
  // Fields 100 to 102 of every wire type: what a newer daemon may add.
  std::string bytes = std::string("\xA0\x06\x05", 3) + std::string("\xA9\x06", 2) + std::string(8, '\1') +
                      std::string("\xB2\x06\x02pp", 5) + response.SerializeAsString();
  std::mt19937 random(1);
  GetFrame frame;
  ASSERT_TRUE(ParseGet(Cut(bytes, &random), &frame).ok());
  EXPECT_EQ(frame.head.index(), 3u);
  EXPECT_EQ(PayloadOf(frame), "xyz");
}

TEST(Wire, RefusesWhatIsNoGetResponse) {
  std::mt19937 random(1);
  const std::string bad[] = {
      std::string("\x7A\x05"
                  "abc",
                  5),  // Payload longer than the message.
      std::string("\x7A\x01"
                  "a\x7A\x01"
                  "b",
                  6),                                                       // Two payloads.
      std::string("\x7A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 12),  // A length that never ends.
      std::string("\x08", 1),                                               // A tag without its value.
      std::string("\x0B", 1),                                               // A group.
      std::string("\x1A\xFF\xFF\xFF\x7F", 5),                               // A status of 256 MiB.
      std::string("\x1A\x02\xFF\xFF", 4),                                   // A status that does not parse.
  };
  for (const std::string& bytes : bad) {
    GetFrame frame;
    EXPECT_EQ(ParseGet(Cut(bytes, &random), &frame).code(), absl::StatusCode::kDataLoss)
        << testing::PrintToString(bytes);
  }
}

TEST(Wire, SurvivesRandomBytes) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  firn::v1::GetResponse response;
  response.set_tag(5);
  response.mutable_found()->set_k_bytes(300);
  response.set_payload(std::string(40, 'p'));
  const std::string whole = response.SerializeAsString();
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = whole;
    for (int flips = 1 + static_cast<int>(random() % 3); flips > 0; --flips)
      bytes[random() % bytes.size()] ^= 1 << random() % 8;
    bytes.resize(1 + random() % bytes.size());
    GetFrame frame;
    if (ParseGet(Cut(bytes, &random), &frame).ok()) {
      EXPECT_EQ(PayloadOf(frame).size(), frame.payload_bytes);
    }
  }
}

}  // namespace
}  // namespace firnkv
