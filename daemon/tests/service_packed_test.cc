// Blocks that come coded, and records that clients make up: whatever a header says, the daemon lives, stores nothing
// that it cannot read, and gives nothing that was not put.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "base/status.h"
#include "codecs/block/part_geometry.h"
#include "codecs/block_codec.h"
#include "daemon/tests/service_harness_test_util.h"

namespace firn {
namespace {

constexpr uint32_t kWholeK = RunIndex(RunKind::kWhole, Part::kK), kWholeV = RunIndex(RunKind::kWhole, Part::kV);

// Bytes of each run; -1: the record has none.
using RunLengths = std::array<int64_t, kRunIds>;
RunLengths NoRuns() {
  RunLengths lengths;
  lengths.fill(-1);
  return lengths;
}

struct MadeUp {
  v1::PutBlock block;
  std::string payload;
};

// Runs of these lengths, with checks that hold; `one_check`: one a run, however long.
MadeUp Make(const ApiClient& api, const std::string& key, RecordHeader header, const RunLengths& lengths,
            bool one_check = false) {
  MadeUp made;
  std::array<std::vector<uint8_t>, kRunIds> memory;
  std::array<RunBytes, kRunIds> runs;
  header.encoded = RunMask();
  for (uint32_t i = 0; i < kRunIds; ++i) {
    header.runs[i] = {};
    if (lengths[i] < 0) continue;
    memory[i].assign(static_cast<size_t>(lengths[i]), 0x11);
    runs[i] = RunBytes(ByteSpan(memory[i]));
    header.encoded |= RunMask(static_cast<uint16_t>(1u << i));
    header.runs[i].bytes = memory[i].size();
    made.payload.append(memory[i].begin(), memory[i].end());
  }
  ComputeChecks(&header, header.encoded, runs);
  ChecksumSeeds seeds(header.identity);
  for (uint32_t i = 0; i < kRunIds && one_check; ++i) {
    if (lengths[i] <= 0) continue;
    header.runs[i].layers_per_check = header.shape.layers;
    header.runs[i].checks = {Crc64(memory[i], seeds.Of(i, 0))};
  }
  auto serialized = SerializeHeader(header);
  made.block = api.Block(key, header.shape.tokens);
  made.block.set_record_header(serialized.data(), serialized.size());
  made.block.set_runs(header.encoded.bits());
  made.block.set_payload_bytes(made.payload.size());
  return made;
}

// What a block has in the tier "warm" after it was moved there.
v1::ClassPair DemotedTo(ServiceHarness& harness, const ApiClient& api, const std::string& key) {
  v1::MoveRequest move;
  move.set_namespace_fingerprint(api.fingerprint());
  *move.add_keys() = OpaqueKey(key);
  move.set_tier("warm");
  v1::MoveResponse moved;
  absl::Status called = harness.client->Call("Admin/Demote", move, &moved);
  EXPECT_TRUE(called.ok()) << called;
  EXPECT_EQ(moved.answers(0).status().code(), 0u) << moved.answers(0).status().message();
  return moved.answers(0).now();
}

RecordHeader AsTheyAre(const BlockShape& shape) { return PlanIdentity(Identity{}, DType::kFp16, shape)->header; }

// A record that one daemon gives, another takes: a block's codes travel, not its values.
TEST(ServicePacked, RecordsArePutAsTheyAre) {
  ServiceHarness from, to;
  ApiClient source(from.client.get(), FactsOf(6, 2, 64, 64, 128)), target(to.client.get(), FactsOf(6, 2, 64, 64, 128));
  v1::PutBlock first = source.Block("b", 128);
  first.set_first_token(256);
  ASSERT_EQ(source.Put(first, source.Payload(3, 128)).outcome(), v1::PUT_OUTCOME_STORED);
  ASSERT_EQ(DemotedTo(from, source, "b").k(), v1::PRECISION_CLASS_INT8);
  v1::GetRequest request = source.GetRequestOf({"b"});
  request.mutable_most()->set_k(v1::PRECISION_CLASS_INT8);
  request.mutable_most()->set_v(v1::PRECISION_CLASS_INT4);
  ApiClient::Got values = source.Get(request)[0];
  request.set_representation(v1::REPRESENTATION_PACKED);
  ApiClient::Got packed = source.Get(request)[0];
  ASSERT_TRUE(packed.status.ok() && values.status.ok()) << packed.status;

  v1::PutBlock block = target.Block("c", 128);
  block.set_first_token(256);
  block.set_payload_bytes(packed.payload.size());
  block.set_record_header(packed.found.record_header());
  block.set_runs(packed.found.runs());
  v1::PutResponse put = target.Put(block, packed.payload, 4096);
  ASSERT_EQ(put.outcome(), v1::PUT_OUTCOME_STORED) << put.status().message();
  EXPECT_EQ(put.stored_class().k(), v1::PRECISION_CLASS_INT8);
  EXPECT_EQ(put.stored_class().v(), v1::PRECISION_CLASS_INT4);
  EXPECT_EQ(put.stored_bytes(), packed.payload.size());
  ApiClient::Got got = target.Get(target.GetRequestOf({"c"}))[0];
  ASSERT_TRUE(got.status.ok()) << got.status;
  EXPECT_EQ(got.payload, values.payload);
  EXPECT_EQ(got.found.first_token(), 256u);
  EXPECT_EQ(got.found.served().v(), v1::PRECISION_CLASS_INT4);
  EXPECT_EQ(target.Put(block, packed.payload).outcome(), v1::PUT_OUTCOME_EXISTS);
  // It goes down like any other block, and a finer form takes its place.
  EXPECT_EQ(DemotedTo(to, target, "c").v(), v1::PRECISION_CLASS_INT4);
  EXPECT_EQ(target.Get(target.GetRequestOf({"c"}))[0].payload, values.payload);
  v1::PutBlock exact = target.Block("c", 128);
  exact.set_first_token(256);
  EXPECT_EQ(target.Put(exact, target.Payload(3, 128)).outcome(), v1::PUT_OUTCOME_STORED);
  EXPECT_EQ(target.Get(target.GetRequestOf({"c"}))[0].payload, source.Payload(3, 128));
  EXPECT_EQ(target.Put(block, packed.payload).outcome(), v1::PUT_OUTCOME_EXISTS) << "a finer one is there";
}

TEST(ServicePacked, BlocksThatMakeNoSenseAreRefused) {
  ServiceHarness harness;
  ApiClient api(harness.client.get(), FactsOf(6, 2, 64, 64, 128));
  ASSERT_EQ(api.Put("b", 3, 128).outcome(), v1::PUT_OUTCOME_STORED);
  ASSERT_EQ(DemotedTo(harness, api, "b").k(), v1::PRECISION_CLASS_INT8);
  v1::GetRequest request = api.GetRequestOf({"b"});
  request.set_representation(v1::REPRESENTATION_PACKED);
  ApiClient::Got packed = api.Get(request)[0];
  ASSERT_TRUE(packed.status.ok()) << packed.status;
  struct Case {
    const char* says;
    std::function<void(v1::PutBlock*, std::string*)> change;
  };
  const std::vector<Case> cases = {
      {"do not match", [](v1::PutBlock*, std::string* payload) { (*payload)[payload->size() / 2] ^= 1; }},
      {"runs = 0x0", [](v1::PutBlock* b, std::string*) { b->set_runs(0); }},
      {"record_header of 0 bytes", [](v1::PutBlock* b, std::string*) { b->clear_record_header(); }},
      {"runs = 0xffff", [](v1::PutBlock* b, std::string*) { b->set_runs(0xffff); }},
      {"record_header:", [](v1::PutBlock* b, std::string*) { b->mutable_record_header()->at(40) ^= 1; }},
      {"of which the header takes", [](v1::PutBlock* b, std::string*) { b->mutable_record_header()->append(8, 'x'); }},
      {"payload_bytes", [](v1::PutBlock* b, std::string*) { b->set_payload_bytes(b->payload_bytes() - 1); }},
      {"first_token", [](v1::PutBlock* b, std::string*) { b->set_first_token(1); }},
      {"tokens", [](v1::PutBlock* b, std::string*) { b->set_tokens(127); }},
      {"token_importance", [](v1::PutBlock* b, std::string*) { b->add_token_importance(1); }},
      {"layout", [](v1::PutBlock* b, std::string*) { b->mutable_layout(); }},
      {"do not decode",
       [](v1::PutBlock* b, std::string* payload) {
         b->set_runs(RunMask::Both(RunKind::kMeta).bits());
         auto header = ParseHeader(AsBytes(b->record_header()), nullptr);
         payload->resize(header->RunBytes(RunMask::Both(RunKind::kMeta)));
         b->set_payload_bytes(payload->size());
       }},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.says);
    v1::PutBlock block = api.Block("c", 128);
    block.set_record_header(packed.found.record_header());
    block.set_runs(packed.found.runs());
    block.set_payload_bytes(packed.payload.size());
    std::string payload = packed.payload;
    c.change(&block, &payload);
    v1::PutResponse answer = api.Put(block, payload);
    EXPECT_EQ(answer.outcome(), v1::PUT_OUTCOME_FAILED);
    EXPECT_THAT(answer.status().message(), testing::HasSubstr(c.says));
  }
  EXPECT_EQ(api.Get(api.GetRequestOf({"c"}))[0].status.code(), absl::StatusCode::kNotFound);
}

TEST(ServicePacked, RunsThatTheCodingDoesNotHaveAreRefused) {
  ServiceHarness harness;
  const BlockShape shape{6, 2, 64, 64, 128};
  ApiClient api(harness.client.get(), FactsOf(6, 2, 64, 64, 128));
  const int64_t part = 6 * 2 * 128 * 64 * 2, kept = 6 * 2 * 16 * 64 * 2;
  struct Case {
    const char* name;
    uint32_t exact_tokens;
    std::vector<std::pair<uint32_t, int64_t>> lengths;
  };
  const std::vector<Case> cases = {
      {"short", 0, {{kWholeK, 6}, {kWholeV, 6}}},
      {"empty", 0, {{kWholeK, 0}, {kWholeV, 0}}},
      {"a plane of nothing", 0, {{kWholeK, part}, {kWholeV, part}, {RunIndex(RunKind::kP8, Part::kK), 0}}},
      {"exact twice over",
       16,
       {{kWholeK, part - kept},
        {kWholeV, part - kept},
        {RunIndex(RunKind::kExact, Part::kK), kept},
        {RunIndex(RunKind::kExact, Part::kV), kept}}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    RecordHeader header = AsTheyAre(shape);
    header.exact_tokens = c.exact_tokens;
    RunLengths lengths = NoRuns();
    for (auto [run, bytes] : c.lengths) lengths[run] = bytes;
    MadeUp made = Make(api, c.name, header, lengths);
    v1::PutResponse put = api.Put(made.block, made.payload);
    EXPECT_EQ(put.outcome(), v1::PUT_OUTCOME_FAILED);
    EXPECT_EQ(put.status().code(), 3u) << put.status().message();
    EXPECT_EQ(api.Put(c.name, 3, 128).outcome(), v1::PUT_OUTCOME_STORED) << "nothing stands in the way of the block";
  }
}

// A header may come with one check a run and would get one for every few layers here.
TEST(ServicePacked, AHeaderThatWouldOutgrowItsLimitIsRefused) {
  HarnessOptions options;
  options.hot_bytes = options.warm_bytes = 256 * kMiB;
  ServiceHarness harness(options);
  constexpr uint32_t kLayers = 1024, kHeads = 1020;
  ApiClient api(harness.client.get(), FactsOf(kLayers, kHeads, 16, 1, 1));
  RecordHeader header = AsTheyAre({kLayers, kHeads, 16, 1, 1});
  header.coding[0] = {};
  header.coding[0].codec = CodecId::kNestedToken;
  header.coding[0].meta_type = MetaType::kFp16;
  header.coding[0].group = 16;
  header.coding[0].flags = PartCoding::kRotated;
  header.ceilings[0].assign(size_t{kLayers} * kHeads, PrecisionClass::k2Bit);
  header.ceilings[0][0] = PrecisionClass::k8Bit;
  auto geometry = PartGeometry::Of(header, Part::kK);
  ASSERT_TRUE(geometry.ok()) << geometry.status();
  RunLengths lengths = NoRuns();
  for (uint32_t kind = 0; kind < kRunKinds; ++kind) {
    uint64_t bytes = geometry->RunBytes(static_cast<RunKind>(kind));
    if (bytes > 0) lengths[RunIndex(static_cast<RunKind>(kind), Part::kK)] = static_cast<int64_t>(bytes);
  }
  lengths[kWholeV] = int64_t{kLayers} * kHeads * 2;
  MadeUp made = Make(api, "large", header, lengths, true);
  v1::PutResponse put = api.Put(made.block, made.payload);
  EXPECT_EQ(put.outcome(), v1::PUT_OUTCOME_FAILED);
  EXPECT_THAT(put.status().message(), testing::HasSubstr("at most 262144"));
}

TEST(ServicePacked, APlanWhoseMapIsLongerThanAHeaderIsRefused) {
  ServiceHarness harness;
  constexpr uint32_t kLayers = 1024, kHeads = 1100;
  v1::RegisterNamespaceRequest registration;
  *registration.mutable_facts() = FactsOf(kLayers, kHeads, 16, 1, 1);
  registration.mutable_plan()->set_keep_first_tokens(0);
  v1::TierRule* rule = registration.mutable_plan()->add_rules();
  rule->set_tier("warm");
  rule->set_part(v1::PART_K);
  for (uint32_t i = 0; i < kLayers * kHeads; ++i) {
    rule->add_heads(i % 2 != 0 ? v1::PRECISION_CLASS_INT8 : v1::PRECISION_CLASS_INT4);
  }
  v1::NamespaceInfo info;
  absl::Status refused = harness.client->Call("KvStore/RegisterNamespace", registration, &info);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
  EXPECT_THAT(Message(refused), testing::HasSubstr("131072"));
}

TEST(ServicePacked, Fp8AsItWasPutHasNoErrorToLimit) {
  ServiceHarness harness;
  v1::RegisterNamespaceRequest registration;
  *registration.mutable_facts() = FactsOf(6, 2, 64, 64, 16, v1::DTYPE_FP8_E4M3);
  registration.mutable_plan()->set_max_relative_error(0.1f);
  v1::NamespaceInfo info;
  ASSERT_TRUE(harness.client->Call("KvStore/RegisterNamespace", registration, &info).ok());
  ApiClient api(harness.client.get(), registration.facts());
  std::string payload(api.PayloadBytes(16), 0x30);
  ASSERT_EQ(api.Put(api.Block("a", 16), payload).outcome(), v1::PUT_OUTCOME_STORED);
  v1::GetRequest request = api.GetRequestOf({"a"});
  request.set_representation(v1::REPRESENTATION_PACKED);
  ApiClient::Got packed = api.Get(request)[0];
  ASSERT_TRUE(packed.status.ok()) << packed.status;
  v1::PutBlock block = api.Block("b", 16);
  block.set_record_header(packed.found.record_header());
  block.set_runs(packed.found.runs());
  block.set_payload_bytes(packed.payload.size());
  v1::PutResponse put = api.Put(block, packed.payload);
  EXPECT_EQ(put.outcome(), v1::PUT_OUTCOME_STORED) << put.status().message();
}

}  // namespace
}  // namespace firn
