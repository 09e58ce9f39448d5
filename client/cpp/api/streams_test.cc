// Put and Get against a daemon that misbehaves.

#include <future>
#include <thread>

#include "client/cpp/testing/fixture.h"

namespace firnkv {
namespace {

using ::testing::HasSubstr;

class StreamsTest : public FakeDaemonTest {
 protected:
  PutItem Item(const Namespace& ns, const std::string& key, uint32_t tokens, const std::vector<uint8_t>& bytes) {
    PutItem item{.key = BlockKey::Opaque(key), .tokens = tokens};
    item.parts.k = View(bytes).first(ns.KBytes(tokens));
    item.parts.v = View(bytes).subspan(ns.KBytes(tokens));
    return item;
  }
  std::vector<uint8_t> Bytes(const Namespace& ns, uint32_t tokens, uint32_t salt) {
    return Pattern(ns.KBytes(tokens) + ns.VBytes(tokens), salt);
  }
  PutResult PutOne(const Namespace& ns, const std::string& key, uint32_t tokens, const std::vector<uint8_t>& bytes,
                   const PutOptions& options = {}) {
    std::vector<PutItem> items = {Item(ns, key, tokens, bytes)};
    auto results = client_->Put(ns, items, options);
    if (!results.ok()) return {.status = results.status()};
    return results->front();
  }
  GetResult GetOne(const Namespace& ns, const std::string& key, const GetOptions& options = {}) {
    std::vector<GetItem> items = {{.key = BlockKey::Opaque(key), .allocate = true}};
    auto results = client_->Get(ns, items, options);
    if (!results.ok()) return {.status = results.status()};
    return std::move(results->front());
  }
};

TEST_F(StreamsTest, C39_values_over_four_mebibytes) {
  Connect();
  struct Case {
    uint32_t layers, tokens;
  };
  for (auto [layers, tokens] : {Case{32, 31}, Case{32, 32}, Case{32, 33}, Case{32, 256}, Case{80, 256}}) {
    Namespace ns = Register(layers, 256);
    std::string key = std::to_string(layers) + "/" + std::to_string(tokens);
    std::vector<uint8_t> bytes = Bytes(ns, tokens, layers + tokens);
    EXPECT_EQ(bytes.size(), uint64_t{layers} * 8 * 128 * 2 * 2 * tokens);
    PutResult put = PutOne(ns, key, tokens, bytes);
    ASSERT_TRUE(put.status.ok()) << key << put.status;
    EXPECT_TRUE(put.stored);
    GetResult got = GetOne(ns, key);
    ASSERT_TRUE(got.status.ok()) << key << got.status;
    EXPECT_TRUE(got.payload == bytes) << key;
  }
  // Over the daemon's limit: refused with the limit, before the upload.
  Namespace ns = Register(128, 512);
  uint64_t before = daemon_->put_bytes;
  PutResult refused = PutOne(ns, "large", 512, Bytes(ns, 512, 1));
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(firn::Message(refused.status), HasSubstr(std::to_string(uint64_t{128} << 20)));
  EXPECT_EQ(daemon_->put_bytes, before);
}

TEST_F(StreamsTest, PiecesAreGatheredAndScattered) {
  Connect();
  Namespace ns = Register(3, 16);
  std::vector<uint8_t> bytes = Bytes(ns, 5, 1);
  PutItem item{.key = BlockKey::Opaque("a"), .tokens = 5};
  uint64_t layer_bytes = ns.KBytes(5) / 3;
  for (int layer = 0; layer < 3; ++layer) {
    item.parts.k.Append(View(bytes).subspan(layer * layer_bytes, layer_bytes));
    item.parts.v.Append(View(bytes).subspan(ns.KBytes(5) + layer * layer_bytes, layer_bytes));
  }
  auto put = client_->Put(ns, std::vector<PutItem>{item}, {.chunk_bytes = 4096});
  ASSERT_TRUE(put.ok()) << put.status();
  ASSERT_TRUE(put->front().status.ok()) << put->front().status;

  // Odd pieces, with more room than a tail of 5 tokens needs, and chunks that end inside them.
  for (bool shuffle : {false, true}) {
    daemon_->faults.shuffle = shuffle;
    std::vector<uint8_t> k(ns.KBytes(16), 0xEE), v(ns.VBytes(16), 0xEE);
    GetItem get{.key = BlockKey::Opaque("a")};
    get.parts.k = std::span<uint8_t>(k).first(1001);
    get.parts.k.Append(std::span<uint8_t>(k).subspan(1001));
    get.parts.v = std::span<uint8_t>(v);
    auto got = client_->Get(ns, std::vector<GetItem>{get}, {.chunk_bytes = 4096});
    ASSERT_TRUE(got.ok()) << got.status();
    ASSERT_TRUE(got->front().status.ok()) << got->front().status;
    EXPECT_EQ(got->front().k_bytes, ns.KBytes(5));
    EXPECT_TRUE(std::equal(k.begin(), k.begin() + ns.KBytes(5), bytes.begin()));
    EXPECT_TRUE(std::equal(v.begin(), v.begin() + ns.VBytes(5), bytes.begin() + ns.KBytes(5)));
    EXPECT_EQ(k[ns.KBytes(5)], 0xEE) << "bytes beyond the block were written";
  }
}

TEST_F(StreamsTest, C47_nothing_to_store_or_to_fetch) {
  Connect();
  Namespace ns = Register(2, 16);
  std::vector<uint8_t> bytes = Bytes(ns, 4, 1);
  ASSERT_TRUE(PutOne(ns, "a", 4, bytes).status.ok());
  EXPECT_TRUE(client_->Put(ns, {})->empty());
  EXPECT_TRUE(client_->Get(ns, {})->empty());
  EXPECT_TRUE(client_->Exists(ns, {})->empty());
  EXPECT_TRUE(client_->Delete(ns, {})->empty());
  EXPECT_EQ(PutOne(ns, "a", 0, {}).status.code(), absl::StatusCode::kInvalidArgument);
  auto nowhere = client_->Get(ns, std::vector<GetItem>{{.key = BlockKey::Opaque("a")}});
  ASSERT_TRUE(nowhere.ok());
  EXPECT_EQ(nowhere->front().status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(GetOne(ns, "a").payload == bytes) << "the value was touched";
}

TEST_F(StreamsTest, C46_keys_of_every_length_and_kind) {
  Connect();
  Namespace ns = Register(1, 4);
  std::vector<uint8_t> bytes = Bytes(ns, 1, 1);
  for (const std::string& key :
       {std::string(1, 'x'), std::string(255, 'x'), std::string(256, 'x'), std::string(1024, 'x'),
        std::string(4096, 'x'), std::string(255, 'x') + "1", std::string("\0", 1), std::string("/"),
        std::string("../.."), std::string("a\nb"), std::string("\xFF\xFE")}) {
    PutResult put = PutOne(ns, key, 1, bytes);
    EXPECT_TRUE(put.status.ok()) << put.status;
    EXPECT_TRUE(put.stored) << "equal to an earlier key: " << key.size() << " bytes";
  }
  for (size_t length : {size_t{0}, size_t{4097}, size_t{65536}, size_t{1} << 20}) {
    PutResult put = PutOne(ns, std::string(length, 'x'), 1, bytes);
    EXPECT_EQ(put.status.code(), absl::StatusCode::kInvalidArgument) << length;
    EXPECT_THAT(firn::Message(put.status), HasSubstr("4096"));
    EXPECT_EQ(GetOne(ns, std::string(length, 'x')).status.code(), absl::StatusCode::kInvalidArgument) << length;
  }
}

TEST_F(StreamsTest, C50_one_bad_block_does_not_fail_the_batch) {
  Connect();
  Namespace ns = Register(1, 4);
  std::vector<uint8_t> bytes = Bytes(ns, 4, 1), other = Bytes(ns, 4, 2);
  ASSERT_TRUE(PutOne(ns, "existing", 4, bytes).stored);
  daemon_->faults.full_after = 25;
  std::vector<PutItem> items;
  for (int i = 0; i < 32; ++i) items.push_back(Item(ns, "key" + std::to_string(i), 4, bytes));
  items[1].key = BlockKey::Opaque("existing");
  items[2] = Item(ns, "existing", 4, other);
  items[4].key = items[3].key;
  items[5].key = BlockKey::Opaque("");
  items[6].tokens = 5;
  items[7].parts.v = {};
  auto results = client_->Put(ns, items);
  ASSERT_TRUE(results.ok()) << results.status();
  ASSERT_EQ(results->size(), 32u);
  int stored = 0, full = 0;
  for (int i = 0; i < 32; ++i) {
    const PutResult& result = (*results)[i];
    if (i == 5 || i == 6 || i == 7) {
      EXPECT_EQ(result.status.code(), absl::StatusCode::kInvalidArgument) << i;
    } else if (i == 1 || i == 2 || i == 4) {
      EXPECT_TRUE(result.status.ok()) << i << result.status;
      EXPECT_FALSE(result.stored) << i;
    } else if (result.status.ok()) {
      ++stored;
    } else {
      EXPECT_EQ(result.status.code(), absl::StatusCode::kResourceExhausted) << i;
      ++full;
    }
  }
  EXPECT_EQ(stored, 24);
  EXPECT_EQ(full, 2);
  EXPECT_TRUE(GetOne(ns, "existing").payload == bytes);
  EXPECT_EQ(GetOne(ns, "key5").status.code(), absl::StatusCode::kNotFound);
}

TEST_F(StreamsTest, UploadsStopWhenABlockIsThereAlready) {
  Connect();
  Namespace ns = Register(32, 256);
  std::vector<uint8_t> bytes = Bytes(ns, 256, 1);
  ASSERT_TRUE(PutOne(ns, "a", 256, bytes).stored);
  PutOptions announce;
  announce.announce = true;
  uint64_t before = daemon_->put_bytes;
  PutResult again = PutOne(ns, "a", 256, bytes, announce);
  EXPECT_TRUE(again.status.ok()) << again.status;
  EXPECT_FALSE(again.stored);
  EXPECT_EQ(daemon_->put_bytes, before) << "payload was sent that nobody wanted";
  EXPECT_TRUE(PutOne(ns, "b", 256, bytes, announce).stored);
  EXPECT_TRUE(GetOne(ns, "b").payload == bytes);

  std::vector<PutItem> items = {Item(ns, "a", 256, bytes), Item(ns, "c", 256, bytes)};
  auto results = client_->Put(ns, items);
  ASSERT_TRUE(results.ok());
  EXPECT_FALSE((*results)[0].stored);
  EXPECT_TRUE((*results)[1].stored) << (*results)[1].status;
}

TEST_F(StreamsTest, ManyBlocksGoInBatches) {
  Connect();
  Namespace ns = Register(1, 4);
  std::vector<std::vector<uint8_t>> bytes;
  std::vector<PutItem> puts;
  for (int i = 0; i < 101; ++i) bytes.push_back(Bytes(ns, 1 + i % 4, i));
  for (int i = 0; i < 101; ++i) puts.push_back(Item(ns, "k" + std::to_string(i), 1 + i % 4, bytes[i]));
  auto stored = client_->Put(ns, puts);
  ASSERT_TRUE(stored.ok()) << stored.status();
  std::vector<GetItem> gets;
  for (int i = 0; i < 120; ++i) gets.push_back({.key = BlockKey::Opaque("k" + std::to_string(i)), .allocate = true});
  auto got = client_->Get(ns, gets);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(daemon_->get_requests, 12u);  // The daemon takes 10 keys a request.
  for (int i = 0; i < 120; ++i) {
    if (i < 101) {
      EXPECT_TRUE((*got)[i].payload == bytes[i]) << i;
    } else {
      EXPECT_EQ((*got)[i].status.code(), absl::StatusCode::kNotFound) << i;
    }
  }
}

TEST_F(StreamsTest, BrokenStreamsAreRepeatedForWhatIsOpen) {
  Connect();
  Namespace ns = Register(4, 64);
  std::vector<uint8_t> bytes = Bytes(ns, 64, 1);
  daemon_->faults.refuse_calls = 2;
  ASSERT_TRUE(PutOne(ns, "a", 64, bytes).stored);
  daemon_->faults.break_gets_after = 3;
  std::vector<uint8_t> k(ns.KBytes(64)), v(ns.VBytes(64));
  GetItem item{.key = BlockKey::Opaque("a")};
  item.parts.k = std::span<uint8_t>(k);
  item.parts.v = std::span<uint8_t>(v);
  auto got = client_->Get(ns, std::vector<GetItem>{item, item, item}, {.chunk_bytes = 200'000});
  ASSERT_TRUE(got.ok()) << got.status();
  for (const GetResult& result : *got) EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_TRUE(std::equal(k.begin(), k.end(), bytes.begin()));
  EXPECT_TRUE(std::equal(v.begin(), v.end(), bytes.begin() + k.size()));

  daemon_->faults.refuse_calls = 1000;  // Repeats are bounded.
  uint64_t before = daemon_->calls;
  EXPECT_EQ(PutOne(ns, "b", 64, bytes).status.code(), absl::StatusCode::kUnavailable);
  EXPECT_LE(daemon_->calls - before, 8u);
  daemon_->faults.refuse_calls = 0;
}

TEST_F(StreamsTest, APartOfABlockIsNeverHandedOut) {
  Connect();
  Namespace ns = Register(4, 64);
  std::vector<uint8_t> bytes = Bytes(ns, 64, 1);
  ASSERT_TRUE(PutOne(ns, "a", 64, bytes).stored);
  for (auto* fault : {&daemon_->faults.shorten, &daemon_->faults.overrun}) {
    *fault = true;
    std::vector<uint8_t> k(ns.KBytes(64), 0), v(ns.VBytes(64), 0);
    GetItem item{.key = BlockKey::Opaque("a")};
    item.parts.k = std::span<uint8_t>(k);
    item.parts.v = std::span<uint8_t>(v);
    auto got = client_->Get(ns, std::vector<GetItem>{item}, {.chunk_bytes = 100'000});
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->front().status.code(), absl::StatusCode::kDataLoss) << got->front().status;
    EXPECT_TRUE(std::all_of(k.begin(), k.end(), [](uint8_t byte) { return byte == 0; }));
    EXPECT_TRUE(std::all_of(v.begin(), v.end(), [](uint8_t byte) { return byte == 0; }));
    EXPECT_TRUE(GetOne(ns, "a").payload.empty());
    *fault = false;
  }
  // Too little room: refused with both numbers, and the other blocks of the batch arrive.
  std::vector<uint8_t> small(10);
  GetItem item{.key = BlockKey::Opaque("a")};
  item.parts.k = std::span<uint8_t>(small);
  auto got = client_->Get(ns, std::vector<GetItem>{item, {.key = BlockKey::Opaque("a"), .allocate = true}});
  ASSERT_TRUE(got.ok());
  EXPECT_EQ((*got)[0].status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(firn::Message((*got)[0].status), HasSubstr(std::to_string(ns.KBytes(64))));
  EXPECT_TRUE((*got)[1].payload == bytes);
}

TEST_F(StreamsTest, MissingAnswersAreErrors) {
  Connect();
  Namespace ns = Register(1, 4);
  daemon_->faults.silent_puts = true;
  EXPECT_EQ(PutOne(ns, "a", 4, Bytes(ns, 4, 1)).status.code(), absl::StatusCode::kInternal);
}

TEST_F(StreamsTest, DeadlinesHoldAndGiveTheMemoryBack) {
  Connect();
  Namespace ns = Register(32, 256);
  ASSERT_TRUE(PutOne(ns, "first", 1, Bytes(ns, 1, 1)).stored);  // Limits are known from here on.
  daemon_->faults.hang = true;
  {
    std::vector<uint8_t> bytes = Bytes(ns, 256, 1);
    PutOptions options;
    options.deadline_ms = 200;
    EXPECT_EQ(PutOne(ns, "a", 256, bytes, options).status.code(), absl::StatusCode::kDeadlineExceeded);
  }  // Under ASan a slice that still refers to `bytes` would show.
  GetOptions options;
  options.deadline_ms = 200;
  EXPECT_EQ(GetOne(ns, "a", options).status.code(), absl::StatusCode::kDeadlineExceeded);
  daemon_->faults.hang = false;
  EXPECT_TRUE(GetOne(ns, "first").status.ok());
}

TEST_F(StreamsTest, AsynchronousCallsComplete) {
  Connect();
  Namespace ns = Register(4, 64);
  std::vector<uint8_t> bytes = Bytes(ns, 64, 1);
  std::vector<std::promise<absl::StatusOr<std::vector<PutResult>>>> puts(16);
  for (size_t i = 0; i < puts.size(); ++i) {
    client_->PutAsync(
        ns, {Item(ns, "k" + std::to_string(i), 64, bytes)}, {},
        [&puts, i](absl::StatusOr<std::vector<PutResult>> results) { puts[i].set_value(std::move(results)); });
  }
  for (auto& put : puts) {
    auto results = put.get_future().get();
    ASSERT_TRUE(results.ok()) << results.status();
    EXPECT_TRUE(results->front().stored);
  }
  std::promise<absl::StatusOr<std::vector<GetResult>>> get;
  client_->GetAsync(
      ns, {{.key = BlockKey::Opaque("k3"), .allocate = true}, {.key = BlockKey::Opaque("none"), .allocate = true}}, {},
      [&get](absl::StatusOr<std::vector<GetResult>> results) { get.set_value(std::move(results)); });
  auto got = get.get_future().get();
  ASSERT_TRUE(got.ok());
  EXPECT_TRUE((*got)[0].payload == bytes);
  EXPECT_EQ((*got)[1].status.code(), absl::StatusCode::kNotFound);

  std::promise<absl::StatusOr<std::vector<GetResult>>> refused;
  client_->GetAsync(
      ns, {{.key = BlockKey::Opaque("")}}, {},
      [&refused](absl::StatusOr<std::vector<GetResult>> results) { refused.set_value(std::move(results)); });
  EXPECT_EQ(refused.get_future().get()->front().status.code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(StreamsTest, DestroyingTheClientEndsWhatIsInFlight) {
  Connect();
  Namespace ns = Register(4, 64);
  std::vector<uint8_t> bytes = Bytes(ns, 64, 1);
  ASSERT_TRUE(PutOne(ns, "a", 64, bytes).stored);
  daemon_->faults.hang = true;
  std::promise<absl::Status> put, exists;
  client_->PutAsync(ns, {Item(ns, "b", 64, bytes)}, {}, [&put](absl::StatusOr<std::vector<PutResult>> results) {
    put.set_value(results.ok() ? results->front().status : results.status());
  });
  client_->ExistsAsync(ns, std::vector<BlockKey>{BlockKey::Opaque("a")}, {}, {},
                       [&exists](absl::StatusOr<std::vector<Located>> located) { exists.set_value(located.status()); });
  client_.reset();
  EXPECT_EQ(put.get_future().get().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(exists.get_future().get().code(), absl::StatusCode::kCancelled);
}

TEST_F(StreamsTest, ThreadsShareAClient) {
  Connect();
  Namespace ns = Register(4, 64);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i) {
        std::string key = std::to_string(t) + "-" + std::to_string(i);
        std::vector<uint8_t> bytes = Bytes(ns, 64, t * 100 + i);
        EXPECT_TRUE(PutOne(ns, key, 64, bytes).stored);
        EXPECT_TRUE(GetOne(ns, key).payload == bytes);
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST_F(StreamsTest, OptionsReachTheDaemon) {
  Connect();
  Namespace ns = Register(4, 64);
  std::vector<uint8_t> bytes(ns.KBytes(3) * 2);
  PutItem item{.key = BlockKey::Opaque("a"), .parent = BlockKey::Opaque("p"), .first_token = 64, .tokens = 3};
  item.parts.k = View(bytes);
  item.token_importance = {0.5f, 0, 2};
  item.layout = Layout{.k = {0, 10, 20, 30, 1}, .v = {5, 10, 20, 30, 2}, .payload_bytes = bytes.size()};
  PutOptions options;
  options.ttl_ms = 99;
  options.ack = AckLevel::kDurable;
  auto put = client_->Put(ns, std::vector<PutItem>{item}, options);
  ASSERT_TRUE(put.ok());
  ASSERT_TRUE(put->front().status.ok()) << put->front().status;
  const firn::v1::PutBlock& block = daemon_->last_block;
  EXPECT_EQ(block.parent().opaque(), "p");
  EXPECT_EQ(block.first_token(), 64u);
  EXPECT_EQ(block.ttl_ms(), 99u);
  EXPECT_EQ(block.ack(), firn::v1::ACK_LEVEL_DURABLE);
  EXPECT_EQ(block.payload_bytes(), bytes.size());
  EXPECT_EQ(block.layout().v().channel_stride(), 2u);
  EXPECT_THAT(block.token_importance(), testing::ElementsAre(0.5f, 0, 2));

  GetOptions get;
  get.representation = Representation::kFp32;
  get.least = {Precision::kInt4, Precision::kInt2};
  get.layer_first = 1;
  get.layer_count = 2;
  EXPECT_TRUE(GetOne(ns, "a", get).status.ok());
  EXPECT_EQ(daemon_->last_get.representation(), firn::v1::REPRESENTATION_FP32);
  EXPECT_EQ(daemon_->last_get.least().k(), firn::v1::PRECISION_CLASS_INT4);
  EXPECT_EQ(daemon_->last_get.most().v(), firn::v1::PRECISION_CLASS_EXACT);
  EXPECT_EQ(daemon_->last_get.layer_count(), 2u);
  get.chunk_bytes = 100;
  EXPECT_EQ(GetOne(ns, "a", get).status.code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace firnkv
