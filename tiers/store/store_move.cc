// Moves: read a copy, re-code it for where it goes (or take some of its planes along as they are), commit it there, and
// only then let go of it here. Every step may run on another thread; the entry is taken over by its flag from start to
// end.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/status.h"
#include "tiers/store/store_impl.h"

namespace firn {
namespace {

// After a failed write below, demotions into that tier wait this long.
constexpr int64_t kRetryNs = 200'000'000;
constexpr uint32_t kFullInARowMax = 3;

float ErrorAt(const PartErrors& errors, PrecisionClass c) {
  if (c >= PrecisionClass::kExact) return 0;
  if (c >= PrecisionClass::k8Bit) return errors.int8;
  return c >= PrecisionClass::k3Bit ? errors.int4 : errors.int2;
}

PrecisionClass NextFiner(PrecisionClass c) {
  if (c < PrecisionClass::k4Bit) return PrecisionClass::k4Bit;
  return c < PrecisionClass::k8Bit ? PrecisionClass::k8Bit : PrecisionClass::kExact;
}

PrecisionClass& Of(ClassPair& pair, Part part) { return part == Part::kK ? pair.k : pair.v; }
PrecisionClass Of(const ClassPair& pair, Part part) { return part == Part::kK ? pair.k : pair.v; }

// The class of a part's coarsest head and of its finest.
struct ClassSpan {
  ClassPair coarsest, finest;
  bool operator==(const ClassSpan&) const = default;
};
ClassSpan SpanOf(const RecordHeader& header, RunMask runs) { return {ClassOf(header, runs), FinestOf(header, runs)}; }

// What to aim at instead of `target`, where a part loses precision on this move and more of it than `limit` allows: the
// next finer class for that part. A part's error is what the record says of its finest class: coarser heads count there
// as they are. Plain codes have one error, at the class of the coarsest head. Errors of classes finer than those
// encoded are unknown, so the answer goes up one step at a time.
std::optional<ClassPair> GateStep(const RecordHeader& header, RunMask stored, const RecordHeader& before, RunMask had,
                                  ClassPair target, float limit) {
  ClassSpan now = SpanOf(header, stored), then = SpanOf(before, had);
  bool gated = false;
  for (Part part : kParts) {
    PrecisionClass coarsest = Of(now.coarsest, part), finest = Of(now.finest, part);
    bool loses = coarsest < Of(then.coarsest, part) || finest < Of(then.finest, part);
    bool codes = FamilyOf(header.CodingOf(part).codec) == CodecFamily::kCodes;
    if (!loses || ErrorAt(header.errors[static_cast<size_t>(part)], codes ? coarsest : finest) <= limit) continue;
    // The coarsest heads first; where they are as they were, the others are not.
    Of(target, part) = coarsest < Of(then.coarsest, part) ? std::min(NextFiner(coarsest), Of(then.coarsest, part))
                                                          : std::min(NextFiner(finest), Of(then.finest, part));
    gated = true;
  }
  return gated ? std::optional(target) : std::nullopt;
}

// Bounds the heads that a plan tells apart: none coarser than `least`, none finer than `most`.
void BoundHeads(const ClassPair& least, const ClassPair& most, EncodeSpec* spec) {
  for (Part part : kParts) {
    auto& classes = spec->classes[static_cast<size_t>(part)];
    if (classes == nullptr) continue;
    if (Of(least, part) == PrecisionClass::kExact) {
      classes = nullptr;
      continue;
    }
    ClassMap bounded = *classes;
    for (PrecisionClass& head : bounded) head = std::min(std::max(head, Of(least, part)), Of(most, part));
    if (bounded != *classes) classes = std::make_shared<const ClassMap>(std::move(bounded));
  }
}

constexpr ClassPair kNoBound{PrecisionClass::kExact, PrecisionClass::kExact};

// The planes among `runs` that reclaiming may take one by one.
RunMask PlanesOf(const RecordHeader& header, RunMask runs) {
  return (RunMask::Both(RunKind::kP4) | RunMask::Both(RunKind::kP8)) & header.encoded & runs;
}

}  // namespace

ClassPair FinestHeld(const HeldCopy& held) {
  ClassPair finest = held.served;
  RunMask runs = held.copy->Runs();
  for (Part part : kParts) {
    if (!runs.Has(RunKind::kP2, part) || !runs.Has(RunKind::kP4, part)) continue;
    Of(finest, part) =
        std::max(Of(finest, part), runs.Has(RunKind::kP8, part) ? PrecisionClass::k8Bit : PrecisionClass::k4Bit);
  }
  return finest;
}

StoreImpl::TierCodings StoreImpl::CodingsFor(const PrecisionPlan& plan, const TierConfig& tier) const {
  TierCodings codings;
  for (Part part : kParts) {
    size_t p = static_cast<size_t>(part);
    const TierRule* rule = plan.RuleFor(tier.name, part);
    if (rule == nullptr) continue;
    PrecisionClass own = part == Part::kK ? tier.precision.k : tier.precision.v;
    auto asked = plan.tier_target.find(tier.name);
    if (asked != plan.tier_target.end()) own = part == Part::kK ? asked->second.k : asked->second.v;
    // A rule for all tiers is for those that do not keep values as they came.
    if (rule->tier.empty() && own == PrecisionClass::kExact) continue;
    codings.target[p] = rule->Class();
    if (rule->coding.codec != CodecId::kNone) {
      codings.rules[p].push_back({codings.target[p], rule->coding, artifacts_.Find(rule->coding.artifact)});
    }
    if (!rule->classes.empty()) codings.classes[p] = std::make_shared<const ClassMap>(rule->classes);
  }
  return codings;
}

EncodeSpec StoreImpl::SpecForLocked(NamespaceId id, uint8_t tier, TokenRanks ranks) const {
  const NamespaceState& ns = namespaces_[id];
  EncodeSpec spec;
  spec.key_method = ns.plan.key_method;
  spec.use_fp8 = options_.tiers[tier].use_fp8;
  spec.key_group = ns.plan.key_group;
  spec.value_group = ns.plan.value_group;
  spec.keep_first_tokens = ns.plan.keep_first_tokens;
  spec.important_fraction = ns.plan.important_fraction;
  spec.importance = std::move(ranks);
  spec.balance = ns.balance;
  spec.ladder = ns.plan.ladder;
  spec.rules = ns.codings[tier].rules;
  spec.classes = ns.codings[tier].classes;
  BoundHeads(ns.plan.floor, kNoBound, &spec);
  return spec;
}

ClassPair StoreImpl::TargetForLocked(const Entry& e, uint8_t tier, ClassPair current) const {
  const NamespaceState& ns = namespaces_[e.ns];
  ClassPair target = options_.tiers[tier].precision;
  auto it = ns.plan.tier_target.find(options_.tiers[tier].name);
  if (it != ns.plan.tier_target.end()) target = it->second;
  const auto& ruled = ns.codings[tier].target;
  if (ruled[0] != PrecisionClass::kNone) target.k = ruled[0];
  if (ruled[1] != PrecisionClass::kNone) target.v = ruled[1];
  target = Coarser(Finer(target, ns.plan.floor), current);
  // Bytes that no codec may touch, and blocks with NaN or Inf, stay as they are.
  if (ns.facts.dtype == DType::kBytes || (e.flags & Entry::kNonFinite)) target = current;
  return target;
}

void StoreImpl::StartMoveLocked(std::unique_ptr<Move> move, Aftermath* after) {
  Entry& e = table_.entry(move->entry);
  FIRN_CHECK(!(e.flags & Entry::kMoving));
  e.flags |= Entry::kMoving;
  ++moves_in_flight_;
  move->since_ns = options_.clock->NowNs();
  move->ns = e.ns;
  move->identity = IdentityOfLocked(e);
  move->spec = SpecForLocked(e.ns, move->to, table_.RanksOf(move->entry));
  move->spec.target = move->target;
  if (move->repair) {
    move->spec.classes = {};
  } else if (move->event == EventKind::kDegraded) {
    BoundHeads({}, move->target, &move->spec);
  }
  const HeldCopy* held = table_.FindCopy(move->entry, move->from);
  FIRN_CHECK(held != nullptr);
  move->source = held->copy;
  if (!move->keep_source) {
    move->leaving_bytes = held->copy->StoredBytes();
    tiers_[move->from].leaving_bytes += move->leaving_bytes;
  }
  std::shared_ptr<Move> shared(std::move(move));
  after->Then([this, shared]() mutable { ReadForMove(std::move(shared)); });
}

Executor* StoreImpl::ExecutorOf(const Move& move) const {
  bool demotion = move.event == EventKind::kDemoted || move.event == EventKind::kDegraded;
  return demotion && options_.demotion_executor != nullptr ? options_.demotion_executor : options_.executor;
}

void StoreImpl::ReadForMove(std::shared_ptr<Move> move) {
  Executor* executor = ExecutorOf(*move);
  if (move->block.header != nullptr) {
    executor->Post([this, move = std::move(move)]() mutable { TransferForMove(std::move(move)); });
    return;
  }
  if (RecodeInPlace(move)) return;
  Tier* tier = options_.tiers[move->from].tier.get();
  // Some heads may keep more than the target.
  bool by_head = move->spec.classes[0] != nullptr || move->spec.classes[1] != nullptr;
  RunMask runs = by_head ? move->source->Runs() : move->source->Runs() & WantedRuns(move->target);
  CopyPtr source = move->source;
  Identity identity = move->identity;
  const bool correct = move->corrected;
  auto go_on = [this, executor, move = std::move(move)](absl::StatusOr<EncodedBlock> block) mutable {
    executor->Post([this, move = std::move(move), block = std::move(block)]() mutable {
      OnMoveRead(std::move(move), std::move(block));
    });
  };
  correct ? tier->ReadCorrected(std::move(source), identity, runs, std::move(go_on))
          : tier->Read(std::move(source), identity, runs, std::move(go_on));
}

bool StoreImpl::MayCorrect(const Move& move) const {
  return !move.corrected && !move.repair && options_.tiers[move.from].tier->HasParity(*move.source);
}

void StoreImpl::OnMoveRead(std::shared_ptr<Move> move, absl::StatusOr<EncodedBlock> block) {
  if (block.ok()) {
    move->block = *std::move(block);
    return TransferForMove(std::move(move));
  }
  const bool lost = absl::IsDataLoss(block.status());
  if ((lost || absl::IsUnavailable(block.status())) && MayCorrect(*move)) {
    move->corrected = true;
    return ReadForMove(std::move(move));
  }
  // The next attempt finds it healed, or gone.
  if (lost) OnDamage(move->entry, move->identity, move->from, move->source, {});
  FailMove(std::move(move), block.status());
}

bool StoreImpl::RecodeInPlace(const std::shared_ptr<Move>& move) {
  TierRecoder* recoder = options_.tiers[move->from].tier->recoder();
  bool down = move->event == EventKind::kDemoted || move->event == EventKind::kDegraded;
  if (recoder == nullptr || move->by_hand || !down) return false;
  auto header = HeaderInMemory(move->from, move->source, move->identity);
  if (header == nullptr) return false;
  recoder->Recode(move->source, move->identity, move->spec, artifacts_, options_.tiers[move->to].tier.get(),
                  [this, move, header](absl::StatusOr<TierRecoder::Recoded> recoded) mutable {
                    Executor* executor = ExecutorOf(*move);
                    executor->Post([this, move = std::move(move), header, recoded = std::move(recoded)]() mutable {
                      if (absl::IsUnimplemented(recoded.status())) {
                        move->by_hand = true;
                        return ReadForMove(std::move(move));
                      }
                      if (absl::IsDataLoss(recoded.status())) {
                        OnDamage(move->entry, move->identity, move->from, move->source, {});
                      }
                      if (!recoded.ok()) return FailMove(std::move(move), recoded.status());
                      move->block = {.header = header, .present = {}, .runs = {}, .owner = nullptr, .corrected = false};
                      move->recoded = *std::move(recoded);
                      TransferForMove(std::move(move));
                    });
                  });
  return true;
}

absl::StatusOr<std::unique_ptr<Draft>> StoreImpl::RecodeForMove(Move& move,
                                                                std::shared_ptr<const RecordHeader>* header) {
  if (move.recoded.has_value()) {
    *header = move.recoded->header;
    std::unique_ptr<Draft> draft = std::move(move.recoded->draft);
    move.recoded.reset();
    return draft;
  }
  Tier* to = options_.tiers[move.to].tier.get();
  EncodedBlock& block = move.block;
  ClassPair have = ClassOf(*block.header, block.present);
  if (have.Min() == PrecisionClass::kNone && move.source->Runs().Empty()) {
    return Unavailable("tier \"{}\" went away with block {}", options_.tiers[move.from].name, move.identity.key.Hex());
  }
  if (have.Min() == PrecisionClass::kNone)
    return DataLoss("block {} has runs missing that it cannot do without", move.identity.key.Hex());
  bool by_head = move.spec.classes[0] != nullptr || move.spec.classes[1] != nullptr;
  const bool as_they_are = !by_head && (have == Coarser(have, move.target) || CanNarrow(block, move.target));
  // New codes get new checksums and parity is made anew, so what they are made from is verified first.
  if (!as_they_are || (options_.tiers[move.from].tier->ecc().any() && !move.repair)) {
    RunMask intact = IntactRuns(block);
    const bool again = !intact.Contains(block.present) && MayCorrect(move);
    if (!again && (!intact.Contains(block.present) || block.corrected)) {
      OnDamage(move.entry, move.identity, move.from, move.source, intact);
    }
    if (!intact.Contains(block.present)) {
      return DataLoss("block {} is damaged in tier \"{}\"", move.identity.key.Hex(), options_.tiers[move.from].name);
    }
  }
  if (as_they_are) {
    // Planes travel as they are, with their checksums: damage on the way is found by whoever reads them.
    RunMask keep = RunsFor(*block.header, move.target) & block.present;
    FIRN_ASSIGN_OR_RETURN(std::unique_ptr<Draft> draft, to->Reserve(block.Layout(keep)));
    to->Fill(draft.get(), block.Narrowed(keep));
    if (keep == block.header->encoded) {
      *header = block.header;
    } else {
      auto narrowed = std::make_shared<RecordHeader>(*block.header);
      narrowed->encoded = keep;
      for (uint32_t run = 0; run < kRunIds; ++run) {
        if (!keep.Has(run)) narrowed->runs[run] = {};
      }
      *header = std::move(narrowed);
    }
    return draft;
  }
  return EncodeIntoTier(block, move.spec, to, header);
}

absl::StatusOr<std::unique_ptr<Draft>> StoreImpl::EncodeIntoTier(const EncodedBlock& source, const EncodeSpec& spec,
                                                                 Tier* tier,
                                                                 std::shared_ptr<const RecordHeader>* header) const {
  std::unique_ptr<Draft> draft;
  auto reserve = [&](const EncodePlan& plan) -> absl::StatusOr<MutableRuns> {
    draft.reset();  // A first plan that did not fit the values gives its room back before the second asks.
    FIRN_ASSIGN_OR_RETURN(draft, tier->Reserve(LayoutOf(plan.header)));
    return draft->runs();
  };
  FIRN_ASSIGN_OR_RETURN(EncodeResult encoded, EncodeInto(source, spec, artifacts_, reserve));
  *header = std::move(encoded.header);
  return draft;
}

void StoreImpl::TransferForMove(std::shared_ptr<Move> move) {
  std::shared_ptr<const RecordHeader> header;
  auto draft = RecodeForMove(*move, &header);
  if (absl::IsDataLoss(draft.status()) && MayCorrect(*move)) {
    move->corrected = true;
    move->block = {};
    return ReadForMove(std::move(move));
  }
  float limit = 0;
  {
    std::lock_guard lock(mu_);
    limit = namespaces_[move->ns].plan.max_relative_error;
  }
  ClassPair tried;
  // A block that would lose more than its namespace allows goes down at the coarsest class that does not.
  while (draft.ok() && limit > 0 && !move->repair) {
    // What the copy has, not what was read of it: planes that stay behind are a loss like any other.
    RunMask has = move->source->Runs();
    auto wanted =
        GateStep(*header, header->encoded, *move->block.header, has | move->block.present, move->target, limit);
    if (!wanted.has_value()) break;
    if (*wanted == std::exchange(tried, *wanted)) {
      *draft = nullptr;
      return FailMove(std::move(move), FailedPrecondition("block {} cannot be coded within the error limit of {}",
                                                          move->identity.key.Hex(), limit));
    }
    if (!std::exchange(move->gated, true)) {
      std::lock_guard lock(mu_);
      ++totals_.error_gate_stops;
    }
    if (move->event == EventKind::kDegraded) {
      // Whoever asked for this class gets it or hears why not.
      *draft = nullptr;
      return FailMove(std::move(move),
                      FailedPrecondition("degrading block {} to {} would pass the error limit of {}",
                                         move->identity.key.Hex(), PrecisionClassName(move->target.Min()), limit));
    }
    move->target = move->spec.target = *wanted;
    BoundHeads(*wanted, kNoBound, &move->spec);
    *draft = nullptr;
    if (!move->block.present.Contains(has & WantedRuns(*wanted))) {
      move->block = {};
      move->by_hand = true;  // What is tried next is tried here, and no step twice.
      return ReadForMove(std::move(move));
    }
    draft = RecodeForMove(*move, &header);
  }
  if (!draft.ok()) return FailMove(std::move(move), draft.status());
  ClassPair stored = ClassOf(*header, header->encoded);
  const bool asked_degrade = move->event == EventKind::kDegraded && !move->repair;
  if (asked_degrade && (header->flags & RecordHeader::kNonFinite)) {
    // A block from before a restart: only its header knows.
    *draft = nullptr;
    return FailMove(std::move(move), FailedPrecondition("block {} holds NaN or Inf and stays {}",
                                                        move->identity.key.Hex(), PrecisionClassName(stored.Min())));
  }
  if (asked_degrade && SpanOf(*header, header->encoded) == SpanOf(*move->block.header, move->source->Runs())) {
    *draft = nullptr;
    return FailMove(std::move(move),
                    FailedPrecondition("block {} has nothing to drop in tier \"{}\" and stays k {}, v {}",
                                       move->identity.key.Hex(), options_.tiers[move->from].name,
                                       PrecisionClassName(stored.k), PrecisionClassName(stored.v)));
  }
  if (!move->repair) move->exact_token_bytes = header->RunBytes(RunMask::Both(RunKind::kExact));
  CommitOptions options;
  {
    std::lock_guard lock(mu_);
    const NamespaceState& ns = namespaces_[move->ns];
    EntryId id = FindByIdentityLocked(move->identity);
    bool pinned = id != kNoEntry && table_.entry(id).pins > 0;
    if (pinned || limit > 0) {
      options.protect = PlanesOf(*header, header->encoded);
    } else {
      ClassPair least = Finer(ns.plan.floor, options_.tiers[move->to].least);
      options.protect = PlanesOf(*header, WantedRuns(least));
    }
  }
  Tier* to = options_.tiers[move->to].tier.get();
  to->Commit(*std::move(draft), header, options, [this, move, stored](absl::StatusOr<CopyPtr> copy) mutable {
    if (!copy.ok()) return FailMove(std::move(move), copy.status());
    FinishMove(std::move(move), *std::move(copy), stored);
  });
}

void StoreImpl::EndMoveLocked(Move& move, Aftermath* after) {
  --moves_in_flight_;
  tiers_[move.from].leaving_bytes -= move.leaving_bytes;
  auto waiting = when_idle_.find(move.identity.generation);
  if (waiting != when_idle_.end()) {
    for (Task& task : waiting->second) options_.executor->Post(std::move(task));
    when_idle_.erase(waiting);
  }
  ScheduleRoomWaitersLocked();
  after->Release(std::move(move.source));
  after->Release(std::exchange(move.block.owner, nullptr));
}

void StoreImpl::FinishMove(std::shared_ptr<Move> move, CopyPtr copy, ClassPair stored) {
  absl::StatusOr<ClassPair> outcome = stored;
  {
    Aftermath after(this);
    std::lock_guard lock(mu_);
    EntryId id = FindByIdentityLocked(move->identity);
    if (id != kNoEntry) table_.entry(id).flags &= static_cast<uint16_t>(~Entry::kMoving);
    outcome = OutcomeLocked(*move, id, copy->Runs(), stored);
    bool wanted = outcome.ok() && *outcome == stored;
    if (wanted) {
      SettleMoveLocked(id, *move, std::move(copy), stored, &after);
    } else {
      after.Forget(move->to, std::move(copy), move->identity);
    }
    EndMoveLocked(*move, &after);
  }
  if (move->done) move->done(std::move(outcome));
  move.reset();
  Pump();
}

absl::StatusOr<ClassPair> StoreImpl::OutcomeLocked(const Move& move, EntryId id, RunMask arrived,
                                                   ClassPair stored) const {
  const Digest& key = move.identity.key;
  // Deleted or replaced meanwhile: the copy must not outlive the block.
  if (id == kNoEntry) return NotFound("block {} was removed while it was moving", key.Hex());
  if (arrived.Empty()) return Unavailable("tier \"{}\" went away with the copy", options_.tiers[move.to].name);
  NodeId node = table_.FindCopyNode(id, move.to);
  const HeldCopy* there = node == kNoNode ? nullptr : &table_.copy(node);
  if (move.from == move.to) {
    if (table_.entry(id).pins > 0 && !move.repair) return PinnedError(key, table_.entry(id).pins);
    bool same = there != nullptr && there->copy == move.source;
    return same ? absl::StatusOr<ClassPair>(stored)
                : Aborted("block {} changed while it was being degraded", key.Hex());
  }
  // A finer put that came first has the same generation, and must not be replaced by what was there before it.
  bool finer = there != nullptr && there->served.AtLeast(stored);
  return finer ? there->served : stored;
}

void StoreImpl::SettleMoveLocked(EntryId id, Move& move, CopyPtr copy, ClassPair stored, Aftermath* after) {
  Entry& e = table_.entry(id);
  const HeldCopy* there = table_.FindCopy(id, move.to);
  const ClassPair before = there != nullptr ? there->served : ClassPair();
  if (there != nullptr) {
    ReplaceCopyLocked(id, move.to, std::move(copy), stored, after);
  } else {
    HoldCopyLocked(id, move.to, std::move(copy), stored);
  }
  for (size_t tier = move.from + 1u; move.drop_hotter && e.pins == 0 && tier < move.to; ++tier) {
    if (table_.FindCopy(id, static_cast<uint8_t>(tier)) != nullptr) {
      DropCopyLocked(id, static_cast<uint8_t>(tier), after);
    }
  }
  // Only the copy that was moved: a finer put may have taken its place meanwhile.
  const HeldCopy* source = table_.FindCopy(id, move.from);
  // One that was pinned meanwhile stays as well.
  bool stays = move.keep_source || e.pins > 0;
  if (!stays && move.from != move.to && source != nullptr && source->copy == move.source) {
    DropCopyLocked(id, move.from, after);
  }
  TierState& to = tiers_[move.to];
  to.full_in_a_row = 0;
  totals_.exact_token_bytes += move.exact_token_bytes;
  if (move.event == EventKind::kPromoted) ++to.promotions_in;
  if (move.event == EventKind::kDemoted) {
    ++to.demotions_in;
    to.demotion_latency.Add(options_.clock->NowNs() - move.since_ns);
  }
  if (move.event == EventKind::kDegraded && !move.repair) ++to.degrades;
  // Nobody sees a repair that gave everything back.
  if (!move.repair || stored != before) EmitLocked(move.event, e, move.to, stored, after);
}

void StoreImpl::FailMove(std::shared_ptr<Move> move, absl::Status status) {
  {
    Aftermath after(this);
    std::lock_guard lock(mu_);
    TierState& to = tiers_[move->to];
    if (move->event == EventKind::kDemoted) ++to.demotion_failures;
    bool full = status.code() == absl::StatusCode::kResourceExhausted;
    // A log makes its own room: what it keeps free is its affair.
    if (full && !options_.tiers[move->to].tier->persistent()) {
      // Where its tier was to re-code it nothing was read: no more than what it takes there.
      uint64_t read = move->block.Layout(move->block.present).TotalBytes();
      RaiseDemandLocked(move->to, read > 0 ? read : move->source->StoredBytes());
    }
    // A memory tier that was full makes room at once; one that is full again and again, and any log, gets time.
    to.full_in_a_row = full ? to.full_in_a_row + 1 : 0;
    // Nothing was tried.
    bool refused = move->event == EventKind::kDegraded && status.code() == absl::StatusCode::kFailedPrecondition;
    bool rests = !full || to.full_in_a_row > kFullInARowMax || options_.tiers[move->to].tier->persistent();
    if (rests && !refused) {
      to.retry_at_ns = options_.clock->NowNs() + (full ? kRetryNs / 10 : kRetryNs);
    }
    EntryId id = FindByIdentityLocked(move->identity);
    if (id != kNoEntry) {
      Entry& e = table_.entry(id);
      e.flags &= static_cast<uint16_t>(~Entry::kMoving);
      bool unreadable = status.code() == absl::StatusCode::kDataLoss || status.code() == absl::StatusCode::kNotFound;
      // Below is broken rather than full: this tier serves on as a plain cache and lets the block go. A full one gets
      // time, and what was pinned meanwhile stays.
      const HeldCopy* source = table_.FindCopy(id, move->from);
      if (!full && !unreadable && e.pins == 0 && move->event == EventKind::kDemoted && !move->keep_source &&
          !move->done && source != nullptr && source->copy == move->source) {
        DropCopyLocked(id, move->from, &after);
        ++tiers_[move->from].evictions;
        if (table_.entry(id).first_copy == kNoNode) RemoveBlockLocked(move->ns, move->identity.key, &after);
      }
    }
    EndMoveLocked(*move, &after);
  }
  if (move->done) move->done(std::move(status));
  move.reset();
  Pump();
}

std::shared_ptr<const RecordHeader> StoreImpl::HeaderInMemory(uint8_t tier, const CopyPtr& copy,
                                                              const Identity& identity) const {
  Tier* medium = options_.tiers[tier].tier.get();
  if (medium->persistent()) return nullptr;
  std::shared_ptr<const RecordHeader> header;
  medium->Read(copy, identity, RunMask(), [&header](absl::StatusOr<EncodedBlock> block) {
    if (block.ok()) header = block->header;
  });
  return header;
}

absl::StatusOr<ClassPair> StoreImpl::NarrowLocked(EntryId id, uint8_t tier, RunMask keep, Aftermath* after,
                                                  bool damaged) {
  HeldCopy* held = table_.FindCopy(id, tier);
  if (held == nullptr) return NotFound("the block has no copy in tier \"{}\"", options_.tiers[tier].name);
  Entry& e = table_.entry(id);
  auto header = HeaderInMemory(tier, held->copy, IdentityOfLocked(e));
  if (header == nullptr) return FailedPrecondition("tier \"{}\" does not narrow in place", options_.tiers[tier].name);
  RunMask had = held->copy->Runs();
  ClassPair now = ClassOf(*header, keep & had);
  float limit = namespaces_[e.ns].plan.max_relative_error;
  if (!damaged && limit > 0 && GateStep(*header, keep & had, *header, had, now, limit).has_value()) {
    ++totals_.error_gate_stops;
    return FailedPrecondition("degrading to {} would pass the error limit of {}", PrecisionClassName(now.Min()), limit);
  }
  uint64_t before = held->copy->StoredBytes();
  FIRN_ASSIGN_OR_RETURN(CopyPtr narrowed, options_.tiers[tier].tier->Narrow(held->copy, keep));
  TierState& state = tiers_[tier];
  ++state.degrades;
  state.degraded_bytes += before - narrowed->StoredBytes();
  ReplaceCopyLocked(id, tier, std::move(narrowed), now, after);
  EmitLocked(EventKind::kDegraded, e, tier, now, after);
  return now;
}

}  // namespace firn
