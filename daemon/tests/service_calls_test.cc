// Namespaces, sessions, leases, lookups, watching, administration: what a client may ask and what it is told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/block_key.h"
#include "base/status.h"
#include "daemon/tests/service_harness_test_util.h"

namespace firn {
namespace {

using ::testing::HasSubstr;

struct OpenSession {
  std::unique_ptr<RawStream> stream;
  std::string token;
};

OpenSession NewSession(RawClient* client) {
  OpenSession session;
  session.stream = client->Open("KvStore/Session");
  v1::SessionRequest request;
  request.set_client("test");
  session.stream->Write(request.SerializeAsString());
  std::string bytes;
  v1::SessionResponse response;
  EXPECT_TRUE(session.stream->Read(&bytes) && response.ParseFromString(bytes));
  session.token = response.session();
  EXPECT_EQ(session.token.size(), 16u);
  return session;
}

v1::PinRequest PinOf(const ApiClient& api, const std::string& token, const std::string& key) {
  v1::PinRequest request;
  request.set_namespace_fingerprint(api.fingerprint());
  request.set_session(token);
  *request.add_keys() = OpaqueKey(key);
  return request;
}

TEST(ServiceCalls, StartingAnswersUnavailableAndSaysWhy) {
  HarnessOptions options;
  options.ready = false;
  ServiceHarness harness(options);
  harness.core->SetStarting("taking memory: 1 GiB of 64 GiB");
  v1::CapabilitiesResponse response;
  absl::Status status = harness.client->Call("KvStore/Capabilities", v1::CapabilitiesRequest(), &response);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), HasSubstr("taking memory: 1 GiB of 64 GiB"));
  auto stream = harness.client->Open("KvStore/Get");
  EXPECT_EQ(stream->Finish().code(), absl::StatusCode::kUnavailable);
  harness.HandOver();
  EXPECT_TRUE(harness.client->Call("KvStore/Capabilities", v1::CapabilitiesRequest(), &response).ok());
  EXPECT_EQ(response.tiers_size(), 2);
  EXPECT_EQ(response.byte_paths(0), "inline");
}

// The same tokens, one fact changed at a time: never a hit, and never another tenant's.
TEST(ServiceCalls, C44_any_other_fact_is_another_namespace) {
  ServiceHarness harness;
  v1::NamespaceFacts facts = FactsOf(2, 2, 32, 32, 4);
  ApiClient api(harness.client.get(), facts);
  ASSERT_EQ(api.Put("k", 1, 4).outcome(), v1::PUT_OUTCOME_STORED);
  std::vector<v1::NamespaceFacts> others(10, facts);
  others[0].set_model_id("other");
  others[1].set_revision("r2");
  others[2].set_dtype(v1::DTYPE_BF16);
  others[3].set_block_tokens(8);
  others[4].set_layer_first(1);
  others[5].set_shards(2);
  others[6].set_kv_heads(4);
  others[7].mutable_rope()->set_theta(10000);
  others[8].set_k_pre_rope(true);
  others[9].set_v_width(16);
  for (size_t i = 0; i < others.size(); ++i) {
    ApiClient other(harness.client.get(), others[i]);
    EXPECT_NE(other.fingerprint(), api.fingerprint()) << i;
    EXPECT_FALSE(other.Exists("k")) << i;
  }
  ApiClient same(harness.client.get(), facts);
  EXPECT_EQ(same.fingerprint(), api.fingerprint());
  EXPECT_TRUE(same.Exists("k"));

  RawClient stranger(harness.AddListener("stranger"));
  ApiClient theirs(&stranger, facts);
  EXPECT_EQ(theirs.info.model_fingerprint(), api.info.model_fingerprint());
  EXPECT_NE(theirs.fingerprint(), api.fingerprint());
  EXPECT_FALSE(theirs.Exists("k"));
  // Knowing the fingerprint of another tenant's namespace is of no use.
  v1::DescribeNamespaceRequest describe;
  describe.set_namespace_fingerprint(api.fingerprint());
  v1::NamespaceInfo info;
  EXPECT_EQ(stranger.Call("KvStore/DescribeNamespace", describe, &info).code(), absl::StatusCode::kNotFound);
  v1::ListNamespacesResponse list;
  ASSERT_TRUE(stranger.Call("KvStore/ListNamespaces", v1::ListNamespacesRequest(), &list).ok());
  EXPECT_EQ(list.namespaces_size(), 1);
  // Nor is another tenant's session; and the Admin service is not on this listener.
  OpenSession session = NewSession(harness.client.get());
  v1::BatchResponse pinned;
  EXPECT_EQ(stranger.Call("KvStore/Pin", PinOf(theirs, session.token, "k"), &pinned).code(),
            absl::StatusCode::kFailedPrecondition);
  v1::ClearResponse cleared;
  EXPECT_EQ(stranger.Call("Admin/Clear", v1::ClearRequest(), &cleared).code(), absl::StatusCode::kUnimplemented);
}

