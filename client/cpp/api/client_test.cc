// Everything but payloads: addresses, keys, short calls, sessions, repeats, deadlines.

#include <future>
#include <set>

#include "base/block_key.h"
#include "client/cpp/testing/fixture.h"
#include "firnkv/session.h"

namespace firnkv {
namespace {

using ::testing::HasSubstr;

using ClientTest = FakeDaemonTest;

TEST(Address, IsCheckedAtOnce) {
  for (const char* good : {"unix:/tmp/x", "/tmp/x", "localhost:1234", "127.0.0.1:1", "[::1]:80"}) {
    EXPECT_TRUE(Client::Create({.address = good}).ok()) << good;
  }
  for (const std::string& bad :
       {std::string("localhost"), std::string("host:0"), std::string("host:70000"), std::string(":80"),
        std::string("host:8x"), "/" + std::string(200, 'x'), std::string("unix:")}) {
    EXPECT_EQ(Client::Create({.address = bad}).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_EQ(Client::Create({.address = "/x", .attempts_max = 0}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Client::Create({.address = "/x", .deadline_ms = -1}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Address, ComesFromTheEnvironment) {
  setenv("FIRN_SOCKET", "/some/where.sock", 1);
  EXPECT_EQ((*Client::Create())->address(), "unix:/some/where.sock");
  unsetenv("FIRN_SOCKET");
  EXPECT_EQ((*Client::Create())->address(), "unix:/run/firnkv/firnd.sock");
}

TEST(Keys, C43_agree_with_the_daemons) {
  std::vector<uint32_t> tokens(40);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = i % 3 == 0 ? 0x80000000u + i : i;
  std::vector<std::string_view> extras = {"adapter", ""};
  firn::Digest model = firn::Sha256(firn::AsBytes("model"));
  auto expected = firn::ChainedBlockKeys(model.span(), tokens, 16, extras, true);
  auto keys = ChainedKeys({.model_fingerprint = model.bytes,
                           .tokens = tokens,
                           .block_tokens = 16,
                           .extras = extras,
                           .parent = {},
                           .with_tail = true});
  ASSERT_EQ(keys.size(), 3u);
  for (size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(keys[i].bytes, expected[i].bytes);
  // A chain continues after its parent.
  auto rest = ChainedKeys({.model_fingerprint = model.bytes,
                           .tokens = std::span(tokens).subspan(16),
                           .block_tokens = 16,
                           .extras = extras,
                           .parent = keys[0],
                           .with_tail = true});
  ASSERT_EQ(rest.size(), 2u);
  EXPECT_EQ(rest[1], keys[2]);
  EXPECT_EQ(Digest::FromHex(keys[0].Hex()), keys[0]);
}

TEST(Keys, C44_everything_that_defines_the_data_is_in_them) {
  std::vector<uint32_t> tokens(16, 7);
  std::set<std::string> seen;
  auto add = [&](const std::string& model, std::vector<std::string_view> extras) {
    firn::Digest fingerprint = firn::Sha256(firn::AsBytes(model));
    auto keys = ChainedKeys({.model_fingerprint = fingerprint.bytes,
                             .tokens = tokens,
                             .block_tokens = 16,
                             .extras = extras,
                             .parent = {},
                             .with_tail = false});
    EXPECT_TRUE(seen.insert(keys[0].Hex()).second);
  };
  add("m", {});
  add("n", {});
  add("m", {"X", ""});
  add("m", {"", "X"});
  add("m", {"X"});
  add("m", {"ab", "c"});
  add("m", {"a", "bc"});
  EXPECT_TRUE(seen.insert(BlockKey::Opaque("ab").ToDigest()->Hex()).second);
}

TEST_F(ClientTest, ShortCallsCarryTheirFacts) {
  Client& client = Connect();
  Namespace ns = Register(4, 16);
  EXPECT_EQ(ns.facts.layers(), 4u);
  EXPECT_EQ(ns.model_fingerprint, *Digest::FromBytes(std::string(32, 'm')));

  std::vector<uint32_t> tokens = {1, 2, 0xFFFFFFFF};
  std::vector<std::string_view> extras = {"x"};
  auto prefix = client.LookupTokens(ns, {.tokens = tokens, .extras = extras, .parent = {}, .with_tail = true},
                                    {Precision::kInt4, Precision::kInt4});
  ASSERT_TRUE(prefix.ok()) << prefix.status();
  EXPECT_EQ(prefix->blocks, 1u);
  EXPECT_EQ(prefix->keys.size(), 1u);
  EXPECT_EQ(daemon_->last_lookup.tokens().tokens(2), 0xFFFFFFFF);
  EXPECT_EQ(daemon_->last_lookup.tokens().extras(0), "x");
  EXPECT_EQ(daemon_->last_lookup.least().k(), firn::v1::PRECISION_CLASS_INT4);

  auto stats = client.GetStats();
  ASSERT_TRUE(stats.ok());
  EXPECT_EQ(stats->tiers[0].used_bytes, 7u);
  EXPECT_EQ(stats->tiers[0].counters.at("hits"), 3u);

  std::promise<absl::StatusOr<Prefix>> later;
  client.LookupAsync(ns, std::vector<BlockKey>{Digest{}}, {}, {},
                     [&later](absl::StatusOr<Prefix> found) { later.set_value(std::move(found)); });
  EXPECT_TRUE(later.get_future().get().ok());
  EXPECT_EQ(daemon_->last_lookup.keys().keys_size(), 1);
  EXPECT_EQ(client.Clear({}).status().code(), absl::StatusCode::kUnimplemented);  // No Admin service on this listener.
}

TEST_F(ClientTest, SafeCallsAreRepeatedAndOthersAreNot) {
  Client& client = Connect();
  Namespace ns = Register(1, 4);
  std::vector<BlockKey> keys = {BlockKey::Opaque("a")};
  daemon_->faults.refuse_calls = 2;
  EXPECT_TRUE(client.Exists(ns, keys).ok());
  daemon_->faults.refuse_calls = 1;
  EXPECT_EQ(client.Delete(ns, keys).status().code(), absl::StatusCode::kUnavailable);
  daemon_->faults.refuse_calls = 100;
  uint64_t before = daemon_->calls;
  EXPECT_EQ(client.Exists(ns, keys).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_LE(daemon_->calls - before, 4u);
}

TEST_F(ClientTest, EveryCallHasADeadline) {
  options_.deadline_ms = 150;
  Client& client = Connect();
  Namespace ns = Register(1, 4);
  daemon_->faults.hang = true;
  EXPECT_EQ(client.Exists(ns, std::vector<BlockKey>{Digest{}}).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(client.OpenSession("test").status().code(), absl::StatusCode::kDeadlineExceeded);
  daemon_->faults.hang = false;
}

TEST_F(ClientTest, SaysWhereItLookedForTheDaemon) {
  Client& client = ConnectOnly();
  absl::Status status = client.GetStats().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(firn::Message(status), HasSubstr(address_));
  EXPECT_EQ(client.WaitUntilReady(150).code(), absl::StatusCode::kDeadlineExceeded);
  daemon_->Start(address_);
  EXPECT_TRUE(client.WaitUntilReady(5000).ok());
}

TEST_F(ClientTest, ARestartedDaemonIsFound) {
  Client& client = Connect();
  Namespace ns = Register(1, 4);
  daemon_->Stop();
  daemon_->Start(address_);
  EXPECT_TRUE(client.WaitUntilReady(5000).ok());
  EXPECT_TRUE(client.Exists(ns, std::vector<BlockKey>{Digest{}}).ok());
}

TEST_F(ClientTest, SessionsEndWithTheirObject) {
  Client& client = Connect();
  Namespace ns = Register(1, 4);
  auto session = client.OpenSession("test");
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_TRUE((*session)->alive());
  EXPECT_EQ((*session)->id().size(), 16u);
  EXPECT_EQ(daemon_->open_sessions, 1u);
  auto pinned = client.Pin(ns, std::vector<BlockKey>{Digest{}}, **session);
  ASSERT_TRUE(pinned.ok()) << pinned.status();
  session->reset();
  for (int i = 0; i < 500 && daemon_->open_sessions > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(daemon_->open_sessions, 0u);
}

TEST_F(ClientTest, SessionsNoticeTheDaemonsEnd) {
  Client& client = Connect();
  auto session = client.OpenSession("test");
  ASSERT_TRUE(session.ok()) << session.status();
  daemon_->Stop();
  for (int i = 0; i < 500 && (*session)->alive(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE((*session)->alive());
}

}  // namespace
}  // namespace firnkv
