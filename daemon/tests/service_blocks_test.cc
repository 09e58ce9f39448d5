// Blocks in and out over the wire: every size, every representation, one status a key.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "base/status.h"
#include "codecs/block_codec.h"
#include "daemon/tests/service_harness_test_util.h"

namespace firn {
namespace {

using ::testing::HasSubstr;

TEST(ServiceBlocks, WhatWasPutComesBack) {
  ServiceHarness harness;
  ApiClient api(harness.client.get(), FactsOf(4, 2, 64, 32, 16));
  EXPECT_EQ(api.info.block_bytes(), api.PayloadBytes(16));
  for (uint32_t tokens : {1u, 5u, 16u}) {
    std::string key = "block " + std::to_string(tokens);
    EXPECT_FALSE(api.Get(key).status.ok());
    v1::PutResponse put = api.Put(key, tokens, tokens);
    ASSERT_EQ(put.outcome(), v1::PUT_OUTCOME_STORED) << put.status().message();
    EXPECT_EQ(put.stored_class().k(), v1::PRECISION_CLASS_EXACT);
    ApiClient::Got got = api.Get(key);
    ASSERT_TRUE(got.status.ok()) << got.status;
    EXPECT_EQ(got.payload, api.Payload(tokens, tokens));
    EXPECT_EQ(got.found.tokens(), tokens);
    EXPECT_EQ(got.found.dtype(), v1::DTYPE_FP16);
    EXPECT_EQ(got.found.generation(), put.generation());
    EXPECT_EQ(got.messages, 1u);  // A small block is one message.
  }
}

// 131,072 bytes a token: payloads just below, at and far above gRPC's default limit of 4 MiB.
TEST(ServiceBlocks, C39_sizes_around_and_over_the_default_message_limit) {
  HarnessOptions options;
  options.hot_bytes = 192 * kMiB;
  options.limits.block_bytes_max = 80 * kMiB;
  ServiceHarness harness(options);
  ApiClient api(harness.client.get(), FactsOf(32, 8, 128, 128, 1024));
  for (uint32_t tokens : {31u, 32u, 256u, 640u}) {
    std::string key = std::to_string(tokens);
    v1::PutResponse put = api.Put(key, tokens, tokens);
    ASSERT_EQ(put.outcome(), v1::PUT_OUTCOME_STORED) << tokens << ": " << put.status().message();
    ApiClient::Got got = api.Get(key);
    ASSERT_TRUE(got.status.ok()) << got.status;
    EXPECT_EQ(got.payload.size(), uint64_t{tokens} * 131072);
    EXPECT_TRUE(got.payload == api.Payload(tokens, tokens)) << tokens;
    EXPECT_TRUE(api.Delete(key).ok());
  }
  // Over our own limit: refused before the upload, naming it; the stream goes on.
  auto answers = api.PutAll({{api.Block("large", 641), ""}, {api.Block("small", 1), api.Payload(1, 1)}});
  EXPECT_EQ(answers[0].status().code(), 3u);
  EXPECT_THAT(answers[0].status().message(), AllOf(HasSubstr("84017152"), HasSubstr("80.00 MiB")));
  EXPECT_EQ(answers[1].outcome(), v1::PUT_OUTCOME_STORED);
}

TEST(ServiceBlocks, PartsMayInterleaveAndChunksMayBeAnySize) {
  ServiceHarness harness;
  ApiClient api(harness.client.get(), FactsOf(4, 2, 64, 32, 16));
  std::string payload = api.Payload(7, 16);
  uint64_t k_layer = 2 * 16 * 64 * 2, v_layer = 2 * 16 * 32 * 2, k_bytes = 4 * k_layer;
  auto stream = harness.client->Open("KvStore/Put");
  v1::PutRequest message;
  message.mutable_start()->set_namespace_fingerprint(api.fingerprint());
  *message.mutable_block() = api.Block("by layer", 16);
  for (uint64_t layer = 0; layer < 4; ++layer) {  // K and V of each layer in turn.
    message.set_offset(layer * k_layer);
    message.set_payload(payload.substr(layer * k_layer, k_layer));
    ASSERT_TRUE(stream->Write(message.SerializeAsString()));
    message.Clear();
    message.set_offset(k_bytes + layer * v_layer);
    message.set_payload(payload.substr(k_bytes + layer * v_layer, v_layer));
    ASSERT_TRUE(stream->Write(message.SerializeAsString()));
  }
  stream->HalfClose();
  std::string bytes;
  ASSERT_TRUE(stream->Read(&bytes));
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(api.Get("by layer").payload, payload);

  EXPECT_EQ(api.Put(api.Block("bytewise", 1), api.Payload(8, 1), 7).outcome(), v1::PUT_OUTCOME_STORED);
  EXPECT_EQ(api.Get("bytewise").payload, api.Payload(8, 1));
}

TEST(ServiceBlocks, C46_keys_of_every_length_and_content) {
  ServiceHarness harness;
  ApiClient api(harness.client.get(), FactsOf(1, 1, 16, 16, 4));
  std::vector<std::string> keys = {std::string(1, 'k'),    std::string(255, 'k'),
                                   std::string(256, 'k'),  std::string(1024, 'k'),
                                   std::string(4096, 'k'), std::string("a\0b", 3),
                                   std::string("a\0c", 3), "../../etc/passwd",
                                   "line\nline",           "\xff\xfe",
                                   std::string(32, '\0')};
  keys.push_back(std::string(255, 'x') + "1");
  keys.push_back(std::string(255, 'x') + "2");
  for (size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(api.Put(keys[i], i, 4).outcome(), v1::PUT_OUTCOME_STORED) << i;
  for (size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(api.Get(keys[i]).payload, api.Payload(i, 4)) << i;
  for (size_t size : {size_t{0}, size_t{4097}, size_t{30'000}}) {
    v1::PutResponse put = api.Put(std::string(size, 'k'), 1, 4);
    EXPECT_EQ(put.status().code(), 3u) << size;
    EXPECT_THAT(put.status().message(), HasSubstr("1 to 4096 bytes"));
    EXPECT_EQ(api.Get(std::string(size, 'k')).status.code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_NE(api.Put(std::string(1 << 20, 'k'), 1, 4).outcome(), v1::PUT_OUTCOME_STORED);
  // An opaque key of 32 bytes is not the chained key of the same bytes.
  v1::GetRequest request = api.GetRequestOf({"x"});
  request.mutable_blocks(0)->mutable_key()->set_digest(std::string(32, '\0'));
  EXPECT_EQ(api.Get(request)[0].status.code(), absl::StatusCode::kNotFound);
  request.mutable_blocks(0)->mutable_key()->set_digest("short");
  EXPECT_EQ(api.Get(request)[0].status.code(), absl::StatusCode::kInvalidArgument);
}

TEST(ServiceBlocks, C47_nothing_at_all_is_refused_or_an_empty_success) {
  ServiceHarness harness;
  ApiClient api(harness.client.get(), FactsOf(1, 1, 16, 16, 4));
  ASSERT_EQ(api.Put("there", 1, 4).outcome(), v1::PUT_OUTCOME_STORED);
  v1::PutBlock none = api.Block("there", 4);
  none.set_tokens(0);
  none.set_payload_bytes(0);
  EXPECT_EQ(api.Put(none, "").status().code(), 3u);
  EXPECT_EQ(api.Get("there").payload, api.Payload(1, 4));

  auto stream = harness.client->Open("KvStore/Put");  // Opened and closed.
  stream->HalfClose();
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_TRUE(api.PutAll({}).empty());
  EXPECT_TRUE(api.Get(api.GetRequestOf({})).empty());
  v1::ExistsRequest exists;
  exists.set_namespace_fingerprint(api.fingerprint());
  v1::ExistsResponse existing;
  EXPECT_TRUE(harness.client->Call("KvStore/Exists", exists, &existing).ok());
  v1::RegisterNamespaceRequest request;
  *request.mutable_facts() = FactsOf(0, 1, 16, 16, 4);
  v1::NamespaceInfo info;
  EXPECT_EQ(harness.client->Call("KvStore/RegisterNamespace", request, &info).code(),
            absl::StatusCode::kInvalidArgument);
  // A block whose payload never comes leaves what was there.
  stream = harness.client->Open("KvStore/Put");
  v1::PutRequest message;
  message.mutable_start()->set_namespace_fingerprint(api.fingerprint());
  *message.mutable_block() = api.Block("half", 4);
  message.set_payload(api.Payload(2, 4).substr(0, 10));
  ASSERT_TRUE(stream->Write(message.SerializeAsString()));
  stream->HalfClose();
  std::string bytes;
  v1::PutResponse answer;
  ASSERT_TRUE(stream->Read(&bytes) && answer.ParseFromString(bytes));
  EXPECT_EQ(answer.status().code(), 10u);
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_FALSE(api.Exists("half"));
}

TEST(ServiceBlocks, C50_a_status_for_every_key_of_a_batch) {
  ServiceHarness harness;
  ApiClient api(harness.client.get(), FactsOf(2, 2, 32, 32, 16));
  ASSERT_EQ(api.Put("existing same", 100, 16).outcome(), v1::PUT_OUTCOME_STORED);
  ASSERT_EQ(api.Put("existing other", 101, 16).outcome(), v1::PUT_OUTCOME_STORED);
  std::vector<std::pair<v1::PutBlock, std::string>> blocks;
  auto add = [&](const std::string& key, uint64_t seed) {
    blocks.emplace_back(api.Block(key, 16), api.Payload(seed, 16));
  };
  for (int i = 0; i < 26; ++i) add("new " + std::to_string(i), static_cast<uint64_t>(i));
  add("existing same", 100);
  add("existing other", 999);
  add("twice", 50);
  add("twice", 50);
  add("invalid", 1);
  blocks.back().first.mutable_ref()->set_shard(9);
  add("wrong size", 1);
  blocks.back().first.set_payload_bytes(1 << 20);
  auto answers = api.PutAll(blocks);
  for (size_t i = 0; i < 26; ++i)
    EXPECT_EQ(answers[i].outcome(), v1::PUT_OUTCOME_STORED) << answers[i].status().message();
  EXPECT_EQ(answers[26].outcome(), v1::PUT_OUTCOME_EXISTS);
  EXPECT_EQ(answers[27].outcome(), v1::PUT_OUTCOME_EXISTS);
  EXPECT_EQ(answers[28].outcome(), v1::PUT_OUTCOME_STORED);
  EXPECT_EQ(answers[29].outcome(), v1::PUT_OUTCOME_EXISTS);
  EXPECT_EQ(answers[30].status().code(), 3u);
  EXPECT_THAT(answers[30].status().message(), HasSubstr("shard = 9"));
  EXPECT_EQ(answers[31].status().code(), 3u);
  std::vector<std::string> keys;
  for (const auto& [block, payload] : blocks) keys.push_back(block.ref().key().opaque());
  auto got = api.Get(api.GetRequestOf(keys));
  for (size_t i = 0; i < 26; ++i) EXPECT_EQ(got[i].payload, blocks[i].second) << i;
  EXPECT_EQ(got[27].payload, api.Payload(101, 16));  // The first content stays.
  EXPECT_EQ(got[28].payload, blocks[28].second);
  EXPECT_FALSE(got[30].status.ok());
  EXPECT_FALSE(api.Exists("wrong size"));
}

float HalfToFloat(const char* bytes) {
  uint16_t half;
  std::memcpy(&half, bytes, 2);
  float magnitude = std::ldexp(static_cast<float>((half & 0x3ff) | (half & 0x7c00 ? 0x400 : 0)),
                               ((half >> 10) & 31) - (half & 0x7c00 ? 25 : 24));
  return half & 0x8000 ? -magnitude : magnitude;
}

TEST(ServiceBlocks, RepresentationsAndLayerRanges) {
  ServiceHarness harness;
  ApiClient api(harness.client.get(), FactsOf(6, 2, 64, 32, 16));
  std::string payload = api.Payload(3, 16);
  ASSERT_EQ(api.Put("b", 3, 16).outcome(), v1::PUT_OUTCOME_STORED);
  uint64_t k_layer = 2 * 16 * 64 * 2, v_layer = 2 * 16 * 32 * 2;
  v1::GetRequest request = api.GetRequestOf({"b"});
  request.set_layer_first(2);
  request.set_layer_count(3);
  ApiClient::Got some = api.Get(request)[0];
  ASSERT_TRUE(some.status.ok()) << some.status;
  EXPECT_EQ(some.payload,
            payload.substr(2 * k_layer, 3 * k_layer) + payload.substr(6 * k_layer + 2 * v_layer, 3 * v_layer));
  EXPECT_EQ(some.found.layers(), 3u);

  request.set_representation(v1::REPRESENTATION_FP32);
  request.set_chunk_bytes(4096);  // Groups of layers, parts apart.
  ApiClient::Got floats = api.Get(request)[0];
  ASSERT_TRUE(floats.status.ok()) << floats.status;
  ASSERT_EQ(floats.payload.size(), 2 * some.payload.size());
  for (size_t i = 0; i < some.payload.size() / 2; ++i) {
    float value;
    std::memcpy(&value, floats.payload.data() + 4 * i, 4);
    ASSERT_EQ(value, HalfToFloat(some.payload.data() + 2 * i)) << i;
  }
  request.set_layer_first(6);
  EXPECT_EQ(api.Get(request)[0].status.code(), absl::StatusCode::kInvalidArgument);

  request = api.GetRequestOf({"b"});
  request.set_representation(v1::REPRESENTATION_PACKED);
  ApiClient::Got packed = api.Get(request)[0];
  ASSERT_TRUE(packed.status.ok()) << packed.status;
  auto header = ParseHeader(AsBytes(packed.found.record_header()), nullptr);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->shape.layers, 6u);
  EXPECT_EQ(packed.payload, payload);  // Exact: the runs are the source bytes.
}

TEST(ServiceBlocks, DemotedBlocksSayWhatTheyAre) {
  ServiceHarness harness;
  ApiClient api(harness.client.get(), FactsOf(6, 2, 64, 64, 128));
  ASSERT_EQ(api.Put("b", 3, 128).outcome(), v1::PUT_OUTCOME_STORED);
  v1::MoveRequest move;
  move.set_namespace_fingerprint(api.fingerprint());
  *move.add_keys() = OpaqueKey("b");
  *move.add_keys() = OpaqueKey("not there");
  move.set_tier("warm");
  v1::MoveResponse moved;
  ASSERT_TRUE(harness.client->Call("Admin/Demote", move, &moved).ok());
  ASSERT_EQ(moved.answers(0).status().code(), 0u) << moved.answers(0).status().message();
  EXPECT_EQ(moved.answers(0).now().k(), v1::PRECISION_CLASS_INT8);
  EXPECT_EQ(moved.answers(1).status().code(), 5u);

  v1::GetRequest request = api.GetRequestOf({"b"});
  request.mutable_least()->set_k(v1::PRECISION_CLASS_EXACT);
  EXPECT_EQ(api.Get(request)[0].status.code(), absl::StatusCode::kNotFound);
  request.clear_least();
  ApiClient::Got got = api.Get(request)[0];
  ASSERT_TRUE(got.status.ok()) << got.status;
  EXPECT_EQ(got.found.served().k(), v1::PRECISION_CLASS_INT8);
  EXPECT_EQ(got.found.tier(), 1u);
  std::string payload = api.Payload(3, 128);
  double error = 0, norm = 0;
  for (size_t i = 0; i < payload.size(); i += 2) {
    double want = HalfToFloat(payload.data() + i), have = HalfToFloat(got.payload.data() + i);
    error += (have - want) * (have - want);
    norm += want * want;
  }
  EXPECT_LT(std::sqrt(error / norm), 0.01);
  EXPECT_GT(error, 0);

  // Packed planes: fewer bytes, and they decode to the same values.
  request.set_representation(v1::REPRESENTATION_PACKED);
  request.mutable_most()->set_k(v1::PRECISION_CLASS_INT4);
  request.mutable_most()->set_v(v1::PRECISION_CLASS_INT4);
  ApiClient::Got packed = api.Get(request)[0];
  ASSERT_TRUE(packed.status.ok()) << packed.status;
  EXPECT_EQ(packed.found.served().v(), v1::PRECISION_CLASS_INT4);
  EXPECT_LT(packed.payload.size(), payload.size() / 3);
}

TEST(ServiceBlocks, ImportantTokensStayExact) {
  constexpr uint32_t kTokens = 32, kRowBytes = 64 * 2;
  ServiceHarness harness;
  v1::NamespaceFacts facts = FactsOf(6, 2, 64, 64, kTokens);
  v1::RegisterNamespaceRequest registration;
  *registration.mutable_facts() = facts;
  registration.mutable_plan()->set_keep_first_tokens(0);
  registration.mutable_plan()->set_important_fraction(1.5f);
  v1::NamespaceInfo info;
  absl::Status refused = harness.client->Call("KvStore/RegisterNamespace", registration, &info);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(refused), testing::HasSubstr("plan.important_fraction = 1.5; allowed: 0 to 1"));
  registration.mutable_plan()->set_important_fraction(0.125f);
  registration.mutable_plan()->set_recent_tokens(1048577);
  refused = harness.client->Call("KvStore/RegisterNamespace", registration, &info);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(refused), testing::HasSubstr("plan.recent_tokens = 1048577; allowed: 0 to 1048576"));
  registration.mutable_plan()->set_recent_tokens(96);
  ASSERT_TRUE(harness.client->Call("KvStore/RegisterNamespace", registration, &info).ok());
  EXPECT_EQ(info.plan().important_fraction(), 0.125f);
  EXPECT_EQ(info.plan().recent_tokens(), 96u);
  ApiClient api(harness.client.get(), facts);

  auto importance_of = [](const std::set<uint32_t>& tokens, auto* out) {
    for (uint32_t t = 0; t < kTokens; ++t) out->Add(tokens.contains(t) ? 9.5f : 0.25f);
  };
  const std::set<uint32_t> at_put = {1, 7, 20, 31}, by_touch = {2, 3, 11, 30};
  for (const char* key : {"put", "touched"}) {
    v1::PutBlock block = api.Block(key, kTokens);
    importance_of(at_put, block.mutable_token_importance());
    v1::PutResponse answer = api.Put(block, api.Payload(3, kTokens));
    ASSERT_EQ(answer.outcome(), v1::PUT_OUTCOME_STORED) << answer.status().message();
  }
  ASSERT_EQ(api.Put("plain", 3, kTokens).outcome(), v1::PUT_OUTCOME_STORED);
  v1::TouchRequest touch;
  touch.set_namespace_fingerprint(api.fingerprint());
  for (int i = 0; i < 3; ++i) *touch.add_hints()->mutable_key() = OpaqueKey("touched");
  importance_of(by_touch, touch.mutable_hints(0)->mutable_token_importance());
  importance_of({}, touch.mutable_hints(1)->mutable_token_importance());
  touch.mutable_hints(1)->set_token_importance(4, -1);
  touch.mutable_hints(2)->add_token_importance(1);
  v1::BatchResponse touched;
  ASSERT_TRUE(harness.client->Call("KvStore/Touch", touch, &touched).ok());
  EXPECT_EQ(touched.statuses(0).code(), 0u) << touched.statuses(0).message();
  EXPECT_EQ(touched.statuses(1).code(), 3u);
  EXPECT_THAT(touched.statuses(1).message(), testing::HasSubstr("token_importance[4] is -1"));
  EXPECT_THAT(touched.statuses(2).message(), testing::HasSubstr("1 values for 32 tokens"));
  v1::PutBlock bad = api.Block("bad", kTokens);
  importance_of({}, bad.mutable_token_importance());
  bad.set_token_importance(31, std::numeric_limits<float>::quiet_NaN());
  v1::PutResponse answer = api.Put(bad, api.Payload(3, kTokens));
  EXPECT_EQ(answer.status().code(), 3u);
  EXPECT_THAT(answer.status().message(), testing::HasSubstr("token_importance[31] is nan"));

  v1::MoveRequest move;
  move.set_namespace_fingerprint(api.fingerprint());
  for (const char* key : {"put", "touched", "plain"}) *move.add_keys() = OpaqueKey(key);
  move.set_tier("warm");
  v1::MoveResponse moved;
  ASSERT_TRUE(harness.client->Call("Admin/Demote", move, &moved).ok());
  const std::string payload = api.Payload(3, kTokens);
  for (const auto& [key, exact] : {std::pair("put", at_put), {"touched", by_touch}, {"plain", {}}}) {
    ApiClient::Got got = api.Get(key);
    ASSERT_TRUE(got.status.ok()) << got.status;
    EXPECT_EQ(got.found.served().k(), v1::PRECISION_CLASS_INT8);
    std::set<uint32_t> same;  // Tokens whose rows are the same in all layers and heads.
    for (uint32_t t = 0; t < kTokens; ++t) {
      bool all = true;
      for (uint64_t row = t; row < payload.size() / kRowBytes; row += kTokens) {
        all &= payload.compare(row * kRowBytes, kRowBytes, got.payload, row * kRowBytes, kRowBytes) == 0;
      }
      if (all) same.insert(t);
    }
    EXPECT_EQ(same, exact) << key;
  }
}

// The importance of the largest block that there is fits in a message beside everything else.
TEST(ServiceBlocks, ImportanceOfEveryTokenOfTheLargestBlock) {
  constexpr uint32_t kTokens = 65536;
  ServiceHarness harness;
  ApiClient api(harness.client.get(), FactsOf(1, 1, 8, 8, kTokens));
  v1::PutBlock block = api.Block(std::string(1000, 'k'), kTokens);
  for (uint32_t t = 0; t < kTokens; ++t) block.add_token_importance(static_cast<float>(t));
  v1::PutResponse answer = api.Put(block, api.Payload(3, kTokens));
  EXPECT_EQ(answer.outcome(), v1::PUT_OUTCOME_STORED) << answer.status().message();
}

TEST(ServiceBlocks, LayoutsAreOfTheRequest) {
  ServiceHarness harness;
  ApiClient api(harness.client.get(), FactsOf(3, 2, 8, 8, 4));
  // Each layer: K, then V, tokens outside heads.
  v1::Layout layout;
  for (auto [part, offset] : {std::pair{layout.mutable_k(), 0}, std::pair{layout.mutable_v(), 4 * 2 * 8}}) {
    part->set_offset(static_cast<uint64_t>(offset));
    part->set_layer_stride(2 * 4 * 2 * 8);
    part->set_token_stride(2 * 8);
    part->set_head_stride(8);
  }
  layout.set_payload_bytes(api.PayloadBytes(4));
  std::string canonical = api.Payload(9, 4), arranged(canonical.size(), '\0');
  for (size_t p = 0; p < 2; ++p) {
    for (size_t l = 0; l < 3; ++l) {
      for (size_t h = 0; h < 2; ++h) {
        for (size_t t = 0; t < 4; ++t) {
          size_t from = (((p * 3 + l) * 2 + h) * 4 + t) * 16, to = (((l * 2 + p) * 4 + t) * 2 + h) * 16;
          arranged.replace(to, 16, canonical.substr(from, 16));
        }
      }
    }
  }
  v1::PutBlock block = api.Block("arranged", 4);
  *block.mutable_layout() = layout;
  ASSERT_EQ(api.Put(block, arranged, 100).outcome(), v1::PUT_OUTCOME_STORED);
  EXPECT_EQ(api.Get("arranged").payload, canonical);
  v1::GetRequest request = api.GetRequestOf({"arranged"});
  *request.mutable_layout() = layout;
  ApiClient::Got got = api.Get(request)[0];
  ASSERT_TRUE(got.status.ok()) << got.status;
  EXPECT_EQ(got.payload, arranged);

  // The same strides of FP32 values, decoded on the way.
  request.set_representation(v1::REPRESENTATION_FP32);
  request.mutable_layout()->set_payload_bytes(2 * arranged.size());
  got = api.Get(request)[0];
  ASSERT_TRUE(got.status.ok()) << got.status;
  ASSERT_EQ(got.payload.size(), 2 * arranged.size());
  for (size_t i = 0; i < arranged.size() / 2; ++i) {
    float value = LoadLe<float>(reinterpret_cast<const uint8_t*>(&got.payload[4 * i]));
    ASSERT_EQ(value, HalfToFloat(&arranged[2 * i])) << i;
  }

  block.mutable_layout()->mutable_v()->set_offset(0);  // Two values in one place.
  EXPECT_EQ(api.Put(block, arranged).status().code(), 3u);
  request.mutable_layout()->mutable_v()->set_offset(1 << 20);
  EXPECT_EQ(api.Get(request)[0].status.code(), absl::StatusCode::kInvalidArgument);
}

TEST(ServiceBlocks, Fp8ComesWithItsScales) {
  ServiceHarness harness;
  ApiClient api(harness.client.get(), FactsOf(2, 3, 16, 8, 4, v1::DTYPE_FP8_E4M3));
  std::string payload = api.Payload(4, 4);
  for (size_t i = payload.size() - 2 * 6 * 4; i < payload.size(); i += 4) {  // Scales of 0.5, 1.0, ...
    float scale = 0.5f + 0.5f * static_cast<float>(i % 5);
    std::memcpy(payload.data() + i, &scale, 4);
  }
  ASSERT_EQ(api.Put(api.Block("fp8", 4), payload).outcome(), v1::PUT_OUTCOME_STORED);
  ApiClient::Got got = api.Get("fp8");
  ASSERT_TRUE(got.status.ok()) << got.status;
  EXPECT_EQ(got.payload, payload);
  EXPECT_EQ(got.found.dtype(), v1::DTYPE_FP8_E4M3);
  EXPECT_EQ(got.found.k_scale_bytes(), 24u);
  // Without scales the payload is short, and no scale of 1.0 is made up.
  v1::PutBlock block = api.Block("none", 4);
  block.set_payload_bytes(payload.size() - 48);
  EXPECT_EQ(api.Put(block, payload.substr(0, payload.size() - 48)).status().code(), 3u);
}

TEST(ServiceBlocks, AnnouncedPutsHoldBackThePayload) {
  ServiceHarness harness;
  ApiClient api(harness.client.get(), FactsOf(2, 2, 32, 32, 16));
  auto stream = harness.client->Open("KvStore/Put");
  auto ask = [&](const std::string& key, bool start) {
    v1::PutRequest message;
    if (start) message.mutable_start()->set_namespace_fingerprint(api.fingerprint());
    *message.mutable_block() = api.Block(key, 16);
    message.mutable_block()->set_announce(true);
    EXPECT_TRUE(stream->Write(message.SerializeAsString()));
    std::string bytes;
    v1::PutResponse answer;
    EXPECT_TRUE(stream->Read(&bytes) && answer.ParseFromString(bytes));
    return answer.outcome();
  };
  EXPECT_EQ(ask("a", true), v1::PUT_OUTCOME_BEGUN);
  v1::PutRequest message;
  message.set_payload(api.Payload(1, 16));
  ASSERT_TRUE(stream->Write(message.SerializeAsString()));
  std::string bytes;
  ASSERT_TRUE(stream->Read(&bytes));
  EXPECT_EQ(ask("a", false), v1::PUT_OUTCOME_EXISTS);  // Nothing has to be sent.
  EXPECT_EQ(ask("b", false), v1::PUT_OUTCOME_BEGUN);
  stream->HalfClose();
  EXPECT_TRUE(stream->Read(&bytes));  // "b" was abandoned.
  EXPECT_TRUE(stream->Finish().ok());
}

}  // namespace
}  // namespace firn
