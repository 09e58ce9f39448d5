// The client against the daemon itself.

#include <chrono>
#include <cstring>
#include <future>
#include <set>
#include <thread>

#include "base/status.h"
#include "client/cpp/testing/patterns.h"
#include "firnkv/client.h"
#include "firnkv/presets.h"
#include "firnkv/session.h"
#include "firnkv/watch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/daemon_process.h"

namespace firnkv {
namespace {

class IntegrationTest : public testing::Test {
 protected:
  void Start(firn::DaemonOptions options = {}) {
    daemon_ = std::make_unique<firn::DaemonProcess>(options);
    absl::Status started = daemon_->Start();
    ASSERT_TRUE(started.ok()) << started << daemon_->Log();
    client_ = daemon_->Connect();
  }
  Namespace Register(const NamespaceFacts& facts) {
    auto ns = client_->RegisterNamespace(facts);
    EXPECT_TRUE(ns.ok()) << ns.status();
    return ns.ok() ? *ns : Namespace{};
  }
  static NamespaceFacts Facts(uint32_t layers, uint32_t heads, uint32_t width, uint32_t block_tokens) {
    return {.model_id = "integration",
            .layer_last = layers,
            .kv_heads = heads,
            .k_width = width,
            .v_width = width,
            .block_tokens = block_tokens};
  }
  static PutItem Item(const Namespace& ns, const BlockKey& key, uint32_t tokens, const std::vector<uint8_t>& bytes) {
    PutItem item{.key = key, .tokens = tokens};
    std::span<const uint8_t> all = bytes;
    item.parts = {.k = all.first(ns.KBytes(tokens)), .v = all.subspan(ns.KBytes(tokens))};
    return item;
  }
  PutResult PutOne(const Namespace& ns, const PutItem& item, const PutOptions& options = {}) {
    auto results = client_->Put(ns, {&item, 1}, options);
    return results.ok() ? results->front() : PutResult{.status = results.status()};
  }
  GetResult GetOne(const Namespace& ns, const BlockKey& key, const GetOptions& options = {}) {
    GetItem item{.key = key, .allocate = true};
    auto results = client_->Get(ns, {&item, 1}, options);
    return results.ok() ? std::move(results->front()) : GetResult{.status = results.status()};
  }
  uint64_t Gauge(const std::string& name) {
    auto stats = client_->GetStats();
    EXPECT_TRUE(stats.ok()) << stats.status();
    EXPECT_TRUE(stats->gauges.contains(name)) << name;
    return stats->gauges[name];
  }

