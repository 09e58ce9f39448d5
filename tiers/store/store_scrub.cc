// Scrubbing: every copy of the tiers below the GPUs is read and verified, at a pace, before somebody needs it.
//
// A pass goes over the index in the order of its slots, each copy once, and begins again when its interval is over.
// What it finds is healed as what a get finds is. Its reads are no client's: neither hits nor recency know of them.
#include <algorithm>
#include <utility>

#include "base/status.h"
#include "tiers/store/store_impl.h"

namespace firn {
namespace {

constexpr uint32_t kScrubInFlightMax = 4;
constexpr uint32_t kSlotsAStep = 1024;
constexpr double kBurstSeconds = 0.25;

}  // namespace

bool StoreImpl::Scrubbed(uint8_t tier) const {
  // Of a GPU's memory the hardware takes care, and its child answers for its own.
  return options_.tiers[tier].tier->recoder() == nullptr;
}

void StoreImpl::Scrub(uint64_t bytes_per_second, absl::AnyInvocable<void(absl::StatusOr<ScrubReport>)> done) {
  bool stopping = false;
  {
    std::lock_guard lock(mu_);
    stopping = stopping_;
    if (!stopping) {
      // From the front: what was passed already may have been damaged since.
      BeginPassLocked();
      scrub_.asked_bytes_per_second = bytes_per_second;
      scrub_.asked = true;
      scrub_.waiting.push_back(std::move(done));
    }
  }
  if (stopping) return done(Unavailable("the store is stopping"));
  ScrubOn();
}

void StoreImpl::BeginPassLocked() {
  scrub_.running = true;
  scrub_.next = 0;
  scrub_.pass = {};
  ++scrub_.number;
  scrub_.begun_ns = scrub_.refilled_ns = options_.clock->NowNs();
  scrub_.credit_bytes = 0;
}

double StoreImpl::ScrubRateLocked() const {
  uint64_t rate = scrub_.asked ? scrub_.asked_bytes_per_second : options_.scrub_bytes_per_second;
  return rate == 0 && scrub_.asked ? 1e18 : static_cast<double>(rate);
}

void StoreImpl::TakeScrubsLocked(std::vector<ScrubTarget>* out) {
  int64_t now_ns = options_.clock->NowNs();
  double rate = ScrubRateLocked();
  double earned = static_cast<double>(now_ns - scrub_.refilled_ns) / 1e9 * rate;
  scrub_.refilled_ns = now_ns;
  scrub_.credit_bytes = std::min(scrub_.credit_bytes + earned, std::max(rate * kBurstSeconds, 1.0));
  for (uint32_t slots = 0; slots < kSlotsAStep && scrub_.next < table_.end(); ++slots) {
    if (scrub_.credit_bytes <= 0 || scrub_.in_flight >= kScrubInFlightMax) return;
    EntryId id = scrub_.next++;
    const Entry& e = table_.entry(id);
    if (!(e.flags & Entry::kUsed)) continue;
    for (NodeId node = e.first_copy; node != kNoNode; node = table_.copy(node).next) {
      const HeldCopy& held = table_.copy(node);
      if (!Scrubbed(held.tier)) continue;
      out->push_back({id, IdentityOfLocked(e), held.tier, held.copy});
      // One larger than a burst is paid for afterwards.
      scrub_.credit_bytes -= static_cast<double>(held.copy->StoredBytes());
      ++scrub_.in_flight;
    }
  }
}

void StoreImpl::ScrubOn() {
  std::vector<ScrubTarget> targets;
  std::vector<absl::AnyInvocable<void(absl::StatusOr<ScrubReport>)>> done;
  ScrubReport report;
  absl::Status ended;
  {
    std::lock_guard lock(mu_);
    if (!scrub_.running) {
      bool due =
          scrub_.number == 0 || options_.clock->NowNs() - scrub_.begun_ns >= options_.scrub_interval_ms * 1'000'000;
      if (options_.scrub_bytes_per_second == 0 || !due || stopping_ || draining_) return;
      BeginPassLocked();
    }
    if (stopping_ || draining_) {
      ended = Unavailable("the store is stopping");
      scrub_.next = table_.end();
    }
    TakeScrubsLocked(&targets);
    if (scrub_.next >= table_.end() && scrub_.in_flight == 0) {
      scrub_.running = scrub_.asked = false;
      report = scrub_.pass;
      report.milliseconds = (options_.clock->NowNs() - scrub_.begun_ns) / 1'000'000;
      if (ended.ok()) ++scrub_.passes_ended;
      done = std::exchange(scrub_.waiting, {});
    }
  }
  for (auto& each : done) ended.ok() ? each(report) : each(ended);
  for (ScrubTarget& target : targets) {
    uint64_t bytes = target.copy->StoredBytes();
    HealCopy(target.entry, target.identity, target.tier, target.copy,
             [this, tier = target.tier, bytes](HealOutcome outcome) {
               CountScrub(tier, bytes, outcome);
               HealExecutor()->Post([this] { ScrubOn(); });
             });
  }
}

void StoreImpl::CountScrub(uint8_t tier, uint64_t bytes, HealOutcome outcome) {
  std::lock_guard lock(mu_);
  --scrub_.in_flight;
  if (outcome == HealOutcome::kBusy) return;  // Gone, or somebody is at it.
  ScrubReport& pass = scrub_.pass;
  ++pass.copies;
  pass.bytes += bytes;
  tiers_[tier].scrubbed_bytes += bytes;
  ++tiers_[tier].scrubbed_copies;
  switch (outcome) {
    case HealOutcome::kClean:
    case HealOutcome::kBusy:
      return;
    case HealOutcome::kMended:
      ++pass.mended;
      break;
    case HealOutcome::kDegraded:
      ++pass.degraded;
      break;
    case HealOutcome::kWithdrawn:
      ++pass.withdrawn;
      break;
    case HealOutcome::kUnread:
      ++pass.unread;
      return;
  }
  ++tiers_[tier].scrub_findings;
}

void StoreImpl::AddScrubStatsLocked(StoreStats* out) const {
  out->scrub_running = scrub_.running ? 1 : 0;
  out->scrub_passes = scrub_.passes_ended;
  uint64_t slots = table_.end();
  out->scrub_permille =
      scrub_.running && slots > 0 ? std::min<uint64_t>(1000, 1000 * uint64_t{scrub_.next} / slots) : 0;
}

}  // namespace firn
