// Clients that ask for much and take nothing do not keep the memory for decoding from the others.
#include <gtest/gtest.h>

#include "daemon/tests/service_harness_test_util.h"

namespace firn {
namespace {

class ServiceStall : public ::testing::Test {
 protected:
  ServiceStall() {
    options_.limits.transport_budget_bytes = 32 * kMiB;  // Eight buffers of two layers in FP32.
    // Longer than any call of these tests: nobody is served because a stream was stopped for its own sake.
    options_.limits.read_stall_ms = 600'000;
    options_.limits.put_idle_ms = 600'000;
  }

  // `count` readers, each on a connection of its own, that never read.
  void Stick(const ServiceHarness& harness, const v1::GetRequest& request, int count) {
    for (int i = 0; i < count; ++i) {
      clients_.push_back(std::make_unique<RawClient>(harness.address(), 64 * 1024));
      streams_.push_back(clients_.back()->Open("KvStore/Get"));
      ASSERT_TRUE(streams_.back()->Write(request.SerializeAsString()));
    }
  }

  HarnessOptions options_;
  std::vector<std::unique_ptr<RawClient>> clients_;
  std::vector<std::unique_ptr<RawStream>> streams_;
};

TEST_F(ServiceStall, OthersAreServedAllTheSame) {
  ServiceHarness harness(options_);
  ApiClient api(harness.client.get(), FactsOf(16, 4, 64, 64, 512));
  ASSERT_EQ(api.Put("b", 1, 512).outcome(), v1::PUT_OUTCOME_STORED);
  v1::GetRequest request = api.GetRequestOf({"b", "b", "b", "b"});
  request.set_representation(v1::REPRESENTATION_FP32);
  Stick(harness, request, 14);
  EXPECT_TRUE(Eventually([&] { return harness.core->transport().waiting_bytes() > 0; }));
  for (int i = 0; i < 3; ++i) {
    for (const ApiClient::Got& got : api.Get(request)) {
      EXPECT_TRUE(got.status.ok()) << got.status;
      EXPECT_EQ(got.payload.size(), 2 * api.PayloadBytes(512));
    }
  }
  uint64_t ended = harness.core->counters().stalled_streams.load();
  EXPECT_GT(ended, 0u);
  streams_.clear();
  clients_.clear();
}

TEST_F(ServiceStall, PutsThatStopHalfWayMakeRoomToo) {
  ServiceHarness harness(options_);
  ApiClient api(harness.client.get(), FactsOf(16, 4, 64, 64, 512));
  ASSERT_EQ(api.Put("b", 1, 512).outcome(), v1::PUT_OUTCOME_STORED);
  for (int i = 0; i < 3; ++i) {  // Each in a layout of its own, that is, with 8 MiB beside the block's.
    v1::PutRequest message;
    message.mutable_start()->set_namespace_fingerprint(api.fingerprint());
    *message.mutable_block() = api.Block("half " + std::to_string(i), 512);
    v1::Layout* layout = message.mutable_block()->mutable_layout();
    for (auto* part : {layout->mutable_k(), layout->mutable_v()}) {
      part->set_layer_stride(4 * 512 * 64);
      part->set_head_stride(512 * 64);
      part->set_token_stride(64);
    }
    layout->mutable_v()->set_offset(16 * 4 * 512 * 64);
    layout->set_payload_bytes(api.PayloadBytes(512));
    message.set_payload(std::string(1000, '\0'));
    clients_.push_back(std::make_unique<RawClient>(harness.address()));
    streams_.push_back(clients_.back()->Open("KvStore/Put"));
    ASSERT_TRUE(streams_.back()->Write(message.SerializeAsString()));
  }
  EXPECT_TRUE(Eventually([&] { return harness.core->transport().waiting_bytes() > 0; }));
  v1::GetRequest request = api.GetRequestOf({"b"});
  request.set_representation(v1::REPRESENTATION_FP32);
  EXPECT_TRUE(api.Get(request)[0].status.ok());
  streams_.clear();
  clients_.clear();
}

TEST_F(ServiceStall, ReadersThatNobodyWaitsForKeepTheirTime) {
  ServiceHarness harness(options_);
  ApiClient api(harness.client.get(), FactsOf(16, 4, 64, 64, 512));
  ASSERT_EQ(api.Put("b", 1, 512).outcome(), v1::PUT_OUTCOME_STORED);
  v1::GetRequest request = api.GetRequestOf({"b"});
  request.set_representation(v1::REPRESENTATION_FP32);
  Stick(harness, request, 4);
  EXPECT_TRUE(Eventually([&] { return harness.core->transport().used_bytes() >= 8 * kMiB; }));
  EXPECT_FALSE(Eventually([&] { return harness.core->counters().stalled_streams.load() > 0; }, 2500));
  // One buffer being sent and one beside it, and not more than half of the budget for the latter.
  EXPECT_LE(harness.core->transport().used_bytes(), 16 * kMiB);
  for (auto& stream : streams_) {
    stream->HalfClose();
    ApiClient::Got got = ApiClient::ReadAnswers(stream.get(), 1)[0];
    EXPECT_TRUE(got.status.ok()) << got.status;
    EXPECT_TRUE(stream->Finish().ok());
  }
  streams_.clear();
  clients_.clear();
}

}  // namespace
}  // namespace firn