  std::unique_ptr<firn::DaemonProcess> daemon_;
  std::unique_ptr<Client> client_;
};

TEST_F(IntegrationTest, C39_values_over_four_mebibytes) {
  firn::DaemonOptions options;
  options.hot_capacity = "256MiB";
  Start(options);
  for (auto [layers, tokens] : {std::pair(32u, 31u), {32u, 32u}, {32u, 256u}, {80u, 256u}}) {
    Namespace ns = Register(Facts(layers, 8, 128, 256));
    std::vector<uint8_t> bytes = HalfPattern(ns.KBytes(tokens) + ns.VBytes(tokens), layers + tokens);
    BlockKey key = BlockKey::Opaque(std::to_string(tokens));
    PutResult put = PutOne(ns, Item(ns, key, tokens, bytes));
    ASSERT_TRUE(put.status.ok()) << put.status;
    GetResult got = GetOne(ns, key);
    ASSERT_TRUE(got.status.ok()) << got.status;
    EXPECT_EQ(got.served, (PrecisionPair{Precision::kExact, Precision::kExact}));
    EXPECT_TRUE(got.payload == bytes) << layers << " layers, " << tokens << " tokens";
    ASSERT_TRUE(client_->Delete(ns, {&key, 1}).ok());
  }
}

TEST_F(IntegrationTest, C46_keys_of_every_length_and_kind) {
  Start();
  Namespace ns = Register(Facts(1, 1, 64, 4));
  int stored = 0;
  for (const std::string& key :
       {std::string(1, 'x'), std::string(255, 'x'), std::string(256, 'x'), std::string(1024, 'x'),
        std::string(4096, 'x'), std::string(255, 'x') + "1", std::string("\0", 1), std::string("/"),
        std::string("../.."), std::string("a\nb"), std::string("\xFF\xFE")}) {
    std::vector<uint8_t> bytes = HalfPattern(ns.KBytes(4) + ns.VBytes(4), ++stored);
    PutResult put = PutOne(ns, Item(ns, BlockKey::Opaque(key), 4, bytes));
    EXPECT_TRUE(put.stored) << put.status << key.size();
    EXPECT_TRUE(GetOne(ns, BlockKey::Opaque(key)).payload == bytes) << key.size();
  }
  // The daemon names an opaque key by the digest that the client computes too.
  auto located = client_->Exists(ns, std::vector<BlockKey>{*BlockKey::Opaque("/").ToDigest()});
  ASSERT_TRUE(located.ok());
  EXPECT_TRUE(located->front().found);
}

TEST_F(IntegrationTest, C50_one_bad_block_does_not_fail_the_batch) {
  Start();
  Namespace ns = Register(Facts(2, 2, 64, 16));
  std::vector<uint8_t> bytes = HalfPattern(ns.KBytes(16) + ns.VBytes(16), 1);
  std::vector<uint8_t> other = HalfPattern(bytes.size(), 2);
  ASSERT_TRUE(PutOne(ns, Item(ns, BlockKey::Opaque("existing"), 16, bytes)).stored);
  std::vector<PutItem> items;
  for (int i = 0; i < 32; ++i) items.push_back(Item(ns, BlockKey::Opaque("key" + std::to_string(i)), 16, bytes));
  items[1].key = BlockKey::Opaque("existing");
  items[2] = Item(ns, BlockKey::Opaque("existing"), 16, other);
  items[4].key = items[3].key;
  items[5].key = BlockKey::Opaque("");
  items[6].tokens = 17;
  auto results = client_->Put(ns, items);
  ASSERT_TRUE(results.ok()) << results.status();
  for (int i = 0; i < 32; ++i) {
    bool refused = i == 5 || i == 6;
    EXPECT_EQ((*results)[i].status.ok(), !refused) << i << (*results)[i].status;
    EXPECT_EQ((*results)[i].stored, !refused && i != 1 && i != 2 && i != 4) << i;
  }
  EXPECT_TRUE(GetOne(ns, BlockKey::Opaque("existing")).payload == bytes);
  for (int i = 7; i < 32; ++i) EXPECT_TRUE(GetOne(ns, items[i].key).payload == bytes) << i;
}

TEST_F(IntegrationTest, C47_shapes_of_nothing_are_refused) {
  Start();
  for (const auto& facts : {Facts(0, 2, 64, 16), Facts(2, 0, 64, 16), Facts(2, 2, 0, 16), Facts(2, 2, 64, 0)}) {
    EXPECT_EQ(client_->RegisterNamespace(facts).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(client_->GetStats().ok());
}

TEST_F(IntegrationTest, C44_everything_that_defines_the_data_separates) {
  Start();
  NamespaceFacts base = Facts(2, 2, 64, 16);
  base.revision = "r";
  Namespace ns = Register(base);
  std::vector<uint32_t> tokens(16, 3);
  Digest key = ns.Keys(tokens)[0];
  ASSERT_TRUE(PutOne(ns, Item(ns, key, 16, HalfPattern(ns.KBytes(16) + ns.VBytes(16), 1))).stored);
  std::vector<NamespaceFacts> others(9, base);
  others[0].model_id = "other";
  others[1].revision = "s";
  others[2].dtype = DType::kBf16;
  others[3].block_tokens = 32;
  others[4].layer_first = 1, others[4].layer_last = 3;
  others[5].shards = 2;
  others[6].rope.theta = 10000;
  others[7].k_pre_rope = true;
  others[8].kv_heads = 4;
  for (size_t i = 0; i < others.size(); ++i) {
    Namespace other = Register(others[i]);
    EXPECT_NE(other.fingerprint, ns.fingerprint) << i;
    EXPECT_NE(other.model_fingerprint, ns.model_fingerprint) << i;
    std::vector<uint32_t> same(others[i].block_tokens, 3);
    for (const Digest& probe : {key, other.Keys(same)[0]}) {
      auto located = client_->Exists(other, std::vector<BlockKey>{probe});
      ASSERT_TRUE(located.ok()) << located.status();
      EXPECT_FALSE(located->front().found) << i;
    }
  }
  // The daemon computes the same keys from tokens; another adapter is another key.
  auto prefix = client_->LookupTokens(ns, {.tokens = tokens, .extras = {}, .parent = {}});
  ASSERT_TRUE(prefix.ok()) << prefix.status();
  EXPECT_EQ(prefix->blocks, 1u);
  EXPECT_EQ(prefix->keys.front(), key);
  std::vector<std::string_view> adapter = {"adapter"};
  EXPECT_EQ(client_->LookupTokens(ns, {.tokens = tokens, .extras = adapter, .parent = {}})->blocks, 0u);
}

// C17: values that tell their place, sent in several arrangements and asked for in several.
TEST_F(IntegrationTest, C17_layouts_are_declared_and_kept) {
  Start();
  constexpr uint64_t kL = 3, kH = 2, kT = 5, kW = 16;
  Namespace ns = Register(Facts(kL, kH, kW, 8));
  constexpr uint64_t kValues = kL * kH * kT * kW;
  auto place = [](const PartLayout& part, uint64_t l, uint64_t h, uint64_t t, uint64_t c) {
    return part.offset + l * part.layer_stride + h * part.head_stride + t * part.token_stride + c * part.channel_stride;
  };
  const Layout layouts[] = {
      // K/V first, token-major: [kv][layer][token][head][channel].
      {{0, kT * kH * kW, kW, kH * kW, 1}, {kValues, kT * kH * kW, kW, kH * kW, 1}, 2 * kValues * 2},
      // Block first: [token][layer][kv][head][channel].
      {{0, 2 * kH * kW, kW, kL * 2 * kH * kW, 1}, {kH * kW, 2 * kH * kW, kW, kL * 2 * kH * kW, 1}, 2 * kValues * 2},
      // Fused: [layer][head][token][k channels, v channels].
      {{0, kH * kT * 2 * kW, kT * 2 * kW, 2 * kW, 1}, {kW, kH * kT * 2 * kW, kT * 2 * kW, 2 * kW, 1}, 2 * kValues * 2},
      // A transposed view: channels outermost of a head.
      {{0, kH * kT * kW, kT * kW, 1, kT}, {kValues, kH * kT * kW, kT * kW, 1, kT}, 2 * kValues * 2},
  };
  std::vector<uint8_t> canonical = HalfPattern(2 * kValues * 2, 9);
  auto arranged = [&](const Layout& layout) {
    std::vector<uint8_t> out(layout.payload_bytes);
    uint64_t from = 0;
    for (const PartLayout* part : {&layout.k, &layout.v}) {
      for (uint64_t l = 0; l < kL; ++l) {
        for (uint64_t h = 0; h < kH; ++h) {
          for (uint64_t t = 0; t < kT; ++t) {
            for (uint64_t c = 0; c < kW; ++c, from += 2)
              std::memcpy(&out[2 * place(*part, l, h, t, c)], &canonical[from], 2);
          }
        }
      }
    }
    return out;
  };
  for (size_t i = 0; i < std::size(layouts); ++i) {
    BlockKey key = BlockKey::Opaque("layout " + std::to_string(i));
    std::vector<uint8_t> source = arranged(layouts[i]);
    PutItem item{.key = key, .tokens = kT};
    item.parts.k = std::span<const uint8_t>(source);
    item.layout = layouts[i];
    ASSERT_TRUE(PutOne(ns, item).status.ok()) << PutOne(ns, item).status;
    EXPECT_TRUE(GetOne(ns, key).payload == canonical) << i;
    for (const Layout& wanted : layouts)
      EXPECT_TRUE(GetOne(ns, key, {.layout = wanted}).payload == arranged(wanted)) << i;
  }
}

TEST_F(IntegrationTest, PrecisionIsServedAndSaid) {
  Start();
  Namespace ns = Register(Facts(4, 2, 128, 64));
  std::vector<uint8_t> bytes = HalfPattern(ns.KBytes(64) + ns.VBytes(64), 1);
  std::vector<BlockKey> keys = {BlockKey::Opaque("a")};
  ASSERT_TRUE(PutOne(ns, Item(ns, keys[0], 64, bytes)).stored);
  for (auto [tier, expected] : {std::pair("warm", Precision::kInt8), {"cold", Precision::kInt4}}) {
    auto moved = client_->Demote(ns, keys, tier);
    ASSERT_TRUE(moved.ok()) << moved.status();
    ASSERT_TRUE(moved->front().status.ok()) << moved->front().status;
    EXPECT_EQ(moved->front().now.Min(), expected);
    GetResult got = GetOne(ns, keys[0]);
    ASSERT_TRUE(got.status.ok()) << got.status;
    EXPECT_EQ(got.served.Min(), expected);
    EXPECT_EQ(got.payload.size(), bytes.size());
    GetOptions finer;
    finer.least = {Precision::kExact, Precision::kExact};
    EXPECT_EQ(GetOne(ns, keys[0], finer).status.code(), absl::StatusCode::kNotFound);
    GetOptions packed;
    packed.representation = Representation::kPacked;
    GetResult record = GetOne(ns, keys[0], packed);
    ASSERT_TRUE(record.status.ok()) << record.status;
    EXPECT_FALSE(record.record_header.empty());
    EXPECT_LT(record.payload_bytes, bytes.size());
    // And back, under another key: the same codes.
    PutItem again{.key = BlockKey::Opaque(std::string("packed ") + tier), .tokens = 64};
    again.record_header = record.record_header;
    again.runs = record.runs;
    again.parts.k = std::span<const uint8_t>(record.payload);
    PutResult put = PutOne(ns, again);
    ASSERT_TRUE(put.status.ok()) << put.status;
    EXPECT_TRUE(put.stored);
    EXPECT_EQ(put.stored_class.Min(), expected);
    EXPECT_EQ(GetOne(ns, again.key).payload, got.payload);
    again.parts.v = std::span<const uint8_t>(bytes);
    EXPECT_TRUE(absl::IsInvalidArgument(PutOne(ns, again).status));
  }
  GetOptions part;
  part.representation = Representation::kFp32;
  part.layer_first = 1;
  part.layer_count = 2;
  GetResult layers = GetOne(ns, keys[0], part);
  ASSERT_TRUE(layers.status.ok()) << layers.status;
  EXPECT_EQ(layers.layers, 2u);
  EXPECT_EQ(layers.payload_bytes, bytes.size());  // Half of the layers, twice as wide.
  auto described = client_->Describe(ns, keys);
  ASSERT_TRUE(described.ok()) << described.status();
  ASSERT_TRUE(described->front().status.ok());
  EXPECT_FALSE(described->front().shards.front().copies.empty());
}

TEST_F(IntegrationTest, ImportantTokensStayExact) {
  Start();
  auto plan = Preset("mikv", {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  plan->keep_first_tokens = 1;
  auto registered = client_->RegisterNamespace(Facts(2, 2, 128, 64), *plan);
  ASSERT_TRUE(registered.ok()) << registered.status();
  const Namespace& ns = *registered;
  EXPECT_EQ(ns.plan, *plan);
  constexpr uint32_t kTokens = 20;  // A fifth is 4: the first one, and three more.
  std::vector<uint8_t> bytes = HalfPattern(ns.KBytes(kTokens) + ns.VBytes(kTokens), 1);
  auto favour = [](std::set<uint32_t> tokens) {
    std::vector<float> importance(kTokens, 0.5f);
    for (uint32_t token : tokens) importance[token] = 3;
    return importance;
  };
  std::vector<BlockKey> keys = {BlockKey::Opaque("put"), BlockKey::Opaque("touched"), BlockKey::Opaque("neither")};
  for (const BlockKey& key : keys) {
    PutItem item = Item(ns, key, kTokens, bytes);
    if (&key == &keys[0]) item.token_importance = favour({5, 9, 13});
    PutResult put = PutOne(ns, item);
    ASSERT_TRUE(put.stored) << put.status;
  }
  std::vector<TouchHint> hints = {{.key = keys[1], .token_importance = favour({2, 3, 19})},
                                  {.key = keys[1], .token_importance = {1, -1}}};
  auto touched = client_->Touch(ns, hints);
  ASSERT_TRUE(touched.ok()) << touched.status();
  EXPECT_TRUE((*touched)[0].ok()) << (*touched)[0];
  EXPECT_EQ((*touched)[1].code(), absl::StatusCode::kInvalidArgument);
  auto moved = client_->Demote(ns, keys, "cold");
  ASSERT_TRUE(moved.ok()) << moved.status();
  auto exact_tokens = [&](const BlockKey& key) {
    GetResult got = GetOne(ns, key);
    EXPECT_TRUE(got.status.ok()) << got.status;
    EXPECT_EQ(got.served.Min(), Precision::kInt3);
    std::set<uint32_t> exact;
    for (uint32_t token = 0; token < kTokens; ++token) {
      bool same = true;
      for (uint32_t head = 0; head < 4; ++head) {
        auto at = static_cast<ptrdiff_t>((head * kTokens + token) * 128 * 2);
        same &= std::equal(bytes.begin() + at, bytes.begin() + at + 256, got.payload.begin() + at);
      }
      if (same) exact.insert(token);
    }
    return exact;
  };
  auto expect_sets = [&] {
    EXPECT_EQ(exact_tokens(keys[0]), (std::set<uint32_t>{0, 5, 9, 13}));
    EXPECT_EQ(exact_tokens(keys[1]), (std::set<uint32_t>{0, 2, 3, 19}));
    EXPECT_EQ(exact_tokens(keys[2]), std::set<uint32_t>{0});
  };
  expect_sets();
  ASSERT_TRUE(client_->Flush(ns).ok());
  daemon_->KillNow();
  ASSERT_TRUE(daemon_->Start().ok()) << daemon_->Log();
  EXPECT_TRUE(client_->WaitUntilReady(20'000).ok());
  expect_sets();
  auto verified = client_->Verify();
  ASSERT_TRUE(verified.ok()) << verified.status();
  EXPECT_TRUE(verified->consistent) << testing::PrintToString(verified->findings);
}

TEST_F(IntegrationTest, TheLastTokensOfASequenceStayHot) {
  firn::DaemonOptions options;
  options.hot_capacity = "2MiB";
  Start(options);
  auto plan = Preset("kivi-2", {});
  ASSERT_TRUE(plan.ok() && plan->recent_tokens == 128);
  auto registered = client_->RegisterNamespace(Facts(2, 2, 64, 16), *plan);
  ASSERT_TRUE(registered.ok()) << registered.status();
  const Namespace& ns = *registered;
  EXPECT_EQ(ns.plan, *plan);
  // A sequence of five times what the hot tier holds, in one call.
  constexpr uint32_t kBlocks = 640, kTokens = 16, kRecent = 128 / kTokens;
  std::vector<uint8_t> bytes = HalfPattern(ns.KBytes(kTokens) + ns.VBytes(kTokens), 1);
  std::vector<BlockKey> keys;
  std::vector<PutItem> items;
  for (uint32_t i = 0; i < kBlocks; ++i) {
    keys.push_back(BlockKey::Opaque("block " + std::to_string(i)));
    items.push_back(Item(ns, keys.back(), kTokens, bytes));
    items.back().first_token = i * kTokens;
    if (i > 0) items.back().parent = keys[i - 1];
  }
  auto put = client_->Put(ns, items);
  ASSERT_TRUE(put.ok()) << put.status();
  for (const PutResult& result : *put) ASSERT_TRUE(result.stored) << result.status;
  EXPECT_EQ(Gauge("recent_blocks"), kRecent);
  // And as much again of blocks that are used later.
  for (uint32_t i = 0; i < kBlocks; ++i) {
    items[i] = Item(ns, BlockKey::Opaque("other " + std::to_string(i)), kTokens, bytes);
  }
  put = client_->Put(ns, items);
  ASSERT_TRUE(put.ok()) << put.status();
  EXPECT_EQ(Gauge("recent_blocks"), kRecent);
  for (int i = 0; i < 200 && Gauge("moves_in_flight") > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  auto located = client_->Exists(ns, keys);
  ASSERT_TRUE(located.ok()) << located.status();
  uint32_t hot = 0;
  for (uint32_t i = 0; i < kBlocks; ++i) {
    ASSERT_TRUE((*located)[i].found) << i;
    if ((*located)[i].tier == 0) ++hot;
    if (i < kBlocks - kRecent) continue;
    EXPECT_EQ((*located)[i].tier, 0u) << i;
    EXPECT_TRUE(GetOne(ns, keys[i]).payload == bytes) << i;
  }
  EXPECT_LT(hot, kBlocks / 4);
  auto verified = client_->Verify();
  ASSERT_TRUE(verified.ok()) << verified.status();
  EXPECT_TRUE(verified->consistent) << testing::PrintToString(verified->findings);
  daemon_->KillNow();
  ASSERT_TRUE(daemon_->Start().ok()) << daemon_->Log();
  ASSERT_TRUE(client_->WaitUntilReady(20'000).ok());
  auto described = client_->DescribeNamespace(ns.fingerprint);
  ASSERT_TRUE(described.ok()) << described.status();
  EXPECT_EQ(described->plan.recent_tokens, 128u);
}

TEST_F(IntegrationTest, SessionsOwnPinsAndLeases) {
  Start();
  Namespace ns = Register(Facts(2, 2, 64, 16));
  std::vector<uint8_t> bytes = HalfPattern(ns.KBytes(16) + ns.VBytes(16), 1);
  std::vector<BlockKey> keys = {BlockKey::Opaque("a")};
  ASSERT_TRUE(PutOne(ns, Item(ns, keys[0], 16, bytes)).stored);
  auto session = client_->OpenSession("test");
  ASSERT_TRUE(session.ok()) << session.status();
  auto unpinned = client_->Unpin(ns, keys, **session);
  ASSERT_TRUE(unpinned.ok()) << unpinned.status();
  EXPECT_EQ(unpinned->front().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(client_->Pin(ns, keys, **session)->front().ok());
  EXPECT_EQ(Gauge("pins"), 1u);

  std::vector<PutItem> items = {Item(ns, BlockKey::Opaque("b"), 16, bytes), Item(ns, BlockKey::Opaque("c"), 16, bytes)};
  auto leases = (*session)->BeginPut(ns, items, {}, 1000);
  ASSERT_TRUE(leases.ok()) << leases.status();
  std::vector<uint64_t> numbers = {(*leases)[0].lease, (*leases)[1].lease};
  ASSERT_TRUE((*leases)[0].status.ok()) << (*leases)[0].status;
  EXPECT_EQ((*leases)[0].payload_bytes, bytes.size());
  std::vector<SourceParts> parts = {items[0].parts, items[1].parts};
  auto filled = (*session)->Fill(ns, numbers, parts);
  ASSERT_TRUE(filled.ok()) << filled.status();
  EXPECT_TRUE((*filled)[0].ok()) << (*filled)[0];
  EXPECT_EQ(GetOne(ns, items[0].key).status.code(), absl::StatusCode::kNotFound) << "visible before it was committed";
  auto committed = (*session)->CommitPut({numbers.data(), 1});
  ASSERT_TRUE(committed.ok()) << committed.status();
  EXPECT_TRUE(committed->front().stored) << committed->front().status;
  EXPECT_TRUE(GetOne(ns, items[0].key).payload == bytes);
  EXPECT_TRUE((*session)->AbortPut({numbers.data() + 1, 1})->front().ok());
  EXPECT_EQ(GetOne(ns, items[1].key).status.code(), absl::StatusCode::kNotFound);

  session->reset();
  for (int i = 0; i < 500 && Gauge("pins") > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(Gauge("pins"), 0u);
}

TEST_F(IntegrationTest, WatchTellsWhatHappens) {
  Start();
  Namespace ns = Register(Facts(2, 2, 64, 16));
  auto watch = client_->Watch(ns.fingerprint);
  ASSERT_TRUE(watch.ok()) << watch.status();
  ASSERT_TRUE((*watch)->Next(10'000).ok());
  std::vector<BlockKey> keys = {BlockKey::Opaque("a")};
  ASSERT_TRUE(PutOne(ns, Item(ns, keys[0], 16, HalfPattern(ns.KBytes(16) + ns.VBytes(16), 1))).stored);
  ASSERT_TRUE(client_->Demote(ns, keys, "warm")->front().status.ok());
  ASSERT_TRUE(client_->Delete(ns, keys)->front().ok());
  std::vector<EventKind> seen;
  while (seen.empty() || seen.back() != EventKind::kRemoved) {
    auto batch = (*watch)->Next(10'000);
    ASSERT_TRUE(batch.ok()) << batch.status();
    for (const BlockEvent& event : batch->events) {
      EXPECT_EQ(event.key, *keys[0].ToDigest());
      EXPECT_EQ(event.ns, ns.fingerprint);
      seen.push_back(event.kind);
    }
  }
  EXPECT_THAT(seen, testing::ElementsAre(EventKind::kStored, EventKind::kDemoted, EventKind::kRemoved));
}

TEST_F(IntegrationTest, ARestartIsSurvived) {
  Start();
  Namespace ns = Register(Facts(4, 2, 128, 64));
  std::vector<uint32_t> tokens(256, 5);
  std::vector<BlockKey> keys;
  std::vector<PutItem> items;
  std::vector<uint8_t> bytes = HalfPattern(ns.KBytes(64) + ns.VBytes(64), 1);
  for (const Digest& key : ns.Keys(tokens)) {
    items.push_back(Item(ns, key, 64, bytes));
    if (!keys.empty()) items.back().parent = keys.back();
    keys.push_back(key);
  }
  PutOptions durable;
  durable.ack = AckLevel::kDurable;
  auto put = client_->Put(ns, items, durable);
  ASSERT_TRUE(put.ok()) << put.status();
  for (const PutResult& result : *put) EXPECT_GE(result.durable_class.Min(), Precision::kInt2) << result.status;
  auto watch = client_->Watch();
  ASSERT_TRUE((*watch)->Next(10'000).ok());
  daemon_->KillNow();
  ASSERT_TRUE(daemon_->Start().ok()) << daemon_->Log();
  EXPECT_TRUE(client_->WaitUntilReady(20'000).ok());
  auto prefix = client_->Lookup(ns, keys);
  ASSERT_TRUE(prefix.ok()) << prefix.status();
  EXPECT_EQ(prefix->blocks, keys.size());
  EXPECT_TRUE(GetOne(ns, keys[0]).status.ok());
  auto verified = client_->Verify();
  ASSERT_TRUE(verified.ok()) << verified.status();
  EXPECT_TRUE(verified->consistent) << testing::PrintToString(verified->findings);
}

TEST_F(IntegrationTest, ManyCallersAtOnce) {
  Start();
  Namespace ns = Register(Facts(4, 2, 128, 64));
  std::vector<std::thread> callers;
  for (int t = 0; t < 6; ++t) {
    callers.emplace_back([&, t] {
      for (int i = 0; i < 8; ++i) {
        BlockKey key = BlockKey::Opaque(std::to_string(t) + "/" + std::to_string(i));
        std::vector<uint8_t> bytes = HalfPattern(ns.KBytes(64) + ns.VBytes(64), t * 100 + i);
        EXPECT_TRUE(PutOne(ns, Item(ns, key, 64, bytes)).stored);
        EXPECT_TRUE(GetOne(ns, key).payload == bytes);
      }
    });
  }
  std::promise<absl::StatusOr<std::vector<GetResult>>> later;
  client_->GetAsync(ns, {{.key = BlockKey::Opaque("none"), .allocate = true}}, {},
                    [&later](absl::StatusOr<std::vector<GetResult>> results) { later.set_value(std::move(results)); });
  EXPECT_EQ(later.get_future().get()->front().status.code(), absl::StatusCode::kNotFound);
  for (auto& caller : callers) caller.join();
}

}  // namespace
}  // namespace firnkv
