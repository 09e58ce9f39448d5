#include "daemon/tests/service_harness_test_util.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <random>

#include "base/status.h"
#include "tiers/warm/warm_tier.h"

namespace firn {

ServiceHarness::ServiceHarness(HarnessOptions options) {
  char path[] = "/tmp/firn-service-XXXXXX";
  dir = ::mkdtemp(path);
  executor = std::make_unique<AsioExecutor>(2);
  StoreOptions store_options;
  store_options.executor = executor.get();
  store_options.clock = Clock::Real();
  store_options.held_bytes_per_session_max = options.limits.held_bytes_max;
  store_options.artifacts_bytes_max = options.limits.artifacts_bytes_max;
  ServiceCore::Options core_options{
      .executor = executor.get(), .clock = Clock::Real(), .limits = options.limits, .tiers = {}, .version = "test"};
  auto add = [&](const char* name, uint64_t bytes, PrecisionClass precision, PrecisionClass least) {
    auto tier = OpenWarmTier({.name = name, .capacity_bytes = bytes, .numa_node = {}});
    EXPECT_TRUE(tier.ok()) << tier.status();
    EXPECT_TRUE((*tier)->Populate(bytes).ok());
    TierConfig config;
    config.name = name;
    config.tier = *std::move(tier);
    config.precision = {precision, precision};
    config.least = {least, least};
    store_options.tiers.push_back(std::move(config));
    core_options.tiers.push_back({name, "dram", false, {precision, precision}, {least, least}, bytes});
  };
  add("hot", options.hot_bytes, PrecisionClass::kExact, PrecisionClass::kExact);
  add("warm", options.warm_bytes, PrecisionClass::k8Bit, PrecisionClass::k4Bit);
  auto created = Store::Create(std::move(store_options));
  EXPECT_TRUE(created.ok()) << created.status();
  store = *std::move(created);
  core = std::make_unique<ServiceCore>(std::move(core_options));
  ListenerSettings listener;
  listener.uds = dir + "/firnd.sock";
  listener.tenant = "default";
  listener.admin = true;
  auto started = GrpcListener::Start(core.get(), listener, 1);
  EXPECT_TRUE(started.ok()) << started.status();
  listeners.push_back(*std::move(started));
  if (options.ready) HandOver();
  client = std::make_unique<RawClient>(address());
  ticker_ = std::thread([this] {
    while (!stop_) {
      store->Tick();
      core->Sweep();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
}

std::string ServiceHarness::AddListener(const std::string& tenant) {
  ListenerSettings listener;
  listener.uds = dir + "/" + tenant + ".sock";
  listener.tenant = tenant;
  auto started = GrpcListener::Start(core.get(), listener, 1);
  EXPECT_TRUE(started.ok()) << started.status();
  listeners.push_back(*std::move(started));
  return listeners.back()->address();
}

ServiceHarness::~ServiceHarness() {
  client.reset();
  core->StopServing();
  for (auto& listener : listeners) listener->Shutdown(1000);
  EXPECT_TRUE(Eventually([this] { return core->live_calls() == 0; }));
  std::atomic<bool> down{false};
  store->Shutdown(1000, [&down](absl::Status) { down = true; });
  EXPECT_TRUE(Eventually([&down] { return down.load(); }));
  stop_ = true;
  ticker_.join();
  // Nothing may be left over by any client, however it went.
  StoreStats stats = store->Stats();
  EXPECT_TRUE(Eventually([this] { return store->Stats().readers == 0; }));
  EXPECT_EQ(stats.pins, 0u);
  EXPECT_EQ(stats.puts_in_flight, 0u);
  EXPECT_EQ(core->transport().used_bytes(), 0u);
  AuditReport audit = store->Audit();
  EXPECT_TRUE(audit.consistent) << (audit.findings.empty() ? "" : audit.findings[0]);
  listeners.clear();
  executor.reset();
  store.reset();
  core.reset();
  std::filesystem::remove_all(dir);
}

v1::NamespaceFacts FactsOf(uint32_t layers, uint32_t heads, uint32_t k_width, uint32_t v_width, uint32_t block_tokens,
                           v1::DType dtype) {
  v1::NamespaceFacts facts;
  facts.set_model_id("model");
  facts.set_dtype(dtype);
  facts.set_layer_last(layers);
  facts.set_kv_heads(heads);
  facts.set_k_width(k_width);
  facts.set_v_width(v_width);
  facts.set_block_tokens(block_tokens);
  return facts;
}

ApiClient::ApiClient(RawClient* raw_client, const v1::NamespaceFacts& facts) : raw(raw_client) {
  v1::RegisterNamespaceRequest request;
  *request.mutable_facts() = facts;
  absl::Status status = raw->Call("KvStore/RegisterNamespace", request, &info);
  EXPECT_TRUE(status.ok()) << status;
}

uint64_t ApiClient::PayloadBytes(uint32_t tokens) const {
  const v1::NamespaceFacts& facts = info.facts();
  uint64_t layers_heads = uint64_t{facts.layer_last()} * facts.kv_heads();
  bool fp8 = facts.dtype() == v1::DTYPE_FP8_E4M3 || facts.dtype() == v1::DTYPE_FP8_E5M2;
  bool wide = facts.dtype() == v1::DTYPE_FP16 || facts.dtype() == v1::DTYPE_BF16;
  uint64_t bytes = layers_heads * tokens * (facts.k_width() + facts.v_width()) * (wide ? 2 : 1);
  if (fp8) bytes += layers_heads * 4 * ((facts.k_width() > 0) + (facts.v_width() > 0));
  return bytes;
}

std::string ApiClient::Payload(uint64_t seed, uint32_t tokens) const {
  std::mt19937_64 random(seed);
  std::string out(PayloadBytes(tokens), '\0');
  // FP16 and BF16 patterns with small exponents: finite, of both signs.
  for (size_t i = 0; i + 1 < out.size(); i += 2) {
    uint64_t bits = random();
    out[i] = static_cast<char>(bits);
    out[i + 1] = static_cast<char>((bits >> 8 & 0x83) | 0x38);
  }
  return out;
}

v1::BlockKey OpaqueKey(const std::string& key) {
  v1::BlockKey out;
  out.set_opaque(key);
  return out;
}

v1::PutBlock ApiClient::Block(const std::string& opaque_key, uint32_t tokens) const {
  v1::PutBlock block;
  *block.mutable_ref()->mutable_key() = OpaqueKey(opaque_key);
  block.set_tokens(tokens);
  block.set_payload_bytes(PayloadBytes(tokens));
  return block;
}

v1::PutResponse ApiClient::Put(const v1::PutBlock& block, const std::string& payload, size_t chunk_bytes) {
  auto stream = raw->Open("KvStore/Put");
  for (size_t at = 0; at == 0 || at < payload.size(); at += chunk_bytes) {
    v1::PutRequest message;
    if (at == 0) {
      message.mutable_start()->set_namespace_fingerprint(fingerprint());
      *message.mutable_block() = block;
    }
    message.set_offset(at);
    message.set_payload(payload.substr(at, chunk_bytes));
    if (!stream->Write(message.SerializeAsString())) break;
  }
  stream->HalfClose();
  std::string bytes;
  v1::PutResponse answer;
  bool got = stream->Read(&bytes) && answer.ParseFromString(bytes);
  absl::Status status = stream->Finish();
  if (!got) {
    answer.set_outcome(v1::PUT_OUTCOME_FAILED);
    answer.mutable_status()->set_code(static_cast<uint32_t>(status.code()));
    answer.mutable_status()->set_message(Message(status));
  }
  return answer;
}

v1::PutResponse ApiClient::Put(const std::string& opaque_key, uint64_t seed, uint32_t tokens) {
  return Put(Block(opaque_key, tokens), Payload(seed, tokens));
}

std::vector<v1::PutResponse> ApiClient::PutAll(const std::vector<std::pair<v1::PutBlock, std::string>>& blocks) {
  auto stream = raw->Open("KvStore/Put");
  bool first = true;
  for (const auto& [block, payload] : blocks) {
    v1::PutRequest message;
    if (first) message.mutable_start()->set_namespace_fingerprint(fingerprint());
    first = false;
    *message.mutable_block() = block;
    message.set_payload(payload);
    EXPECT_TRUE(stream->Write(message.SerializeAsString()));
  }
  stream->HalfClose();
  std::vector<v1::PutResponse> answers(blocks.size());
  std::string bytes;
  size_t count = 0;
  while (stream->Read(&bytes)) {
    v1::PutResponse answer;
    EXPECT_TRUE(answer.ParseFromString(bytes));
    if (answer.index() < answers.size()) answers[answer.index()] = answer;
    ++count;
  }
  EXPECT_EQ(count, blocks.size());
  absl::Status status = stream->Finish();
  EXPECT_TRUE(status.ok()) << status;
  return answers;
}

v1::GetRequest ApiClient::GetRequestOf(const std::vector<std::string>& opaque_keys) const {
  v1::GetRequest request;
  request.set_namespace_fingerprint(fingerprint());
  for (const std::string& key : opaque_keys) *request.add_blocks()->mutable_key() = OpaqueKey(key);
  return request;
}

std::vector<ApiClient::Got> ApiClient::ReadAnswers(RawStream* stream, size_t blocks) {
  std::vector<Got> got(blocks);
  size_t done = 0;
  std::string bytes;
  while (done < blocks && stream->Read(&bytes)) {
    v1::GetResponse message;
    EXPECT_TRUE(message.ParseFromString(bytes));
    EXPECT_LT(message.index(), blocks);
    if (message.index() >= blocks) break;
    Got& one = got[message.index()];
    ++one.messages;
    if (message.has_status()) {
      one.status = absl::Status(static_cast<absl::StatusCode>(message.status().code()), message.status().message());
    }
    if (message.has_found()) {
      one.found = message.found();
      one.payload.resize(message.found().payload_bytes());
    }
    EXPECT_LE(message.offset() + message.payload().size(), one.payload.size());
    if (message.offset() + message.payload().size() <= one.payload.size()) {
      one.payload.replace(message.offset(), message.payload().size(), message.payload());
    }
    if (message.last()) ++done;
  }
  EXPECT_EQ(done, blocks);
  return got;
}

std::vector<ApiClient::Got> ApiClient::Get(const v1::GetRequest& request) {
  auto stream = raw->Open("KvStore/Get");
  stream->Write(request.SerializeAsString());
  stream->HalfClose();
  auto got = ReadAnswers(stream.get(), static_cast<size_t>(request.blocks_size()));
  absl::Status status = stream->Finish();
  EXPECT_TRUE(status.ok()) << status;
  return got;
}

ApiClient::Got ApiClient::Get(const std::string& opaque_key) { return Get(GetRequestOf({opaque_key}))[0]; }

bool ApiClient::Exists(const std::string& opaque_key) {
  v1::ExistsRequest request;
  request.set_namespace_fingerprint(fingerprint());
  *request.add_keys() = OpaqueKey(opaque_key);
  v1::ExistsResponse response;
  absl::Status status = raw->Call("KvStore/Exists", request, &response);
  EXPECT_TRUE(status.ok()) << status;
  return status.ok() && response.blocks(0).found();
}

absl::Status ApiClient::Delete(const std::string& opaque_key) {
  v1::DeleteRequest request;
  request.set_namespace_fingerprint(fingerprint());
  *request.add_keys() = OpaqueKey(opaque_key);
  v1::BatchResponse response;
  FIRN_RETURN_IF_ERROR(raw->Call("KvStore/Delete", request, &response));
  return absl::Status(static_cast<absl::StatusCode>(response.statuses(0).code()), response.statuses(0).message());
}

v1::StatsResponse ApiClient::Stats() {
  v1::StatsResponse response;
  absl::Status status = raw->Call("KvStore/Stats", v1::StatsRequest(), &response);
  EXPECT_TRUE(status.ok()) << status;
  return response;
}

bool Eventually(const std::function<bool()>& holds, int64_t limit_ms) {
  auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace firn
