#include "client/cli/chaos/load.h"

#include <chrono>
#include <thread>
#include <utility>

#include "base/status.h"

namespace firn::cli {
namespace {

constexpr size_t kFindingsTold = 20;
constexpr int64_t kDeadlineMs = 20'000;

// Of ChaosModels().
size_t PlaceOf(uint64_t number) { return number % 40 == 0 ? 2 : number % 4 == 0 ? 1 : 0; }

const KnownModel& ModelOf(uint64_t number) { return ChaosModels()[PlaceOf(number)]; }

bool DaemonIsAway(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || absl::IsCancelled(status);
}

}  // namespace

void Findings::Add(std::string finding) {
  std::lock_guard lock(mu_);
  ++count_;
  if (texts_.size() < kFindingsTold) texts_.push_back(std::move(finding));
}

uint64_t Findings::count() const {
  std::lock_guard lock(mu_);
  return count_;
}

std::vector<std::string> Findings::texts() const {
  std::lock_guard lock(mu_);
  return texts_;
}

void Gate::Enter() {
  std::unique_lock lock(mu_);
  changed_.wait(lock, [this] { return !paused_; });
  ++inside_;
}

void Gate::Leave() {
  std::lock_guard lock(mu_);
  --inside_;
  changed_.notify_all();
}

void Gate::Pause() {
  std::unique_lock lock(mu_);
  paused_ = true;
  changed_.wait(lock, [this] { return inside_ == 0; });
}

void Gate::Resume() {
  std::lock_guard lock(mu_);
  paused_ = false;
  changed_.notify_all();
}

BlockClient::BlockClient(std::unique_ptr<firnkv::Client> client, LoadState* state)
    : client_(std::move(client)), state_(state), spaces_(ChaosModels().size()) {}

const firnkv::Namespace* BlockClient::SpaceOf(uint64_t number) {
  auto& space = spaces_[PlaceOf(number)];
  if (!space.has_value()) {
    auto registered = client_->RegisterNamespace(ModelOf(number).Facts());
    if (!registered.ok()) {
      Answered("registering the namespace of", number, registered.status());
      return nullptr;
    }
    space = *std::move(registered);
  }
  return &*space;
}

void BlockClient::Answered(const char* what, uint64_t number, const absl::Status& status) {
  if (status.ok()) return;
  Tally& tally = state_->tally;
  if (absl::IsResourceExhausted(status)) {
    ++tally.full;
  } else if (DaemonIsAway(status)) {
    ++tally.unanswered;
    // It is starting: nothing is gained by asking at once again.
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  } else if (absl::IsNotFound(status) && status.message().find("namespace") != std::string_view::npos) {
    // Damage may take a namespace along; its blocks are misses until somebody registers it.
    spaces_[PlaceOf(number)].reset();
    ++tally.misses;
  } else if (const Moment now = state_->ledger.Now(); absl::IsDataLoss(status) && now.damages + now.losses > 0) {
    // A durable put whose copy went or was damaged before it was durable: refused, so that nothing was promised.
    ++tally.refused;
  } else if (!absl::IsNotFound(status) && !absl::IsAborted(status)) {
    ++tally.failed;
    state_->findings.Add(fmt::format("{} block {}: {}", what, number, Message(status)));
  }
}

void BlockClient::Put(uint64_t number, bool durable) {
  const firnkv::Namespace* ns = SpaceOf(number);
  if (ns == nullptr) return;
  firnkv::PutOptions options{.deadline_ms = kDeadlineMs};
  if (durable) options.ack = firnkv::AckLevel::kDurable;
  Moment began = state_->ledger.Now();
  state_->ledger.PutBegins(number);
  firnkv::PutResult put = PutKnown(*client_, *ns, ModelOf(number), number, options);
  if (!put.status.ok()) return Answered("putting", number, put.status);
  ++state_->tally.puts;
  if (durable) ++state_->tally.durable_puts;
  auto acknowledged = durable ? put.durable_class.Min() : firnkv::Precision::kNone;
  state_->ledger.PutDone(number, began, put.stored, acknowledged);
}

void BlockClient::Get(uint64_t number, bool owned) {
  const firnkv::Namespace* ns = SpaceOf(number);
  if (ns == nullptr) return;
  const KnownModel& model = ModelOf(number);
  std::vector<uint16_t> values(2 * model.part_values());
  firnkv::GetResult got = GetKnownValues(*client_, *ns, model, number, values, {.deadline_ms = kDeadlineMs});
  ++state_->tally.gets;
  bool wrong = false;
  if (got.status.ok()) {
    ++state_->tally.hits;
    const std::vector<uint16_t> expected = KnownValues(model, number);
    const firnkv::Precision served = got.served.Min();
    wrong = !(RelativeError(expected, values) <= ErrorLimit(served)) ||
            !(LargestDifference(expected, values) <= DifferenceLimit(served));
  } else if (absl::IsNotFound(got.status)) {
    ++state_->tally.misses;
  }
  Answered("getting", number, got.status);
  Verdict verdict = wrong ? Verdict::kWrongBytes : Verdict::kFine;
  if (owned) {
    verdict = state_->ledger.Judge(number, got.status, got.served.Min(), wrong);
    if (absl::IsNotFound(got.status)) state_->ledger.Missed(number);
  }
  if (verdict == Verdict::kFine) return;
  Tally& tally = state_->tally;
  if (verdict == Verdict::kLostToDamage) {
    ++tally.lost_to_damage;
  } else if (verdict == Verdict::kWrongBytes) {
    ++tally.wrong;
    state_->findings.Add(fmt::format("block {}: wrong bytes, served as {} by tier {}: error {}, largest difference {}",
                                     number, firnkv::PrecisionName(got.served.Min()), got.tier,
                                     RelativeError(KnownValues(model, number), values),
                                     LargestDifference(KnownValues(model, number), values)));
  } else if (verdict == Verdict::kLost) {
    ++tally.lost;
    state_->findings.Add(fmt::format("block {} was acknowledged as durable and {}", number,
                                     got.status.ok()
                                         ? fmt::format("is coarser: {}", firnkv::PrecisionName(got.served.Min()))
                                         : "is lost: " + Message(got.status)));
  } else {
    ++tally.came_back;
    state_->findings.Add(fmt::format("block {} was deleted, and is back", number));
  }
}

void BlockClient::Delete(uint64_t number) {
  const firnkv::Namespace* ns = SpaceOf(number);
  if (ns == nullptr) return;
  const firnkv::BlockKey key = KnownKey(number);
  Moment began = state_->ledger.Now();
  state_->ledger.DeleteBegins(number);
  auto deleted = client_->Delete(*ns, std::span(&key, 1));
  absl::Status status = deleted.ok() ? deleted->front() : deleted.status();
  if (!status.ok()) return Answered("deleting", number, status);
  ++state_->tally.deletes;
  state_->ledger.DeleteDone(number, began);
}

void BlockClient::Lookup(uint64_t number) {
  const firnkv::Namespace* ns = SpaceOf(number);
  if (ns == nullptr) return;
  const firnkv::BlockKey key = KnownKey(number);
  ++state_->tally.lookups;
  Answered("looking up", number, client_->Lookup(*ns, std::span(&key, 1)).status());
}

void BlockClient::Flush(uint64_t first, uint64_t count) {
  Moment began = state_->ledger.Now();
  for (uint64_t model = 0; model < ChaosModels().size(); ++model) {
    const uint64_t any_number = model == 2 ? 0 : model == 1 ? 4 : 1;
    const firnkv::Namespace* ns = SpaceOf(any_number);
    if (ns == nullptr) return;
    absl::Status status = client_->Flush(*ns, {.deadline_ms = kDeadlineMs});
    if (!status.ok()) return Answered("flushing the namespace of", any_number, status);
  }
  ++state_->tally.flushes;
  state_->ledger.FlushDone(first, count, began);
}

void RunClient(BlockClient client, LoadState* state, uint32_t index, uint32_t clients, uint64_t seed) {
  std::mt19937_64 random(seed);
  const uint64_t first = index * kBlocksAClient;
  while (!state->stop) {
    state->gate.Enter();
    const uint64_t own = first + random() % kBlocksAClient;
    const uint64_t choice = random() % 32;
    if (choice < 8) {
      client.Put(own, random() % 2 == 0);
    } else if (choice < 10) {
      client.Delete(own);
    } else if (choice < 13) {
      client.Lookup(own);
    } else if (choice == 13) {
      if (random() % 4 == 0) client.Flush(first, kBlocksAClient);
    } else if (choice < 18) {
      client.Get(random() % (clients * kBlocksAClient), false);
    } else {
      client.Get(own, true);
    }
    ++state->tally.operations;
    state->gate.Leave();
  }
}

}  // namespace firn::cli
