// Copies that gave bytes that do not check: what error correction and the block's other copies give back is written
// anew, what nothing gives back is let go, plane by plane.
#include <utility>

#include "base/status.h"
#include "tiers/store/store_impl.h"

namespace firn {
namespace {

// Each may hold all of a block, corrected, in memory that no tier accounts for.
constexpr size_t kHealsInFlightMax = 32;

}  // namespace

// One copy on its way to being whole again.
struct StoreImpl::Heal {
  EntryId entry = kNoEntry;
  Identity identity;
  uint8_t tier = 0;
  CopyPtr copy;
  EncodedBlock block;  // The runs in `intact` are what was written.
  RunMask intact;
  RunMask unread;       // What its medium did not give this time.
  ClassPair served;     // What the copy was held to serve.
  bool mended = false;  // Not all of it came from where it lies.
  std::vector<std::pair<uint8_t, CopyPtr>> others;
  std::vector<std::shared_ptr<const void>> owners;  // Of what was borrowed from them.
  HealDone done;

  RunMask Missing() const { return (copy->Runs() & block.header->encoded) - intact; }
  // Takes what is missing of another copy, where that was written as this one.
  void Borrow(const EncodedBlock& other) {
    const RunMask missing = Missing() & other.present;
    for (uint32_t run = 0; run < kRunIds; ++run) {
      if (!missing.Has(run) || other.header->runs[run] != block.header->runs[run]) continue;
      if (!IsIntactRun(block.header, run, other.runs[run])) continue;
      block.runs[run] = other.runs[run];
      intact |= RunMask::Of(RunKindOf(run), RunPartOf(run));
      owners.push_back(other.owner);
      mended = true;
    }
    block.present |= intact;
  }
};

Executor* StoreImpl::HealExecutor() const {
  return options_.demotion_executor != nullptr ? options_.demotion_executor : options_.executor;
}

void StoreImpl::OnDamage(EntryId id, const Identity& identity, uint8_t tier, const CopyPtr& copy, RunMask intact) {
  bool spare = options_.tiers[tier].tier->HasParity(*copy);
  bool crowded = false;
  {
    std::lock_guard lock(mu_);
    crowded = healing_.size() >= kHealsInFlightMax;
    if (FindByIdentityLocked(identity) != id) return;
    ++tiers_[tier].damaged_reads;
    for (NodeId node = table_.entry(id).first_copy; node != kNoNode; node = table_.copy(node).next) {
      spare |= table_.copy(node).tier != tier;
    }
  }
  // Where nothing could give it back there is nothing to wait for.
  if (!spare) return HandleDamage(id, identity, tier, copy, intact);
  if (crowded) return;  // The next read of it finds the same.
  HealCopy(id, identity, tier, copy, [](HealOutcome) {});
}

void StoreImpl::HealCopy(EntryId id, const Identity& identity, uint8_t tier, const CopyPtr& copy, HealDone done) {
  auto heal = std::make_shared<Heal>();
  heal->entry = id;
  heal->identity = identity;
  heal->tier = tier;
  heal->copy = copy;
  heal->done = std::move(done);
  bool begun = false;
  {
    std::lock_guard lock(mu_);
    begun = !stopping_ && HeldStillLocked(*heal) && healing_.insert(copy.get()).second;
    if (begun) heal->served = table_.FindCopy(id, tier)->served;
  }
  if (!begun) return heal->done(HealOutcome::kBusy);
  Tier* medium = options_.tiers[tier].tier.get();
  auto go_on = [this, heal](absl::StatusOr<EncodedBlock> block) {
    HealExecutor()->Post([this, heal, block = std::move(block)]() mutable { OnHealRead(heal, std::move(block)); });
  };
  if (!medium->HasParity(*copy)) return medium->Read(copy, identity, RunMask::All(), std::move(go_on));
  medium->ReadCorrected(copy, identity, RunMask::All(),
                        [medium, heal, go_on](absl::StatusOr<EncodedBlock> block) mutable {
                          // Moved meanwhile.
                          if (absl::IsUnimplemented(block.status())) {
                            return medium->Read(heal->copy, heal->identity, RunMask::All(), std::move(go_on));
                          }
                          go_on(std::move(block));
                        });
}

bool StoreImpl::HeldStillLocked(const Heal& heal) {
  if (FindByIdentityLocked(heal.identity) != heal.entry) return false;
  const HeldCopy* held = table_.FindCopy(heal.entry, heal.tier);
  return held != nullptr && held->copy == heal.copy;
}

void StoreImpl::EndHeal(const std::shared_ptr<Heal>& heal, HealOutcome outcome) {
  {
    std::lock_guard lock(mu_);
    healing_.erase(heal->copy.get());
    TierState& state = tiers_[heal->tier];
    if (outcome == HealOutcome::kMended) ++state.mended;
    if (outcome == HealOutcome::kDegraded) ++state.damage_degraded;
    if (outcome == HealOutcome::kWithdrawn) ++state.damage_withdrawn;
  }
  heal->block = {};
  heal->owners.clear();
  heal->done(outcome);
}

void StoreImpl::OnHealRead(const std::shared_ptr<Heal>& heal, absl::StatusOr<EncodedBlock> block) {
  if (!block.ok()) {
    if (absl::IsDataLoss(block.status())) return Withdraw(heal, {});
    // A log that has reclaimed it meanwhile found no damage.
    const bool gone = absl::IsNotFound(block.status());
    if (gone) HandleDamage(heal->entry, heal->identity, heal->tier, heal->copy, {});
    return EndHeal(heal, gone ? HealOutcome::kBusy : HealOutcome::kUnread);
  }
  heal->block = *std::move(block);
  heal->intact = IntactRuns(heal->block);
  heal->unread = heal->Missing() - heal->block.present;
  heal->mended = heal->block.corrected;
  if (!heal->Missing().Empty()) {
    std::lock_guard lock(mu_);
    if (HeldStillLocked(*heal)) {
      for (NodeId node = table_.entry(heal->entry).first_copy; node != kNoNode; node = table_.copy(node).next) {
        const HeldCopy& held = table_.copy(node);
        if (held.tier != heal->tier) heal->others.emplace_back(held.tier, held.copy);
      }
    }
  }
  BorrowRuns(heal);
}

// Runs that another copy has as they were written here: planes travel between tiers as they are.
void StoreImpl::BorrowRuns(const std::shared_ptr<Heal>& heal) {
  if (heal->Missing().Empty() || heal->others.empty()) return SettleHeal(heal);
  auto [tier, copy] = std::move(heal->others.back());
  heal->others.pop_back();
  auto go_on = [this, heal](absl::StatusOr<EncodedBlock> block) {
    HealExecutor()->Post([this, heal, block = std::move(block)] {
      if (block.ok()) heal->Borrow(*block);
      BorrowRuns(heal);
    });
  };
  options_.tiers[tier].tier->Read(copy, heal->identity, heal->Missing(), std::move(go_on));
}

void StoreImpl::SettleHeal(const std::shared_ptr<Heal>& heal) {
  const RecordHeader& header = *heal->block.header;
  const bool whole = heal->Missing().Empty();
  if (whole && !heal->mended) return EndHeal(heal, HealOutcome::kClean);
  // Nothing is given up that the medium may give another time; its tier says when it is lost.
  if (!(heal->Missing() & heal->unread).Empty()) return EndHeal(heal, HealOutcome::kUnread);
  const ClassPair left = ClassOf(header, heal->intact);
  if (left.Min() == PrecisionClass::kNone) return Withdraw(heal, heal->intact);
  if (!whole && !heal->mended && options_.tiers[heal->tier].tier->narrows_in_place()) {
    HandleDamage(heal->entry, heal->identity, heal->tier, heal->copy, heal->intact);
    return EndHeal(heal, HealOutcome::kDegraded);
  }
  // Finer planes are of no use without the coarser ones.
  RunMask keep = whole ? heal->intact : RunsFor(header, left) & heal->intact;
  heal->block = heal->block.Narrowed(keep);
  heal->block.owner =
      std::make_shared<std::pair<std::shared_ptr<const void>, std::vector<std::shared_ptr<const void>>>>(
          std::move(heal->block.owner), std::move(heal->owners));
  WriteAnew(heal, whole ? HealOutcome::kMended : HealOutcome::kDegraded);
}

void StoreImpl::WriteAnew(const std::shared_ptr<Heal>& heal, HealOutcome outcome) {
  bool gone = false;
  {
    Aftermath after(this);
    std::lock_guard lock(mu_);
    gone = stopping_ || !HeldStillLocked(*heal);
    if (!gone && (table_.entry(heal->entry).flags & Entry::kMoving)) {
      return WhenIdleLocked(table_.entry(heal->entry), [this, heal, outcome] { WriteAnew(heal, outcome); });
    }
    if (!gone) {
      auto move = std::make_unique<Move>();
      move->entry = heal->entry;
      move->from = move->to = heal->tier;
      move->target = {PrecisionClass::kExact, PrecisionClass::kExact};
      move->keep_source = true;
      move->repair = true;
      move->event = EventKind::kDegraded;
      move->block = heal->block;
      move->done = [this, heal, outcome](absl::StatusOr<ClassPair> moved) {
        EndHeal(heal, moved.ok() ? outcome : HealOutcome::kUnread);
      };
      StartMoveLocked(std::move(move), &after);
    }
  }
  if (gone) EndHeal(heal, HealOutcome::kBusy);
}

// Lets a copy go that nothing gives back. Where a hotter one is as fine, a persistent tier gets a new copy of that.
void StoreImpl::Withdraw(const std::shared_ptr<Heal>& heal, RunMask intact) {
  // A log may have let go of it already.
  HandleDamage(heal->entry, heal->identity, heal->tier, heal->copy, intact);
  if (options_.tiers[heal->tier].tier->persistent()) {
    Aftermath after(this);
    std::lock_guard lock(mu_);
    EntryId id = FindByIdentityLocked(heal->identity);
    if (id != kNoEntry && !stopping_ && table_.FindCopy(id, heal->tier) == nullptr &&
        !(table_.entry(id).flags & Entry::kMoving)) {
      const HeldCopy& hottest = table_.copy(table_.entry(id).first_copy);
      if (hottest.tier < heal->tier && hottest.served.AtLeast(heal->served)) {
        auto move = std::make_unique<Move>();
        move->entry = id;
        move->from = hottest.tier;
        move->to = heal->tier;
        move->target = heal->served;
        move->keep_source = true;
        move->event = EventKind::kDemoted;
        StartMoveLocked(std::move(move), &after);
      }
    }
  }
  EndHeal(heal, HealOutcome::kWithdrawn);
}

}  // namespace firn
