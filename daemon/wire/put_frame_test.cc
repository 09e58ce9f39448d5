// Whatever arrives, the parser takes apart what protobuf would accept, the same way, or refuses it.
#include "daemon/wire/put_frame.h"

#include <gtest/gtest.h>

#include <random>

#include "base/status.h"
#include "firn/v1/kv.pb.h"

namespace firn {
namespace {

using Random = std::mt19937_64;

std::string RandomBytes(Random& random, size_t bytes_max) {
  std::string out(random() % (bytes_max + 1), '\0');
  for (char& c : out) c = static_cast<char>(random());
  return out;
}

v1::PutRequest RandomRequest(Random& random) {
  v1::PutRequest request;
  if (random() % 2) request.mutable_start()->set_namespace_fingerprint(RandomBytes(random, 40));
  if (random() % 2) {
    auto* block = request.mutable_block();
    block->mutable_ref()->mutable_key()->set_opaque(RandomBytes(random, 600));
    block->set_tokens(static_cast<uint32_t>(random()));
    block->set_payload_bytes(random());
    if (random() % 2) block->mutable_layout()->mutable_v()->set_layer_stride(random());
  }
  if (random() % 2) request.set_lease(random());
  if (random() % 2) request.set_offset(random());
  if (random() % 4) request.set_payload(RandomBytes(random, 3000));
  return request;
}

// Views of `bytes`, cut at random places, some of them empty.
std::vector<ByteSpan> Cut(const std::string& bytes, Random& random) {
  std::vector<ByteSpan> out;
  size_t at = 0;
  while (at < bytes.size()) {
    size_t take = std::min<size_t>(bytes.size() - at, random() % (random() % 3 ? 16 : 2048));
    out.push_back(AsBytes(std::string_view(bytes).substr(at, take)));
    at += take;
  }
  return out;
}

std::string Joined(const PutFrame& frame) {
  std::string out;
  for (ByteSpan piece : frame.payload) out += AsText(piece);
  EXPECT_EQ(out.size(), frame.payload_bytes);
  return out;
}

TEST(PutFrame, TakesApartWhatGeneratedCodeWrites) {
  Random random(20'001);
  for (int round = 0; round < 3000; ++round) {
    v1::PutRequest request = RandomRequest(random);
    std::string bytes = request.SerializeAsString();
    auto slices = Cut(bytes, random);
    auto frame = ParsePutFrame(slices);
    ASSERT_TRUE(frame.ok()) << round << " " << frame.status();
    EXPECT_EQ(Joined(*frame), request.payload());
    v1::PutRequest control;
    ASSERT_TRUE(control.ParseFromString(frame->control));
    request.clear_payload();
    EXPECT_EQ(control.SerializeAsString(), request.SerializeAsString());
  }
}

TEST(PutFrame, AgreesWithProtobufOnHostileBytes) {
  const uint64_t seed = 20'002;
  Random random(seed);
  int accepted = 0, refused = 0;
  for (int round = 0; round < 30'000; ++round) {
    std::string bytes = random() % 8 ? RandomRequest(random).SerializeAsString() : RandomBytes(random, 64);
    for (uint64_t flips = random() % 6; flips > 0 && !bytes.empty(); --flips) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 1));
    auto slices = Cut(bytes, random);
    auto frame = ParsePutFrame(slices);
    v1::PutRequest whole, control;
    bool proto_ok = whole.ParseFromString(bytes);
    if (!frame.ok()) {
      EXPECT_EQ(frame.status().code(), absl::StatusCode::kInvalidArgument);
      ++refused;
      continue;
    }
    bool control_ok = control.ParseFromString(frame->control);
    EXPECT_EQ(control_ok, proto_ok) << "seed " << seed << " round " << round;
    if (!control_ok || !proto_ok) continue;
    ++accepted;
    EXPECT_EQ(Joined(*frame), whole.payload()) << "seed " << seed << " round " << round;
    whole.clear_payload();
    EXPECT_EQ(control.SerializeAsString(), whole.SerializeAsString()) << "seed " << seed << " round " << round;
  }
  EXPECT_GT(accepted, 3000);
  EXPECT_GT(refused, 3000);
}

TEST(PutFrame, EveryTruncationIsRefusedOrShorter) {
  v1::PutRequest request;
  request.mutable_block()->set_tokens(300);
  request.set_offset(1 << 20);
  request.set_payload(std::string(300, 'x'));
  std::string bytes = request.SerializeAsString();
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    ByteSpan part = AsBytes(std::string_view(bytes).substr(0, cut));
    auto frame = ParsePutFrame(std::span(&part, 1));
    EXPECT_TRUE(!frame.ok() || frame->payload_bytes == 0) << cut;
  }
}

absl::Status StatusOf(const std::string& bytes) {
  ByteSpan part = AsBytes(bytes);
  return ParsePutFrame(std::span(&part, 1)).status();
}

TEST(PutFrame, RefusesWhatWouldMakeThePayloadAmbiguous) {
  EXPECT_TRUE(StatusOf("").ok());
  EXPECT_TRUE(StatusOf(std::string("\x7a\x00", 2)).ok());
  EXPECT_FALSE(StatusOf(std::string("\x7a\x01"
                                    "a\x7a\x01"
                                    "b",
                                    6))
                   .ok());                                                                       // Two payloads.
  EXPECT_FALSE(StatusOf(std::string("\x78\x01", 2)).ok());                                       // Payload as a number.
  EXPECT_FALSE(StatusOf(std::string("\x7a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11)).ok());  // Length 2^64 - 1.
  EXPECT_FALSE(StatusOf(std::string("\x7b\x7c", 2)).ok());                                       // A group.
  EXPECT_FALSE(StatusOf(std::string("\x00\x00", 2)).ok());                                       // Field 0.
  v1::PutRequest large;
  large.mutable_block()->mutable_ref()->mutable_key()->set_opaque(std::string(kControlBytesMax, 'k'));
  EXPECT_FALSE(StatusOf(large.SerializeAsString()).ok());
}

TEST(GetFrame, PrefixAndPayloadAreOneMessage) {
  for (size_t size : {size_t{1}, size_t{127}, size_t{128}, size_t{16384}, size_t{1} << 20}) {
    v1::GetResponse control;
    control.set_tag(7);
    control.set_offset(size);
    control.mutable_found()->set_payload_bytes(size);
    std::string payload(size, 'p');
    v1::GetResponse whole;
    ASSERT_TRUE(whole.ParseFromString(GetFramePrefix(control, size) + payload));
    EXPECT_EQ(whole.payload(), payload);
    control.set_payload(payload);
    EXPECT_EQ(whole.SerializeAsString(), control.SerializeAsString());
  }
}

}  // namespace
}  // namespace firn
