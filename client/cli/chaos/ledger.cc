#include "client/cli/chaos/ledger.h"

namespace firn::cli {

Moment Ledger::Now() const {
  std::lock_guard lock(mu_);
  return now_;
}

void Ledger::Damaged() {
  std::lock_guard lock(mu_);
  ++now_.damages;
}

void Ledger::MemoryLost() {
  std::lock_guard lock(mu_);
  ++now_.losses;
}

void Ledger::PutBegins(uint64_t number) {
  std::lock_guard lock(mu_);
  facts_[number].deleted = false;  // Whatever the answer will be, it may be there.
}

void Ledger::PutDone(uint64_t number, Moment began, bool stored, firnkv::Precision durable) {
  std::lock_guard lock(mu_);
  Facts& facts = facts_[number];
  // A finer block leaves the copy on the medium that was there, which lies where it lay, also where that was damaged.
  const bool was_there = facts.stored || facts.durable.has_value();
  const uint64_t lies_since = !was_there     ? began.damages
                              : facts.stored ? facts.stored_at.damages
                                             : facts.durable_damages;
  if (stored) {
    facts.stored = true;
    facts.stored_at = {.damages = lies_since, .losses = began.losses};
  }
  if (durable == firnkv::Precision::kNone || !(stored || was_there)) return;
  if (stored || !facts.durable.has_value()) {
    facts.durable = durable;
    facts.durable_damages = lies_since;
  }
}

void Ledger::Missed(uint64_t number) {
  std::lock_guard lock(mu_);
  facts_[number].stored = false;
  facts_[number].durable.reset();
}

void Ledger::DeleteBegins(uint64_t number) {
  std::lock_guard lock(mu_);
  facts_[number] = {};
}

void Ledger::DeleteDone(uint64_t number, Moment began) {
  std::lock_guard lock(mu_);
  facts_[number].deleted = true;
  facts_[number].deleted_damages = began.damages;
}

void Ledger::FlushDone(uint64_t first, uint64_t count, Moment began) {
  std::lock_guard lock(mu_);
  if (began.losses != now_.losses) return;
  for (uint64_t number = first; number < first + count; ++number) {
    Facts& facts = facts_[number];
    if (!facts.stored || facts.stored_at.losses != began.losses || facts.durable.has_value()) continue;
    facts.durable = firnkv::Precision::kInt2;
    facts.durable_damages = facts.stored_at.damages;
  }
}

Verdict Ledger::Judge(uint64_t number, const absl::Status& status, firnkv::Precision served, bool wrong) const {
  std::lock_guard lock(mu_);
  const Facts& facts = facts_[number];
  if (status.ok() && wrong) return Verdict::kWrongBytes;
  if (status.ok() && facts.deleted) {
    return facts.deleted_damages == now_.damages ? Verdict::kCameBack : Verdict::kLostToDamage;
  }
  const bool missed = absl::IsNotFound(status) || (status.ok() && facts.durable && served < *facts.durable);
  if (!missed || !facts.durable.has_value()) return Verdict::kFine;
  return facts.durable_damages == now_.damages ? Verdict::kLost : Verdict::kLostToDamage;
}

std::vector<uint64_t> Ledger::Promised() const {
  std::lock_guard lock(mu_);
  std::vector<uint64_t> out;
  for (uint64_t number = 0; number < facts_.size(); ++number) {
    if (facts_[number].durable.has_value() || facts_[number].deleted) out.push_back(number);
  }
  return out;
}

}  // namespace firn::cli
