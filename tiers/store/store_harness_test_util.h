// A store over fake tiers, with a clock and an executor run by hand: what every test of the store starts from.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "base/status.h"
#include "codecs/block_codec.h"
#include "codecs/numeric/float_formats.h"
#include "tiers/store/fake_tier_test_util.h"
#include "tiers/store/store.h"

namespace firn {

// IEEE half from a float that half can hold; for test values only.
inline uint16_t Half(float value) { return FloatToHalf(value); }
inline float FromHalf(uint16_t bits) { return HalfToFloat(bits); }

inline Digest TestKey(uint64_t number) { return Sha256(AsBytes("key " + std::to_string(number))); }

struct HarnessOptions {
  uint64_t hot_bytes = 1 << 20;
  uint64_t warm_bytes = 1 << 20;
  uint64_t cold_bytes = 1 << 20;
  bool late_commits = false;    // Completions of every tier, not only the persistent one, come through the executor.
  bool cold_persistent = true;  // Otherwise the whole chain is memory.
  bool hot_is_int8 = false;     // A chain whose first tier re-codes what is put.
  uint32_t moves_in_flight_max = 8;
  uint64_t artifacts_bytes_max = 1 << 20;
  bool promote_on_get = true;
  Executor* executor = nullptr;  // Null: the harness's own manual one.
  // Makes a tier instead of a fake one: of (name, capacity, persistent).
  std::function<std::unique_ptr<Tier>(const std::string&, uint64_t, bool)> make_tier = nullptr;
};

class StoreHarness {
 public:
  explicit StoreHarness(HarnessOptions options = {}) {
    executor_ = options.executor != nullptr ? options.executor : &manual;
    StoreOptions store_options;
    store_options.executor = executor_;
    store_options.clock = &clock;
    store_options.moves_in_flight_max = options.moves_in_flight_max;
    store_options.promote_on_get = options.promote_on_get;
    store_options.artifacts_bytes_max = options.artifacts_bytes_max;
    auto add = [&](const char* name, uint64_t bytes, PrecisionClass precision, PrecisionClass least, bool persistent) {
      TierConfig config;
      config.name = name;
      if (options.make_tier) {
        config.tier = options.make_tier(name, bytes, persistent);
      } else {
        auto tier = std::make_unique<FakeTier>(
            FakeTierOptions{.name = name,
                            .capacity_bytes = bytes,
                            .persistent = persistent,
                            .completions = persistent || options.late_commits ? executor_ : nullptr});
        tiers.push_back(tier.get());
        config.tier = std::move(tier);
      }
      config.precision = {precision, precision};
      config.least = {least, least};
      store_options.tiers.push_back(std::move(config));
    };
    add("hot", options.hot_bytes, options.hot_is_int8 ? PrecisionClass::k8Bit : PrecisionClass::kExact,
        PrecisionClass::kNone, false);
    add("warm", options.warm_bytes, PrecisionClass::k8Bit, PrecisionClass::k4Bit, false);
    add("cold", options.cold_bytes, PrecisionClass::k4Bit, PrecisionClass::k2Bit, options.cold_persistent);
    auto created = Store::Create(std::move(store_options));
    EXPECT_TRUE(created.ok()) << Message(created.status());
    store = *std::move(created);
    ns = Register(Facts());
  }

  static NamespaceFacts Facts() {
    NamespaceFacts facts;
    facts.tenant = "tenant";
    facts.model_id = "model";
    facts.layer_last = 2;
    facts.kv_heads = 2;
    facts.k_width = facts.v_width = 64;
    facts.block_tokens = 16;
    return facts;
  }

  NamespaceId Register(const NamespaceFacts& facts, PrecisionPlan plan = {}) {
    std::optional<absl::StatusOr<NamespaceId>> id;
    store->RegisterNamespace(facts, plan, [&](absl::StatusOr<NamespaceId> got) { id = std::move(got); });
    Settle();
    EXPECT_TRUE(id.has_value() && id->ok()) << (id.has_value() ? Message(id->status()) : "no answer");
    return **id;
  }

  void Settle() {
    if (executor_ == &manual) manual.RunAll();
  }

  PutSpec Spec(uint64_t key, uint32_t tokens = 16) const {
    PutSpec spec;
    spec.address = {ns, TestKey(key), 0};
    spec.tokens = tokens;
    return spec;
  }

  // Smooth values with noise that depend on the key alone.
  static std::vector<uint16_t> Values(uint64_t key, size_t count) {
    std::vector<uint16_t> out(count);
    uint64_t state = key * 0x9E3779B97F4A7C15ull + 1;
    for (size_t i = 0; i < count; ++i) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      float noise = static_cast<float>(static_cast<int32_t>(state >> 32)) / 2147483648.0f;
      out[i] = Half(std::sin(static_cast<float>(i) * 0.01f) + noise);
    }
    return out;
  }

  static void FillPut(InFlightPut& put, uint64_t key) {
    for (Part part : kParts) {
      uint32_t run = RunIndex(RunKind::kWhole, part);
      auto values = Values(key * 2 + static_cast<uint64_t>(part), put.layout().run_bytes[run] / 2);
      CopyScattered(RunBytes(ByteSpan(reinterpret_cast<const uint8_t*>(values.data()), values.size() * 2)),
                    put.runs()[run]);
    }
  }

