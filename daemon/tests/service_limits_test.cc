// Clients that are slow, gone, greedy or hostile: they get an error or their bytes, everybody else goes on, nothing
// stays behind. (The harness checks at its end that no put, pin, reader or buffer is left.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

#include "base/status.h"
#include "daemon/tests/service_harness_test_util.h"

namespace firn {
namespace {

using ::testing::HasSubstr;

v1::PutRequest FirstMessage(const ApiClient& api, const v1::PutBlock& block, const std::string& payload) {
  v1::PutRequest message;
  message.mutable_start()->set_namespace_fingerprint(api.fingerprint());
  *message.mutable_block() = block;
  message.set_payload(payload);
  return message;
}

std::unique_ptr<RawStream> StartGet(RawClient* client, const v1::GetRequest& request) {
  auto stream = client->Open("KvStore/Get");
  EXPECT_TRUE(stream->Write(request.SerializeAsString()));
  stream->HalfClose();
  return stream;
}

// The reader of a block that is deleted and whose memory is wanted by others gets all of its bytes.
TEST(ServiceLimits, C29_a_slow_get_is_not_touched_by_delete_and_eviction) {
  HarnessOptions options;
  options.hot_bytes = 8 * kMiB;
  options.warm_bytes = 4 * kMiB;
  ServiceHarness harness(options);
  ApiClient api(harness.client.get(), FactsOf(4, 4, 64, 64, 512));  // 2 MiB a block.
  std::string payload = api.Payload(1, 512);
  ASSERT_EQ(api.Put("slow", 1, 512).outcome(), v1::PUT_OUTCOME_STORED);
  RawClient slow(harness.address(), 64 * 1024);
  auto stream = StartGet(&slow, api.GetRequestOf({"slow", "slow"}));
  std::string bytes;
  ASSERT_TRUE(stream->Read(&bytes));
  v1::GetResponse first;
  ASSERT_TRUE(first.ParseFromString(bytes));
  ASSERT_TRUE(api.Delete("slow").ok());
  for (int i = 0; i < 40; ++i) {  // Ten times what the hot tier holds.
    v1::PutResponse put = api.Put("other " + std::to_string(i), static_cast<uint64_t>(i), 512);
    ASSERT_EQ(put.outcome(), v1::PUT_OUTCOME_STORED) << i << ": " << put.status().message();
  }
  std::string got = first.payload();
  v1::GetResponse message = first;
  while (!message.last()) {
    ASSERT_TRUE(stream->Read(&bytes) && message.ParseFromString(bytes));
    got += message.payload();
  }
  EXPECT_TRUE(got == payload);
  // The second of the batch had been read ahead or is a miss; never a mix.
  got.clear();
  do {
    ASSERT_TRUE(stream->Read(&bytes) && message.ParseFromString(bytes));
    got += message.payload();
  } while (!message.last());
  EXPECT_TRUE(message.has_status() || got == payload);
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_TRUE(Eventually([&] { return harness.store->Stats().tiers[0].usage.held_bytes == 0; }));
}

TEST(ServiceLimits, C40_readers_that_stop_are_ended_and_give_back_what_they_hold) {
  HarnessOptions options;
  options.limits.read_stall_ms = 2000;
  ServiceHarness harness(options);
  ApiClient api(harness.client.get(), FactsOf(16, 4, 64, 64, 512));
  ASSERT_EQ(api.Put("b", 1, 512).outcome(), v1::PUT_OUTCOME_STORED);
  std::vector<std::unique_ptr<RawClient>> clients;
  std::vector<std::unique_ptr<RawStream>> streams;
  v1::GetRequest request = api.GetRequestOf({"b", "b", "b", "b"});
  request.set_representation(v1::REPRESENTATION_FP32);  // Every byte has to be decoded into buffers.
  for (int i = 0; i < 16; ++i) {
    clients.push_back(std::make_unique<RawClient>(harness.address(), 64 * 1024));
    streams.push_back(StartGet(clients.back().get(), request));
  }
  std::string bytes;
  for (auto& stream : streams) ASSERT_TRUE(stream->Read(&bytes));
  // While they hang, others are served.
  EXPECT_EQ(api.Get("b").payload, api.Payload(1, 512));
  EXPECT_LT(harness.core->transport().used_bytes(), 16 * 8 * kMiB);
  EXPECT_TRUE(Eventually([&] { return harness.core->counters().stalled_streams.load() == 16; }));
  EXPECT_TRUE(Eventually([&] { return harness.core->transport().used_bytes() == 0; }));
  EXPECT_TRUE(Eventually([&] { return harness.store->Stats().readers == 0; }));
  for (auto& stream : streams) {
    while (stream->Read(&bytes)) {
    }
    EXPECT_EQ(stream->Finish().code(), absl::StatusCode::kCancelled);
  }
}

TEST(ServiceLimits, C40_puts_that_stop_half_way_give_their_memory_back) {
  HarnessOptions options;
  options.limits.put_idle_ms = 1500;
  ServiceHarness harness(options);
  ApiClient api(harness.client.get(), FactsOf(8, 4, 64, 64, 64));
  std::vector<std::unique_ptr<RawStream>> streams;
  for (int i = 0; i < 32; ++i) {
    streams.push_back(harness.client->Open("KvStore/Put"));
    std::string half = api.Payload(1, 64).substr(0, 1000);
    ASSERT_TRUE(
        streams.back()->Write(FirstMessage(api, api.Block("b" + std::to_string(i), 64), half).SerializeAsString()));
  }
  EXPECT_TRUE(Eventually([&] { return harness.core->counters().stalled_streams.load() == 32; }, 30'000));
  EXPECT_TRUE(Eventually([&] { return harness.store->Stats().puts_in_flight == 0; }));
  for (auto& stream : streams) EXPECT_EQ(stream->Finish().code(), absl::StatusCode::kCancelled);
  // A stream that idles between blocks holds nothing and stays.
  auto idle = harness.client->Open("KvStore/Put");
  ASSERT_TRUE(idle->Write(FirstMessage(api, api.Block("x", 64), api.Payload(1, 64)).SerializeAsString()));
  std::string bytes;
  ASSERT_TRUE(idle->Read(&bytes));
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  v1::PutRequest next;
  *next.mutable_block() = api.Block("y", 64);
  next.set_payload(api.Payload(2, 64));
  EXPECT_TRUE(idle->Write(next.SerializeAsString()));
  EXPECT_TRUE(idle->Read(&bytes));
  idle->HalfClose();
  EXPECT_TRUE(idle->Finish().ok());
}

TEST(ServiceLimits, LeasesThatNobodyFillsExpire) {
  HarnessOptions options;
  options.limits.put_idle_ms = 1500;
  ServiceHarness harness(options);
  ApiClient api(harness.client.get(), FactsOf(2, 2, 32, 32, 4));
  auto session = harness.client->Open("KvStore/Session");
  session->Write(std::string());
  std::string bytes;
  v1::SessionResponse opened;
  ASSERT_TRUE(session->Read(&bytes) && opened.ParseFromString(bytes));
  v1::BeginPutRequest begin;
  begin.set_namespace_fingerprint(api.fingerprint());
  begin.set_session(opened.session());
  *begin.add_blocks() = api.Block("a", 4);
  v1::BeginPutResponse begun;
  ASSERT_TRUE(harness.client->Call("KvStore/BeginPut", begin, &begun).ok());
  EXPECT_EQ(harness.store->Stats().puts_in_flight, 1u);
  EXPECT_TRUE(Eventually([&] { return harness.store->Stats().puts_in_flight == 0; }));
  EXPECT_EQ(harness.core->counters().expired_leases.load(), 1u);
  session->HalfClose();
  EXPECT_TRUE(session->Finish().ok());
}

TEST(ServiceLimits, PutsThatBreakTheRulesEndTheirStreamAndNothingElse) {
  ServiceHarness harness;
  ApiClient api(harness.client.get(), FactsOf(8, 4, 64, 64, 64));
  auto refused = [&](const v1::PutRequest& first, const v1::PutRequest* second = nullptr) {
    auto stream = harness.client->Open("KvStore/Put");
    stream->Write(first.SerializeAsString());
    if (second != nullptr) stream->Write(second->SerializeAsString());
    stream->HalfClose();
    std::string bytes;
    while (stream->Read(&bytes)) {
    }
    absl::Status status = stream->Finish();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return Message(status);
  };
  v1::PutRequest good = FirstMessage(api, api.Block("b", 64), "");
  v1::PutRequest bad;
  bad.set_payload("x");
  EXPECT_THAT(refused(bad), HasSubstr("start"));
  bad = good;
  bad.clear_block();
  bad.set_payload("x");
  EXPECT_THAT(refused(bad), HasSubstr("before the first block"));
  bad = good;
  bad.set_lease(1);
  EXPECT_THAT(refused(bad), HasSubstr("not both"));
  EXPECT_THAT(refused(good, &good), HasSubstr("one `start`"));
  bad = FirstMessage(api, api.Block("b", 64), std::string((1 << 20) + 1, 'x'));
  EXPECT_THAT(refused(bad), HasSubstr("limits.chunk_bytes is 1048576"));
  // Payload out of place is the block's failure, not the stream's.
  v1::PutRequest gap = FirstMessage(api, api.Block("gap", 64), "xx");
  gap.set_offset(6);
  auto stream = harness.client->Open("KvStore/Put");
  ASSERT_TRUE(stream->Write(gap.SerializeAsString()));
  std::string bytes;
  v1::PutResponse answer;
  ASSERT_TRUE(stream->Read(&bytes) && answer.ParseFromString(bytes));
  EXPECT_THAT(answer.status().message(), HasSubstr("offset 6; the next byte of this part is 0"));
  stream->HalfClose();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST(ServiceLimits, HostileBytesNeverEndTheDaemon) {
  ServiceHarness harness;
  ApiClient api(harness.client.get(), FactsOf(2, 2, 32, 32, 4));
  ASSERT_EQ(api.Put("good", 1, 4).outcome(), v1::PUT_OUTCOME_STORED);
  const uint64_t seed = 40'404;
  std::mt19937_64 random(seed);
  std::string put = FirstMessage(api, api.Block("b", 4), api.Payload(1, 4)).SerializeAsString();
  std::string get = api.GetRequestOf({"good", "bad"}).SerializeAsString();
  const char* methods[] = {"KvStore/Put", "KvStore/Get", "KvStore/Session", "KvStore/Watch"};
  const char* unary[] = {"KvStore/RegisterNamespace", "KvStore/PutArtifact", "KvStore/Lookup",   "KvStore/Exists",
                         "KvStore/BeginPut",          "KvStore/CommitPut",   "KvStore/Prefetch", "Admin/Demote",
                         "KvStore/Describe",          "KvStore/Touch",       "Admin/Degrade",    "KvStore/List"};
  std::string answer;
  for (int round = 0; round < 1500; ++round) {
    std::string bytes = round % 3 == 0 ? get : put;
    if (round % 7 == 0) bytes = std::string(random() % 200, '\0');
    for (uint64_t flips = random() % 8; flips > 0 && !bytes.empty(); --flips) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    if (round % 2 == 0) {
      (void)harness.client->Call(unary[random() % std::size(unary)], bytes, &answer, 5'000);
      continue;
    }
    auto stream = harness.client->Open(methods[round % 4], 5'000);
    stream->Write(bytes);
    if (random() % 4 != 0) stream->HalfClose();
    if (random() % 4 == 0) stream->Cancel();
    if (random() % 2 == 0) (void)stream->Read(&answer);
  }
  EXPECT_EQ(api.Get("good").payload, api.Payload(1, 4)) << "seed " << seed;
}

// Many clients at once, each in its own way: hits, misses, errors, cancelled and abandoned calls.
TEST(ServiceLimits, C30_nothing_is_left_after_many_clients) {
  HarnessOptions options;
  options.hot_bytes = 8 * kMiB;
  options.warm_bytes = 4 * kMiB;
  ServiceHarness harness(options);
  std::atomic<int> wrong{0}, stored{0}, found{0};
  std::vector<std::thread> threads;
  const uint64_t seed = 50'505;
  for (uint64_t t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      RawClient raw(harness.address());
      ApiClient api(&raw, FactsOf(4, 2, 64, 64, 64));  // 256 KiB a block.
      std::mt19937_64 random(seed + t);
      for (int i = 0; i < 60; ++i) {
        uint64_t key = random() % 64;
        std::string name = "k" + std::to_string(key);
        switch (random() % 6) {
          case 0:
          case 1: {
            v1::PutOutcome outcome = api.Put(name, key, 64).outcome();
            stored += outcome == v1::PUT_OUTCOME_STORED;
            break;
          }
          case 2: {  // Abandoned in the middle.
            auto stream = raw.Open("KvStore/Put");
            stream->Write(
                FirstMessage(api, api.Block(name, 64), api.Payload(key, 64).substr(0, 70'000)).SerializeAsString());
            stream->Cancel();
            break;
          }
          case 3: {
            auto stream = StartGet(&raw, api.GetRequestOf({name, "k1", "k2"}));
            std::string bytes;
            if (random() % 2) stream->Read(&bytes);
            stream->Cancel();
            break;
          }
          case 4:
            (void)api.Delete(name);
            break;
          default: {
            v1::GetRequest request = api.GetRequestOf({name});
            request.mutable_least()->set_k(v1::PRECISION_CLASS_EXACT);
            request.mutable_least()->set_v(v1::PRECISION_CLASS_EXACT);
            ApiClient::Got got = api.Get(request)[0];
            if (got.status.ok()) {
              ++found;
              wrong += got.payload != api.Payload(key, 64);
            }
          }
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0) << "seed " << seed;
  EXPECT_GT(stored, 0);
  EXPECT_GT(found, 0);
  EXPECT_TRUE(Eventually([&] { return harness.store->Stats().puts_in_flight == 0; }));
}

TEST(ServiceLimits, BuffersOverTheBudgetWaitTheirTurn) {
  HarnessOptions options;
  options.limits.transport_budget_bytes = 30 * kMiB;  // 15 MiB of it for buffers: seven groups of layers.
  ServiceHarness harness(options);
  ApiClient api(harness.client.get(), FactsOf(16, 4, 64, 64, 512));
  ASSERT_EQ(api.Put("b", 1, 512).outcome(), v1::PUT_OUTCOME_STORED);
  v1::GetRequest request = api.GetRequestOf({"b", "b"});
  request.set_representation(v1::REPRESENTATION_BF16);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (const ApiClient::Got& got : api.Get(request)) EXPECT_TRUE(got.status.ok()) << got.status;
    });
  }
  for (auto& thread : threads) thread.join();
  // A layout needs the whole block at once: more than there is.
  v1::Layout* layout = request.mutable_layout();
  for (auto* part : {layout->mutable_k(), layout->mutable_v()}) {
    part->set_layer_stride(4 * 512 * 64);
    part->set_head_stride(512 * 64);
    part->set_token_stride(64);
  }
  layout->mutable_v()->set_offset(16 * 4 * 512 * 64);
  layout->set_payload_bytes(api.PayloadBytes(512));
  ApiClient::Got got = api.Get(request)[0];
  EXPECT_EQ(got.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(got.status), HasSubstr("half of limits.transport_budget is 15.00 MiB"));
}

}  // namespace
}  // namespace firn
