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

  // A block of 8 MiB, stated in a layout, as it is: so it is staged.
  static v1::PutBlock InLayout(const ApiClient& api, const std::string& key) {
    v1::PutBlock block = api.Block(key, 512);
    v1::Layout* layout = block.mutable_layout();
    for (auto* part : {layout->mutable_k(), layout->mutable_v()}) {
      part->set_layer_stride(4 * 512 * 64);
      part->set_head_stride(512 * 64);
      part->set_token_stride(64);
    }
    layout->mutable_v()->set_offset(16 * 4 * 512 * 64);
    layout->set_payload_bytes(api.PayloadBytes(512));
    return block;
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
    *message.mutable_block() = InLayout(api, "half " + std::to_string(i));
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

// Memory for a layout is a lease's while its payload arrives, neither before nor after.
TEST_F(ServiceStall, LeasesHoldStagingMemoryOnlyWhileTheyAreFilled) {
  options_.limits.leases_max = 4;
  ServiceHarness harness(options_);
  ApiClient api(harness.client.get(), FactsOf(16, 4, 64, 64, 512));
  ByteBudget& transport = harness.core->transport();
  auto session = harness.client->Open("KvStore/Session");
  session->Write(std::string());
  std::string bytes;
  v1::SessionResponse opened;
  ASSERT_TRUE(session->Read(&bytes) && opened.ParseFromString(bytes));
  v1::BeginPutRequest begin;
  begin.set_namespace_fingerprint(api.fingerprint());
  begin.set_session(opened.session());
  auto add = [&](const std::string& key) {
    v1::PutBlock* block = begin.add_blocks();
    *block = InLayout(api, key);
  };
  for (const char* key : {"a", "b", "c", "d"}) add(key);  // 32 MiB of layouts, where 16 MiB are to be had.
  v1::BeginPutResponse begun;
  ASSERT_TRUE(harness.client->Call("KvStore/BeginPut", begin, &begun).ok());
  for (const auto& lease : begun.leases()) ASSERT_EQ(lease.status().code(), 0u) << lease.status().message();
  EXPECT_EQ(transport.used_bytes(), 0u);

  const std::string payload = api.Payload(7, 512);
  constexpr size_t kChunk = 1 << 20;
  auto message = [&](int lease, size_t offset, size_t length) {
    v1::PutRequest out;
    if (offset == 0) {
      out.mutable_start()->set_namespace_fingerprint(api.fingerprint());
      out.mutable_start()->set_session(opened.session());
      out.set_lease(begun.leases(lease).lease());
    }
    out.set_offset(offset);
    out.set_payload(payload.substr(offset, length));
    return out.SerializeAsString();
  };
  auto stream = harness.client->Open("KvStore/Put");
  ASSERT_TRUE(stream->Write(message(0, 0, kChunk)));
  EXPECT_TRUE(Eventually([&] { return transport.used_bytes() == payload.size(); }));
  for (size_t at = kChunk; at < payload.size(); at += kChunk) ASSERT_TRUE(stream->Write(message(0, at, kChunk)));
  v1::PutResponse answer;
  ASSERT_TRUE(stream->Read(&bytes) && answer.ParseFromString(bytes));
  EXPECT_EQ(answer.outcome(), v1::PUT_OUTCOME_FILLED) << answer.status().message();
  EXPECT_EQ(transport.used_bytes(), 0u) << "it waits for its commit with its block alone";
  stream->HalfClose();
  EXPECT_TRUE(stream->Finish().ok());
  v1::CommitPutRequest commit;
  commit.set_session(opened.session());
  commit.add_leases(begun.leases(0).lease());
  v1::CommitPutResponse committed;
  ASSERT_TRUE(harness.client->Call("KvStore/CommitPut", commit, &committed).ok());
  EXPECT_EQ(committed.results(0).outcome(), v1::PUT_OUTCOME_STORED) << committed.results(0).status().message();
  EXPECT_EQ(api.Get("a").payload, payload);

  // A client that leaves in the middle, one that sends what does not fit, one that aborts, and a session that ends.
  stream = harness.client->Open("KvStore/Put");
  ASSERT_TRUE(stream->Write(message(1, 0, kChunk)));
  EXPECT_TRUE(Eventually([&] { return transport.used_bytes() > 0; }));
  stream->Cancel();
  (void)stream->Finish();
  EXPECT_TRUE(Eventually([&] { return transport.used_bytes() == 0 && harness.store->Stats().puts_in_flight == 2; }));
  stream = harness.client->Open("KvStore/Put");
  v1::PutRequest gap;
  ASSERT_TRUE(gap.ParseFromString(message(2, 0, kChunk)));
  gap.set_offset(8);
  ASSERT_TRUE(stream->Write(gap.SerializeAsString()));
  ASSERT_TRUE(stream->Read(&bytes) && answer.ParseFromString(bytes));
  EXPECT_EQ(answer.outcome(), v1::PUT_OUTCOME_FAILED);
  EXPECT_EQ(transport.used_bytes(), 0u);
  stream->HalfClose();
  EXPECT_TRUE(stream->Finish().ok());
  v1::AbortPutRequest abort;
  abort.set_session(opened.session());
  abort.add_leases(begun.leases(3).lease());
  v1::AbortPutResponse aborted;
  ASSERT_TRUE(harness.client->Call("KvStore/AbortPut", abort, &aborted).ok());
  EXPECT_EQ(aborted.statuses(0).code(), 0u);
  EXPECT_EQ(harness.store->Stats().puts_in_flight, 0u);
  // However they ended, all four are free again.
  begin.clear_blocks();
  for (const char* key : {"e", "f", "g", "h"}) add(key);
  ASSERT_TRUE(harness.client->Call("KvStore/BeginPut", begin, &begun).ok());
  for (const auto& lease : begun.leases()) EXPECT_EQ(lease.status().code(), 0u) << lease.status().message();
  session->HalfClose();
  EXPECT_TRUE(session->Finish().ok());
  EXPECT_TRUE(Eventually([&] { return harness.store->Stats().puts_in_flight == 0; }));
  EXPECT_EQ(transport.used_bytes(), 0u);
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
