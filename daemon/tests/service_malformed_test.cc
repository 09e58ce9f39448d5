// Bytes that are no message, to every method that there is: each says so.
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/checksum.h"
#include "base/status.h"
#include "codecs/artifact.h"
#include "daemon/tests/service_harness_test_util.h"

namespace firn {
namespace {

TEST(ServiceMalformed, EveryMethodSaysThatARequestIsNoMessage) {
  ServiceHarness harness;
  for (const google::protobuf::FileDescriptor* file :
       {v1::GetRequest::descriptor()->file(), v1::VerifyRequest::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      const google::protobuf::ServiceDescriptor* service = file->service(s);
      for (int m = 0; m < service->method_count(); ++m) {
        const google::protobuf::MethodDescriptor* method = service->method(m);
        if (method->name() == "Session") continue;  // Its first message is read by gRPC, which ends the stream.
        auto call = harness.client->Open(service->name() + "/" + method->name());
        call->Write(std::string(20, '\xff'));
        call->HalfClose();
        std::string bytes;
        EXPECT_FALSE(call->Read(&bytes));
        absl::Status status = call->Finish();
        EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << method->full_name() << ": " << status;
        EXPECT_NE(Message(status), "") << method->full_name();
      }
    }
  }
  v1::StatsResponse stats;  // And well-formed ones go on as before.
  EXPECT_TRUE(harness.client->Call("KvStore/Stats", v1::StatsRequest(), &stats).ok());
}

TEST(ServiceMalformed, AnArtifactIsTakenAsTheFormatWritesIt) {
  ServiceHarness harness;
  auto put = [&](const std::vector<uint8_t>& bytes, std::string* name = nullptr) {
    v1::PutArtifactRequest request;
    request.set_serialized(std::string(bytes.begin(), bytes.end()));
    v1::PutArtifactResponse response;
    absl::Status status = harness.client->Call("KvStore/PutArtifact", request, &response);
    if (name != nullptr) *name = response.artifact();
    return status;
  };
  auto artifact = *Artifact::CreateBalance(1, 1, 2, {0.5f, -1}, {2, 0.5f});
  std::string name;
  ASSERT_TRUE(put(artifact->serialized(), &name).ok());
  EXPECT_EQ(name, std::string(artifact->digest().bytes.begin(), artifact->digest().bytes.end()));
  std::vector<uint8_t> damaged = artifact->serialized();
  damaged[21] ^= 1;
  EXPECT_EQ(put(damaged).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(put({}).code(), absl::StatusCode::kInvalidArgument);
  // The same means and weights with a rotary section that says nothing: it reads, and would be found by another name.
  ByteWriter writer;
  writer.Write<uint32_t>(LoadLe<uint32_t>(artifact->serialized().data()));
  writer.Write<uint16_t>(1);
  writer.Write<uint16_t>(2);
  for (uint32_t size : {1u, 1u, 2u}) writer.Write<uint32_t>(size);
  writer.Write<uint32_t>(1u | 16u);
  writer.WriteBytes(ByteSpan(artifact->serialized()).subspan(20, 16));
  writer.Write<uint64_t>(0);
  writer.Write<uint64_t>(Crc64(writer.bytes(), 0));
  std::vector<uint8_t> detour = writer.Take();
  ASSERT_TRUE(Artifact::Parse(detour).ok());
  absl::Status refused = put(detour);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
}

}  // namespace
}  // namespace firn
