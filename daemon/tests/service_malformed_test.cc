// Bytes that are no message, to every method that there is: each says so.
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include "base/status.h"
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

}  // namespace
}  // namespace firn
