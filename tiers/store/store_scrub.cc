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
constexpr size_t kScrubWaitersMax = 1024;
constexpr double kUnlimited = 1e18;  // Bytes a second.

// 0 is as fast as it goes.
uint64_t FasterOf(uint64_t a, uint64_t b) { return a == 0 || b == 0 ? 0 : std::max(a, b); }

}  // namespace

bool StoreImpl::Scrubbed(uint8_t tier) const {
  // Of a GPU's memory the hardware takes care, and its child answers for its own.
  return options_.tiers[tier].tier->recoder() == nullptr;
}

void StoreImpl::Scrub(uint64_t bytes_per_second, ScrubDone done) {
  absl::Status refused;
  {
    std::lock_guard lock(mu_);
    if (stopping_) {
      refused = Unavailable("the store is stopping");
    } else if (scrub_.waiting.size() + scrub_.for_next.size() >= kScrubWaitersMax) {
      refused = ResourceExhausted("{} calls wait for the end of scrubbing already", kScrubWaitersMax);
    } else if (scrub_.running && scrub_.asked) {
      // A pass that somebody waits for ends, however many ask meanwhile; at the pace of the most impatient.
      scrub_.asked_bytes_per_second = FasterOf(scrub_.asked_bytes_per_second, bytes_per_second);
      scrub_.next_bytes_per_second =
          scrub_.for_next.empty() ? bytes_per_second : FasterOf(scrub_.next_bytes_per_second, bytes_per_second);
      scrub_.for_next.push_back(std::move(done));
    } else {
      // From the front: what was passed already may have been damaged since.
      BeginPassLocked();
      scrub_.asked_bytes_per_second = bytes_per_second;
      scrub_.asked = true;
      scrub_.waiting.push_back(std::move(done));
    }
  }
  if (!refused.ok()) return done(refused);
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

std::vector<StoreImpl::ScrubDone> StoreImpl::EndPassLocked(const absl::Status& ended) {
  std::vector<ScrubDone> done = std::exchange(scrub_.waiting, {});
  scrub_.running = scrub_.asked = false;
  if (!ended.ok()) {
    for (ScrubDone& each : scrub_.for_next) done.push_back(std::move(each));
    scrub_.for_next.clear();
    return done;
  }
  ++scrub_.passes_ended;
  if (!scrub_.for_next.empty()) {
    BeginPassLocked();
    scrub_.asked = true;
    scrub_.asked_bytes_per_second = scrub_.next_bytes_per_second;
    scrub_.waiting = std::exchange(scrub_.for_next, {});
  }
  return done;
}

double StoreImpl::ScrubRateLocked() const {
  uint64_t rate = scrub_.asked ? scrub_.asked_bytes_per_second : options_.scrub_bytes_per_second;
  return rate == 0 && scrub_.asked ? kUnlimited : static_cast<double>(rate);
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
  std::vector<ScrubDone> done;
  ScrubReport report;
  uint64_t pass = 0;
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
      report = scrub_.pass;
      report.milliseconds = (options_.clock->NowNs() - scrub_.begun_ns) / 1'000'000;
      done = EndPassLocked(ended);
    }
    pass = scrub_.number;
  }
  for (auto& each : done) ended.ok() ? each(report) : each(ended);
  for (ScrubTarget& target : targets) {
    uint64_t bytes = target.copy->StoredBytes();
    HealCopy(target.entry, target.identity, target.tier, target.copy,
             [this, pass, tier = target.tier, bytes](HealOutcome outcome) {
               // Counted where it goes on: as long as it counts as in flight the store must stay.
               HealExecutor()->Post([this, pass, tier, bytes, outcome] {
                 CountScrub(pass, tier, bytes, outcome);
                 ScrubOn();
               });
             });
  }
}

void StoreImpl::CountScrub(uint64_t number, uint8_t tier, uint64_t bytes, HealOutcome outcome) {
  std::lock_guard lock(mu_);
  --scrub_.in_flight;
  if (outcome == HealOutcome::kBusy) return;  // Gone, or somebody is at it.
  ScrubReport of_another;                     // A pass that was broken off.
  ScrubReport& pass = number == scrub_.number ? scrub_.pass : of_another;
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
  out->heals_in_flight = healing_.size() + scrub_.in_flight;
  uint64_t slots = table_.end();
  out->scrub_permille =
      scrub_.running && slots > 0 ? std::min<uint64_t>(1000, 1000 * uint64_t{scrub_.next} / slots) : 0;
}

}  // namespace firn
