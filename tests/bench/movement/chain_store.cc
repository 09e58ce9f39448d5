#include "tests/bench/movement/chain_store.h"

#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <future>
#include <mutex>

#include "base/status.h"
#include "base/units.h"
#include "codecs/block_codec.h"
#include "tests/bench/support/values.h"

namespace firn::bench {
namespace {

TierSettings TierOf(const char* name, Medium medium, uint64_t capacity, PrecisionClass precision, PrecisionClass least,
                    const std::string& path) {
  TierSettings tier;
  tier.name = name;
  tier.medium = medium;
  tier.capacity_bytes = capacity;
  tier.precision = {precision, precision};
  tier.least = {least, least};
  tier.path = path;
  return tier;
}

// Waits for one completion.
template <typename T>
class Awaited {
 public:
  auto done() {
    return [this](T value) { promise_.set_value(std::move(value)); };
  }
  T Wait() { return promise_.get_future().get(); }

 private:
  std::promise<T> promise_;
};

}  // namespace

ChainStore::ChainStore() : far_memory_(access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "") {}

absl::StatusOr<std::unique_ptr<ChainStore>> ChainStore::Open(const std::string& folder, uint32_t block_tokens) {
  using enum PrecisionClass;
  std::unique_ptr<ChainStore> chain(new ChainStore());
  chain->block_tokens_ = block_tokens;
  chain->config_.tiers = {TierOf("hot", Medium::kDram, 768 * kMiB, kExact, kExact, ""),
                          TierOf("warm", Medium::kDram, 512 * kMiB, k8Bit, k4Bit, ""),
                          TierOf("cxl", Medium::kCxl, 384 * kMiB, k4Bit, k4Bit, chain->far_memory_.path() + "/cxl"),
                          TierOf("cold", Medium::kNvme, kGiB, k4Bit, k2Bit, folder + "/cold")};
  for (TierSettings& tier : chain->config_.tiers) tier.high_watermark = 0.98, tier.low_watermark = 0.95;
  chain->config_.store.promote_on_get = false;  // What is fetched stays where it is measured.
  const unsigned threads = std::max(2u, std::thread::hardware_concurrency());
  chain->executor_ = std::make_unique<AsioExecutor>(threads);
  chain->demotion_executor_ = std::make_unique<AsioExecutor>(threads, chain->config_.store.demotion_nice);
  chain->startup_ = std::make_unique<Startup>(Startup::Options{.config = &chain->config_,
                                                               .executor = chain->executor_.get(),
                                                               .demotion_executor = chain->demotion_executor_.get(),
                                                               .clock = Clock::Real(),
                                                               .progress = [](const std::string&) {}});
  FIRN_ASSIGN_OR_RETURN(chain->store_, chain->startup_->Run());
  FIRN_RETURN_IF_ERROR(chain->startup_->PopulateRest());
  chain->ticker_ = std::thread([raw = chain.get()] {
    while (!raw->stop_) {
      raw->store_->Tick();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  });
  NamespaceFacts facts;
  facts.tenant = "bench";
  facts.model_id = "movement";
  facts.layer_last = kLayers;
  facts.kv_heads = kHeads;
  facts.k_width = facts.v_width = kWidth;
  facts.block_tokens = block_tokens;
  Awaited<absl::StatusOr<NamespaceId>> registered;
  chain->store_->RegisterNamespace(facts, PrecisionPlan{}, registered.done());
  FIRN_ASSIGN_OR_RETURN(chain->ns_, registered.Wait());
  chain->values_ = RandomValues(chain->block_bytes());
  return chain;
}

ChainStore::~ChainStore() {
  stop_ = true;
  if (ticker_.joinable()) ticker_.join();
  if (store_ == nullptr) return;
  Awaited<absl::Status> down;
  store_->Shutdown(/*budget_ms=*/0, down.done());
  static_cast<void>(down.Wait());
  demotion_executor_->Drain();
  executor_->Drain();
  store_.reset();
  demotion_executor_.reset();
  executor_.reset();
}

Digest ChainStore::Key(uint64_t number) { return Sha256(AsBytes("block " + std::to_string(number))); }

absl::Status ChainStore::Put(uint64_t number) {
  PutSpec spec;
  spec.address = {ns_, Key(number), 0};
  spec.tokens = block_tokens_;
  Awaited<absl::StatusOr<std::unique_ptr<InFlightPut>>> begun;
  constexpr int64_t kPatienceNs = 30'000'000'000;
  store_->BeginPutWhenRoom(spec, Clock::Real()->NowNs() + kPatienceNs, begun.done());
  FIRN_ASSIGN_OR_RETURN(std::unique_ptr<InFlightPut> put, begun.Wait());
  const uint8_t* source = values_.data();
  for (Part part : kParts) {
    for (std::span<uint8_t> span : put->runs()[RunIndex(RunKind::kWhole, part)].spans()) {
      std::memcpy(span.data(), source, span.size());
      source += span.size();
    }
  }
  Awaited<absl::StatusOr<PutResult>> committed;
  store_->CommitPut(std::move(put), committed.done());
  FIRN_ASSIGN_OR_RETURN(PutResult result, committed.Wait());
  return result.stored ? absl::OkStatus() : InternalError("block {} was there already", number);
}

absl::StatusOr<ClassPair> ChainStore::GetDecoded(uint64_t number) {
  GetSpec spec;
  spec.address = {ns_, Key(number), 0};
  Awaited<absl::StatusOr<GetResult>> got;
  store_->Get(spec, got.done());
  FIRN_ASSIGN_OR_RETURN(GetResult result, got.Wait());
  thread_local std::vector<uint8_t> target;
  target.resize(block_bytes());
  std::span<uint8_t> all = target;
  DecodeRequest request;
  request.use = result.block.present;
  FIRN_RETURN_IF_ERROR(
      Decode(result.block, store_->artifacts(), request, all.first(all.size() / 2), all.subspan(all.size() / 2)));
  return result.served;
}

absl::Status ChainStore::MoveAll(uint64_t first, uint64_t count,
                                 const std::function<void(const Digest&, MoveDone)>& move) {
  // Refilled in halves, so that whoever asks does not run between any two blocks.
  constexpr uint64_t kInFlight = 32;
  std::mutex mu;
  std::condition_variable changed;
  uint64_t open = 0;
  absl::Status status;
  for (uint64_t i = 0; i < count; ++i) {
    {
      std::unique_lock lock(mu);
      if (open == kInFlight) changed.wait(lock, [&] { return open <= kInFlight / 2; });
      ++open;
    }
    move(Key(first + i), [&](absl::StatusOr<ClassPair> now) {
      std::lock_guard lock(mu);
      status.Update(now.status());
      --open;
      if (open == kInFlight / 2 || open == 0) changed.notify_all();
    });
  }
  std::unique_lock lock(mu);
  changed.wait(lock, [&] { return open == 0; });
  return status;
}

absl::Status ChainStore::Demote(uint64_t first, uint64_t count, uint8_t tier) {
  return MoveAll(first, count,
                 [&](const Digest& key, MoveDone done) { store_->Demote(ns_, key, tier, std::move(done)); });
}

absl::Status ChainStore::Degrade(uint64_t first, uint64_t count, uint8_t tier, PrecisionClass target) {
  return MoveAll(first, count, [&](const Digest& key, MoveDone done) {
    store_->Degrade(ns_, key, tier, {target, target}, std::move(done));
  });
}

absl::Status ChainStore::Flush() {
  Awaited<absl::Status> flushed;
  store_->Flush(ns_, flushed.done());
  return flushed.Wait();
}

void ChainStore::Clear() { store_->Clear({}); }

absl::StatusOr<uint64_t> ChainStore::BytesIn(uint64_t first, uint64_t count, uint8_t tier) {
  uint64_t bytes = 0;
  for (uint64_t i = 0; i < count; ++i) {
    FIRN_ASSIGN_OR_RETURN(std::vector<BlockInfo> shards, store_->Describe(ns_, Key(first + i)));
    for (const BlockInfo& shard : shards) {
      for (const auto& copy : shard.copies) bytes += copy.tier == tier ? copy.bytes : 0;
    }
  }
  return bytes;
}

}  // namespace firn::bench