  absl::StatusOr<PutResult> Put(const PutSpec& spec, uint64_t key) {
    auto put = store->BeginPut(spec);
    if (!put.ok()) return put.status();
    FillPut(**put, key);
    std::optional<absl::StatusOr<PutResult>> result;
    store->CommitPut(*std::move(put), [&](absl::StatusOr<PutResult> got) { result = std::move(got); });
    Settle();
    if (!result.has_value()) return absl::InternalError("the put did not complete");
    return *std::move(result);
  }
  absl::StatusOr<PutResult> Put(uint64_t key, uint32_t tokens = 16) { return Put(Spec(key, tokens), key); }
  // Waits for room, as the daemon does.
  absl::StatusOr<PutResult> PutWhenRoom(const PutSpec& spec, uint64_t key) {
    std::optional<absl::StatusOr<PutResult>> result;
    store->BeginPutWhenRoom(spec, clock.NowNs() + 1'000'000'000, [&](absl::StatusOr<std::unique_ptr<InFlightPut>> put) {
      if (!put.ok()) {
        result = put.status();
        return;
      }
      FillPut(**put, key);
      store->CommitPut(*std::move(put), [&](absl::StatusOr<PutResult> got) { result = std::move(got); });
    });
    for (int i = 0; i < 100 && !result.has_value(); ++i) {
      Settle();
      clock.AdvanceMs(50);
      store->Tick();
    }
    if (!result.has_value()) return absl::InternalError("the put did not complete");
    return *std::move(result);
  }

  absl::StatusOr<GetResult> Get(uint64_t key, ClassPair least = {},
                                ClassPair most = {PrecisionClass::kExact, PrecisionClass::kExact}) {
    GetSpec spec;
    spec.address = {ns, TestKey(key), 0};
    spec.least = least;
    spec.most = most;
    std::optional<absl::StatusOr<GetResult>> result;
    store->Get(spec, [&](absl::StatusOr<GetResult> got) { result = std::move(got); });
    Settle();
    if (!result.has_value()) return absl::InternalError("the get did not complete");
    return *std::move(result);
  }

  // ||x - x^|| / ||x|| over K and V against what Put stored under `key`.
  double RelativeError(const GetResult& got, uint64_t key) const {
    double error = 0, norm = 0;
    const BlockShape& shape = got.block.header->shape;
    std::vector<uint8_t> k(shape.part(Part::kK).values() * 2), v(shape.part(Part::kV).values() * 2);
    absl::Status decoded = Decode(got.block, store->artifacts(), {.out = DType::kFp16, .use = got.block.present}, k, v);
    EXPECT_TRUE(decoded.ok()) << Message(decoded);
    for (Part part : kParts) {
      const auto& bytes = part == Part::kK ? k : v;
      auto expected = Values(key * 2 + static_cast<uint64_t>(part), bytes.size() / 2);
      for (size_t i = 0; i < expected.size(); ++i) {
        double x = FromHalf(expected[i]), y = FromHalf(LoadLe<uint16_t>(&bytes[i * 2]));
        error += (x - y) * (x - y);
        norm += x * x;
      }
    }
    return std::sqrt(error / norm);
  }

  absl::StatusOr<ClassPair> Demote(uint64_t key, uint8_t tier) {
    return AwaitMove([&](auto done) { store->Demote(ns, TestKey(key), tier, std::move(done)); });
  }
  absl::StatusOr<ClassPair> Promote(uint64_t key, uint8_t tier) {
    return AwaitMove([&](auto done) { store->Promote(ns, TestKey(key), tier, std::move(done)); });
  }
  absl::StatusOr<ClassPair> Degrade(uint64_t key, uint8_t tier, PrecisionClass to) {
    return AwaitMove([&](auto done) { store->Degrade(ns, TestKey(key), tier, {to, to}, std::move(done)); });
  }

  void ExpectConsistent() const {
    AuditReport report = store->Audit();
    for (const std::string& finding : report.findings) ADD_FAILURE() << finding;
  }

  ManualExecutor manual;
  FakeClock clock;
  std::vector<FakeTier*> tiers;  // Owned by the store; empty where the tiers are real.
  std::unique_ptr<Store> store;
  NamespaceId ns = 0;

 private:
  using MoveResult = std::optional<absl::StatusOr<ClassPair>>;
  // Lets time pass where the move waits for room. The answer has a place of its own: it may come after this returned.
  template <typename Start>
  absl::StatusOr<ClassPair> AwaitMove(Start start) {
    auto result = std::make_shared<MoveResult>();
    start([result](absl::StatusOr<ClassPair> got) { *result = std::move(got); });
    Settle();
    for (int i = 0; i < 250 && !result->has_value(); ++i) {
      clock.AdvanceMs(50);
      store->Tick();
      Settle();
    }
    return result->has_value() ? **result : absl::InternalError("the move did not complete");
  }

  Executor* executor_ = nullptr;
};

// K and V of 2 layers, 2 heads, 16 tokens, 64 channels in FP16.
inline constexpr uint64_t kTestBlockBytes = 2ull * 2 * 2 * 16 * 64 * 2;

}  // namespace firn