TEST(ServiceCalls, C30_pins_end_with_their_session_and_never_go_below_zero) {
  ServiceHarness harness;
  ApiClient api(harness.client.get(), FactsOf(2, 2, 32, 32, 4));
  ASSERT_EQ(api.Put("k", 1, 4).outcome(), v1::PUT_OUTCOME_STORED);
  auto pins = [&] { return api.Stats().gauges().at("pins"); };
  OpenSession session = NewSession(harness.client.get());
  v1::BatchResponse response;
  ASSERT_TRUE(harness.client->Call("KvStore/Unpin", PinOf(api, session.token, "k"), &response).ok());
  EXPECT_EQ(response.statuses(0).code(), 9u);
  ASSERT_TRUE(harness.client->Call("KvStore/Pin", PinOf(api, session.token, "k"), &response).ok());
  EXPECT_EQ(response.statuses(0).code(), 0u) << response.statuses(0).message();
  ASSERT_TRUE(harness.client->Call("KvStore/Pin", PinOf(api, session.token, "gone"), &response).ok());
  EXPECT_EQ(response.statuses(0).code(), 5u);
  EXPECT_EQ(pins(), 1u);
  session.stream->Cancel();  // The client dies.
  (void)session.stream->Finish();
  EXPECT_TRUE(Eventually([&] { return pins() == 0; }));
  EXPECT_EQ(harness.client->Call("KvStore/Pin", PinOf(api, session.token, "k"), &response).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(ServiceCalls, LeasesAreFilledAndCommittedApart) {
  ServiceHarness harness;
  ApiClient api(harness.client.get(), FactsOf(2, 2, 32, 32, 4));
  OpenSession session = NewSession(harness.client.get());
  v1::BeginPutRequest begin;
  begin.set_namespace_fingerprint(api.fingerprint());
  begin.set_session(session.token);
  *begin.add_blocks() = api.Block("a", 4);
  *begin.add_blocks() = api.Block("b", 4);
  begin.add_blocks();  // Nothing of it is valid.
  v1::BeginPutResponse begun;
  ASSERT_TRUE(harness.client->Call("KvStore/BeginPut", begin, &begun).ok());
  ASSERT_EQ(begun.leases_size(), 3);
  ASSERT_EQ(begun.leases(0).status().code(), 0u) << begun.leases(0).status().message();
  EXPECT_TRUE(begun.leases(0).extent().has_inline_());
  EXPECT_EQ(begun.leases(2).status().code(), 3u);
  begin.mutable_extent()->mutable_shared_region();
  v1::BeginPutResponse refused;
  absl::Status status = harness.client->Call("KvStore/BeginPut", begin, &refused);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("inline"));
  begin.mutable_extent()->mutable_gpu_handle();
  ASSERT_TRUE(harness.client->Call("KvStore/BeginPut", begin, &refused).ok());
  begin.mutable_blocks(0)->mutable_ref()->mutable_key()->set_opaque("c");
  refused.Clear();
  ASSERT_TRUE(harness.client->Call("KvStore/BeginPut", begin, &refused).ok());
  EXPECT_EQ(refused.leases(0).status().code(), 9u) << "no tier reaches device memory";
  EXPECT_THAT(refused.leases(0).status().message(), HasSubstr("device memory"));

  v1::CommitPutRequest commit;
  commit.set_session(session.token);
  commit.add_leases(begun.leases(0).lease());
  v1::CommitPutResponse committed;
  ASSERT_TRUE(harness.client->Call("KvStore/CommitPut", commit, &committed).ok());
  EXPECT_EQ(committed.results(0).status().code(), 9u);  // It has no payload yet.

  auto stream = harness.client->Open("KvStore/Put");
  v1::PutRequest fill;
  fill.mutable_start()->set_namespace_fingerprint(api.fingerprint());
  fill.mutable_start()->set_session(session.token);
  fill.set_lease(begun.leases(0).lease());
  fill.set_payload(api.Payload(5, 4));
  ASSERT_TRUE(stream->Write(fill.SerializeAsString()));
  std::string bytes;
  v1::PutResponse filled;
  ASSERT_TRUE(stream->Read(&bytes) && filled.ParseFromString(bytes));
  EXPECT_EQ(filled.outcome(), v1::PUT_OUTCOME_FILLED);
  stream->HalfClose();
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_FALSE(api.Exists("a"));
  ASSERT_TRUE(harness.client->Call("KvStore/CommitPut", commit, &committed).ok());
  EXPECT_EQ(committed.results(0).outcome(), v1::PUT_OUTCOME_STORED) << committed.results(0).status().message();
  EXPECT_EQ(api.Get("a").payload, api.Payload(5, 4));

  v1::AbortPutRequest abort;
  abort.set_session(session.token);
  abort.add_leases(begun.leases(1).lease());
  abort.add_leases(begun.leases(1).lease());
  v1::AbortPutResponse aborted;
  ASSERT_TRUE(harness.client->Call("KvStore/AbortPut", abort, &aborted).ok());
  EXPECT_EQ(aborted.statuses(0).code(), 0u);
  EXPECT_EQ(aborted.statuses(1).code(), 5u);
  EXPECT_EQ(api.Stats().gauges().at("puts_in_flight"), 0u);

  // A lease left behind ends with its session.
  *begin.mutable_blocks(0) = api.Block("c", 4);
  begin.clear_extent();
  ASSERT_TRUE(harness.client->Call("KvStore/BeginPut", begin, &begun).ok());
  EXPECT_GT(api.Stats().gauges().at("puts_in_flight"), 0u);
  session.stream->HalfClose();
  EXPECT_TRUE(session.stream->Finish().ok());
  EXPECT_TRUE(Eventually([&] { return api.Stats().gauges().at("puts_in_flight") == 0; }));
}

TEST(ServiceCalls, LookupFindsTheLongestPrefixOfTokens) {
  ServiceHarness harness;
  ApiClient api(harness.client.get(), FactsOf(1, 1, 16, 16, 4));
  std::vector<uint32_t> tokens;
  for (uint32_t i = 0; i < 18; ++i) tokens.push_back(i * 7 + (1u << 31));
  std::vector<std::string_view> extras = {"adapter"};
  auto keys = ChainedBlockKeys(AsBytes(api.info.model_fingerprint()), tokens, 4, extras, true);
  ASSERT_EQ(keys.size(), 5u);
  for (size_t i : {0u, 1u, 3u, 4u}) {
    v1::PutBlock block = api.Block("", i == 4 ? 2 : 4);
    block.mutable_ref()->mutable_key()->set_digest(keys[i].bytes.data(), 32);
    ASSERT_EQ(api.Put(block, api.Payload(i, i == 4 ? 2 : 4)).outcome(), v1::PUT_OUTCOME_STORED);
  }
  v1::LookupRequest request;
  request.set_namespace_fingerprint(api.fingerprint());
  for (uint32_t token : tokens) request.mutable_tokens()->add_tokens(token);
  request.mutable_tokens()->add_extras("adapter");
  request.mutable_tokens()->set_with_tail(true);
  v1::LookupResponse response;
  ASSERT_TRUE(harness.client->Call("KvStore/Lookup", request, &response).ok());
  EXPECT_EQ(response.prefix_blocks(), 2u);
  EXPECT_EQ(response.prefix_tokens(), 8u);
  ASSERT_EQ(response.keys_size(), 2);
  EXPECT_EQ(response.keys(1), std::string(AsText(keys[1].span())));
  // From a parent on, with the tail.
  request.mutable_tokens()->clear_tokens();
  for (size_t i = 12; i < tokens.size(); ++i) request.mutable_tokens()->add_tokens(tokens[i]);
  request.mutable_tokens()->mutable_parent()->set_digest(keys[2].bytes.data(), 32);
  ASSERT_TRUE(harness.client->Call("KvStore/Lookup", request, &response).ok());
  EXPECT_EQ(response.prefix_blocks(), 2u);
  EXPECT_EQ(response.prefix_tokens(), 6u);
  request.mutable_tokens()->set_extras(0, "another");
  ASSERT_TRUE(harness.client->Call("KvStore/Lookup", request, &response).ok());
  EXPECT_EQ(response.prefix_blocks(), 0u);
}

TEST(ServiceCalls, AKeyThatBreaksALimitIsAnsweredByItself) {
  ServiceHarness harness;
  ApiClient api(harness.client.get(), FactsOf(1, 1, 16, 16, 4));
  ASSERT_EQ(api.Put("a", 1, 4).outcome(), v1::PUT_OUTCOME_STORED);
  ASSERT_EQ(api.Put("b", 2, 4).outcome(), v1::PUT_OUTCOME_STORED);
  std::vector<v1::BlockKey> keys = {OpaqueKey("a"), OpaqueKey(std::string(5000, 'x')), OpaqueKey("b"),
                                    OpaqueKey("none")};
  v1::ExistsRequest request;
  request.set_namespace_fingerprint(api.fingerprint());
  for (const auto& key : keys) *request.add_keys() = key;
  v1::ExistsResponse response;
  ASSERT_TRUE(harness.client->Call("KvStore/Exists", request, &response).ok());
  ASSERT_EQ(response.blocks_size(), 4);
  for (int i : {0, 2, 3}) EXPECT_FALSE(response.blocks(i).has_status()) << i;
  EXPECT_TRUE(response.blocks(0).found() && response.blocks(2).found());
  EXPECT_FALSE(response.blocks(3).found());
  EXPECT_EQ(response.blocks(1).status().code(), 3u);
  EXPECT_THAT(response.blocks(1).status().message(), HasSubstr("4096"));

  v1::LookupRequest lookup;
  lookup.set_namespace_fingerprint(api.fingerprint());
  for (size_t i : {0u, 2u, 1u, 0u}) *lookup.mutable_keys()->add_keys() = keys[i];
  v1::LookupResponse prefix;
  ASSERT_TRUE(harness.client->Call("KvStore/Lookup", lookup, &prefix).ok());
  EXPECT_EQ(prefix.prefix_blocks(), 2u);
  EXPECT_EQ(prefix.stopped().code(), 3u);
  lookup.mutable_keys()->clear_keys();  // It ends earlier all the same.
  for (size_t i : {0u, 3u, 1u}) *lookup.mutable_keys()->add_keys() = keys[i];
  ASSERT_TRUE(harness.client->Call("KvStore/Lookup", lookup, &prefix).ok());
  EXPECT_EQ(prefix.prefix_blocks(), 1u);
  EXPECT_FALSE(prefix.has_stopped());

  v1::DescribeRequest describe;
  describe.set_namespace_fingerprint(api.fingerprint());
  for (const auto& key : keys) *describe.add_keys() = key;
  v1::DescribeResponse described;
  ASSERT_TRUE(harness.client->Call("KvStore/Describe", describe, &described).ok());
  ASSERT_EQ(described.answers_size(), 4);
  for (auto [index, code] : {std::pair(0, 0u), {1, 3u}, {2, 0u}, {3, 5u}}) {
    EXPECT_EQ(described.answers(index).status().code(), code) << index;
  }
}

TEST(ServiceCalls, EveryAnswerIsTimedOnce) {
  ServiceHarness harness;
  ApiClient api(harness.client.get(), FactsOf(1, 1, 16, 16, 4));
  auto timed = [&](Method method) {
    return harness.core->counters().latency[static_cast<size_t>(method)].Snapshot().count();
  };
  EXPECT_EQ(timed(Method::kPut), 0u);
  ASSERT_EQ(api.Put("a", 1, 4).outcome(), v1::PUT_OUTCOME_STORED);
  ASSERT_EQ(api.Put("a", 1, 4).outcome(), v1::PUT_OUTCOME_EXISTS);
  v1::PutBlock bad = api.Block("b", 4);
  bad.set_tokens(0);
  EXPECT_EQ(api.Put(bad, "").outcome(), v1::PUT_OUTCOME_FAILED);
  EXPECT_EQ(timed(Method::kPut), 3u);
  EXPECT_EQ(api.Get(api.GetRequestOf({"a", "none", "a"})).size(), 3u);
  EXPECT_EQ(timed(Method::kGet), 3u);
  uint64_t before = timed(Method::kExists);
  api.Exists("a");
  EXPECT_EQ(timed(Method::kExists), before + 1);
}

TEST(ServiceCalls, WatchTellsWhatHappensAndResumes) {
  ServiceHarness harness;
  ApiClient api(harness.client.get(), FactsOf(1, 1, 16, 16, 4));
  ASSERT_EQ(api.Put("before", 1, 4).outcome(), v1::PUT_OUTCOME_STORED);
  auto watch = harness.client->Open("KvStore/Watch");
  watch->Write(v1::WatchRequest().SerializeAsString());
  watch->HalfClose();
  std::string bytes;
  v1::WatchResponse response;
  ASSERT_TRUE(watch->Read(&bytes) && response.ParseFromString(bytes));
  EXPECT_EQ(response.events_size(), 0);
  uint64_t start = response.sequence();
  EXPECT_GT(start, 0u);
  ASSERT_EQ(api.Put("after", 1, 4).outcome(), v1::PUT_OUTCOME_STORED);
  ASSERT_TRUE(watch->Read(&bytes) && response.ParseFromString(bytes));
  ASSERT_EQ(response.events_size(), 1);
  EXPECT_EQ(response.events(0).kind(), v1::EVENT_KIND_STORED);
  EXPECT_EQ(response.events(0).namespace_fingerprint(), api.fingerprint());
  EXPECT_TRUE(api.Delete("after").ok());
  ASSERT_TRUE(watch->Read(&bytes) && response.ParseFromString(bytes));
  EXPECT_EQ(response.events(0).kind(), v1::EVENT_KIND_REMOVED);
  watch->Cancel();
  (void)watch->Finish();

  v1::WatchRequest resume;
  resume.set_after(start);
  auto again = harness.client->Open("KvStore/Watch");
  again->Write(resume.SerializeAsString());
  again->HalfClose();
  ASSERT_TRUE(again->Read(&bytes));  // Where it stands.
  ASSERT_TRUE(again->Read(&bytes) && response.ParseFromString(bytes));
  EXPECT_EQ(response.events_size(), 2);
  EXPECT_FALSE(response.gap());
  // Another tenant hears nothing of it.
  RawClient stranger(harness.AddListener("stranger"));
  auto theirs = stranger.Open("KvStore/Watch", 1000);
  resume.set_after(0);
  theirs->Write(resume.SerializeAsString());
  theirs->HalfClose();
  ASSERT_TRUE(theirs->Read(&bytes));
  EXPECT_FALSE(theirs->Read(&bytes) && response.ParseFromString(bytes) && response.events_size() > 0);
}

TEST(ServiceCalls, ListDescribeTouchDeleteFlush) {
  ServiceHarness harness;
  ApiClient api(harness.client.get(), FactsOf(1, 1, 16, 16, 4));
  for (int i = 0; i < 10; ++i) ASSERT_EQ(api.Put("k" + std::to_string(i), 1, 4).outcome(), v1::PUT_OUTCOME_STORED);
  v1::ListRequest list;
  list.set_namespace_fingerprint(api.fingerprint());
  list.set_limit(4);
  size_t seen = 0;
  while (true) {
    v1::ListResponse page;
    ASSERT_TRUE(harness.client->Call("KvStore/List", list, &page).ok());
    if (page.blocks_size() == 0) break;
    seen += static_cast<size_t>(page.blocks_size());
    list.set_after(page.blocks(page.blocks_size() - 1).key());
  }
  EXPECT_EQ(seen, 10u);
  v1::DescribeRequest describe;
  describe.set_namespace_fingerprint(api.fingerprint());
  *describe.add_keys() = OpaqueKey("k3");
  *describe.add_keys() = OpaqueKey("none");
  v1::DescribeResponse described;
  ASSERT_TRUE(harness.client->Call("KvStore/Describe", describe, &described).ok());
  EXPECT_EQ(described.answers(0).shards(0).tokens(), 4u);
  EXPECT_EQ(described.answers(0).shards(0).copies(0).served().k(), v1::PRECISION_CLASS_EXACT);
  EXPECT_EQ(described.answers(1).status().code(), 5u);
  v1::TouchRequest touch;
  touch.set_namespace_fingerprint(api.fingerprint());
  *touch.add_hints()->mutable_key() = OpaqueKey("k3");
  *touch.add_hints()->mutable_key() = OpaqueKey("k4");
  touch.mutable_hints(0)->set_importance(0.5f);
  touch.mutable_hints(1)->set_importance(7);
  v1::BatchResponse touched;
  ASSERT_TRUE(harness.client->Call("KvStore/Touch", touch, &touched).ok());
  EXPECT_EQ(touched.statuses(0).code(), 0u);
  EXPECT_THAT(touched.statuses(1).message(), HasSubstr("-1 to 1"));
  EXPECT_TRUE(api.Delete("k3").ok());
  EXPECT_EQ(api.Delete("k3").code(), absl::StatusCode::kNotFound);
  v1::FlushRequest flush;
  flush.set_namespace_fingerprint(api.fingerprint());
  v1::FlushResponse flushed;  // These tiers are memory.
  EXPECT_EQ(harness.client->Call("KvStore/Flush", flush, &flushed).code(), absl::StatusCode::kFailedPrecondition);
}

// A block of very many shards, described very often: bounded before it is built.
TEST(ServiceCalls, AnswersThatDescribeEndBeforeTheMessageIsTooLarge) {
  ServiceHarness harness;
  v1::NamespaceFacts facts = FactsOf(1, 1, 1, 0, 1);
  facts.set_shards(1024);
  ApiClient api(harness.client.get(), facts);
  constexpr int kBlocks = 60;
  for (int block = 0; block < kBlocks; ++block) {
    std::vector<std::pair<v1::PutBlock, std::string>> puts;
    for (uint32_t shard = 0; shard < 1024; ++shard) {
      v1::PutBlock put = api.Block("wide " + std::to_string(block), 1);
      put.mutable_ref()->set_shard(shard);
      puts.emplace_back(put, api.Payload(shard, 1));
    }
    for (const v1::PutResponse& answer : api.PutAll(puts)) ASSERT_EQ(answer.outcome(), v1::PUT_OUTCOME_STORED);
  }
  v1::DescribeRequest describe;
  describe.set_namespace_fingerprint(api.fingerprint());
  for (int i = 0; i < 6000; ++i) *describe.add_keys() = OpaqueKey("wide 0");
  v1::DescribeResponse described;
  absl::Status status = harness.client->Call("KvStore/Describe", describe, &described);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(described.answers_size(), 6000);
  EXPECT_EQ(described.answers(0).shards_size(), 1024);
  EXPECT_EQ(described.answers(5999).status().code(), static_cast<int>(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(described.answers(5999).status().message(), HasSubstr("another call"));
  EXPECT_LT(described.ByteSizeLong(), 16 * kMiB);
  // A list of more than a message takes comes in pages, each of whole blocks, and loses none.
  v1::ListRequest list;
  list.set_namespace_fingerprint(api.fingerprint());
  list.set_limit(65536);
  std::set<std::string> keys;
  size_t rows = 0, pages = 0;
  while (true) {
    v1::ListResponse page;
    status = harness.client->Call("KvStore/List", list, &page);
    ASSERT_TRUE(status.ok()) << status;
    if (page.blocks_size() == 0) break;
    ++pages;
    rows += static_cast<size_t>(page.blocks_size());
    for (const v1::BlockInfo& info : page.blocks()) keys.insert(info.key());
    EXPECT_LT(page.ByteSizeLong(), 9 * kMiB);
    list.set_after(page.blocks(page.blocks_size() - 1).key());
  }
  EXPECT_EQ(rows, kBlocks * 1024u);
  EXPECT_EQ(keys.size(), static_cast<size_t>(kBlocks));
  EXPECT_GE(pages, 2u);
}

TEST(ServiceCalls, AdministrationAndVerify) {
  ServiceHarness harness;
  ApiClient api(harness.client.get(), FactsOf(1, 1, 16, 16, 4));
  ASSERT_EQ(api.Put("k", 1, 4).outcome(), v1::PUT_OUTCOME_STORED);
  v1::VerifyResponse verified;
  ASSERT_TRUE(harness.client->Call("Admin/Verify", v1::VerifyRequest(), &verified).ok());
  EXPECT_TRUE(verified.consistent());
  v1::SetCapacityRequest capacity;
  capacity.set_tier("hot");
  capacity.set_capacity_bytes(kGiB);
  v1::SetCapacityResponse set;
  absl::Status status = harness.client->Call("Admin/SetCapacity", capacity, &set);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("1.00 GiB"));
  capacity.set_capacity_bytes(kMiB);
  ASSERT_TRUE(harness.client->Call("Admin/SetCapacity", capacity, &set).ok());
  EXPECT_EQ(set.capacity_bytes(), kMiB);
  capacity.set_tier("lukewarm");
  status = harness.client->Call("Admin/SetCapacity", capacity, &set);
  EXPECT_THAT(Message(status), HasSubstr("hot, warm"));
  v1::ClearRequest clear;
  clear.set_namespace_fingerprint(api.fingerprint());
  v1::ClearResponse cleared;
  ASSERT_TRUE(harness.client->Call("Admin/Clear", clear, &cleared).ok());
  EXPECT_EQ(cleared.copies_removed(), 1u);
  EXPECT_FALSE(api.Exists("k"));
  ASSERT_TRUE(harness.client->Call("Admin/Clear", clear, &cleared).ok());
  EXPECT_EQ(cleared.copies_removed(), 0u);
}

TEST(ServiceCalls, ARemovedNamespaceIsRegisteredAnew) {
  ServiceHarness harness;
  ApiClient api(harness.client.get(), FactsOf(1, 1, 16, 16, 4));
  ASSERT_EQ(api.Put("k", 1, 4).outcome(), v1::PUT_OUTCOME_STORED);
  v1::RemoveNamespaceRequest request;
  request.set_namespace_fingerprint(api.fingerprint());
  v1::RemoveNamespaceResponse removed;
  ASSERT_TRUE(harness.client->Call("Admin/RemoveNamespace", request, &removed).ok());
  EXPECT_EQ(removed.copies_removed(), 1u);
  EXPECT_EQ(harness.client->Call("Admin/RemoveNamespace", request, &removed).code(), absl::StatusCode::kNotFound);
  ApiClient again(harness.client.get(), FactsOf(1, 1, 16, 16, 4));
  EXPECT_EQ(again.fingerprint(), api.fingerprint());
  EXPECT_FALSE(again.Exists("k"));
  EXPECT_EQ(again.Put("k", 1, 4).outcome(), v1::PUT_OUTCOME_STORED);
  EXPECT_EQ(again.Stats().gauges().at("namespaces"), 1u);
}

// Counters are what was done, told apart: gets by tier, misses by reason, and questions are not gets.
TEST(ServiceCalls, C58_counters_equal_the_script) {
  ServiceHarness harness;
  ApiClient api(harness.client.get(), FactsOf(1, 1, 64, 64, 16));
  for (int i = 0; i < 60; ++i) ASSERT_EQ(api.Put("k" + std::to_string(i), 1, 16).outcome(), v1::PUT_OUTCOME_STORED);
  v1::MoveRequest move;
  move.set_namespace_fingerprint(api.fingerprint());
  move.set_tier("warm");
  for (int i = 40; i < 60; ++i) *move.add_keys() = OpaqueKey("k" + std::to_string(i));
  v1::MoveResponse moved;
  ASSERT_TRUE(harness.client->Call("Admin/Demote", move, &moved).ok());
  v1::StatsResponse before = api.Stats();
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(api.Get("k" + std::to_string(i)).status.ok());
  for (int i = 40; i < 60; ++i) {
    v1::GetRequest coarse = api.GetRequestOf({"k" + std::to_string(i)});
    coarse.mutable_least()->set_k(v1::PRECISION_CLASS_EXACT);
    EXPECT_FALSE(api.Get(coarse)[0].status.ok());
    EXPECT_TRUE(api.Get("k" + std::to_string(i)).status.ok());
  }
  for (int i = 0; i < 30; ++i) EXPECT_FALSE(api.Get("none" + std::to_string(i)).status.ok());
  for (int i = 0; i < 5; ++i) api.Exists("k1");
  v1::StatsResponse after = api.Stats();
  EXPECT_EQ(after.tiers(0).hits() - before.tiers(0).hits(), 40u);
  EXPECT_EQ(after.tiers(1).hits() - before.tiers(1).hits(), 20u);
  EXPECT_EQ(after.misses().at("unknown") - before.misses().at("unknown"), 30u);
  EXPECT_EQ(after.misses().at("precision") - before.misses().at("precision"), 20u);
  EXPECT_EQ(after.counters().at("lookups") - before.counters().at("lookups"), 5u);
  EXPECT_EQ(after.counters().at("prefetches"), before.counters().at("prefetches"));
}

TEST(ServiceCalls, HealthAndReflectionAreThere) {
  ServiceHarness harness;
  std::string response;
  ASSERT_TRUE(harness.client->Call("/grpc.health.v1.Health/Check", std::string(), &response).ok());
  EXPECT_EQ(response, std::string("\x08\x02", 2));  // NOT_SERVING until the daemon says otherwise.
  harness.listeners[0]->SetServing(true);
  ASSERT_TRUE(harness.client->Call("/grpc.health.v1.Health/Check", std::string(), &response).ok());
  EXPECT_EQ(response, std::string("\x08\x01", 2));
  auto stream = harness.client->Open("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo");
  ASSERT_TRUE(stream->Write(std::string("\x3a\x01*", 3)));  // list_services
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_THAT(response, HasSubstr("firn.v1.KvStore"));
  EXPECT_THAT(response, HasSubstr("firn.v1.Admin"));
}

}  // namespace
}  // namespace firn
