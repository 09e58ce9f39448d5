// Gets: find the hottest copy that is fine enough, read it, verify it, and hand it out with the class it really has.
#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "base/status.h"
#include "tiers/store/store_impl.h"

namespace firn {

// One get on its way. `tried` are the tiers whose copy turned out not to serve.
struct GetContext {
  GetSpec spec;
  absl::AnyInvocable<void(absl::StatusOr<GetResult>)> done;
  uint16_t tried = 0;
  std::optional<MissReason> fault;  // Of the last copy that did not serve.
  // Not a client's get: the block is wanted in a hotter tier.
  bool prefetch = false;
};

struct ReadFlight {
  EntryId entry = kNoEntry;
  Identity identity;
  uint32_t ns = 0;
  uint8_t tier = 0;
  CopyPtr copy;
  RunMask runs;
  ClassPair held;          // What the copy was held to serve.
  bool shared = false;     // Listed in flights_.
  bool corrected = false;  // Read again with error correction.
  std::vector<std::shared_ptr<GetContext>> waiters;
};

// What a reader holds: the bytes, and its place in the books.
class ReaderHold {
 public:
  ReaderHold(StoreImpl* store, SessionId session, uint64_t bytes, std::shared_ptr<const void> owner)
      : store_(store), session_(session), bytes_(bytes), owner_(std::move(owner)) {}
  ReaderHold(const ReaderHold&) = delete;
  ReaderHold& operator=(const ReaderHold&) = delete;
  ~ReaderHold() {
    owner_.reset();
    store_->ReleaseReader(session_, bytes_);
  }

 private:
  StoreImpl* const store_;
  const SessionId session_;
  const uint64_t bytes_;
  std::shared_ptr<const void> owner_;
};

void StoreImpl::ReleaseReader(SessionId session, uint64_t bytes) {
  std::lock_guard lock(mu_);
  FIRN_CHECK(readers_ > 0);
  --readers_;
  auto it = sessions_.find(session);
  if (it != sessions_.end()) it->second.held_bytes -= std::min(bytes, it->second.held_bytes);
}

void StoreImpl::Get(const GetSpec& spec, absl::AnyInvocable<void(absl::StatusOr<GetResult>)> done) {
  auto context = std::make_shared<GetContext>();
  context->spec = spec;
  context->done = std::move(done);
  {
    std::lock_guard lock(mu_);
    ++totals_.gets;
  }
  StartGet(std::move(context));
}

void StoreImpl::FinishMiss(const std::shared_ptr<GetContext>& context, MissReason reason, std::string detail) {
  if (!context->prefetch) {
    std::lock_guard lock(mu_);
    ++totals_.misses[static_cast<size_t>(reason)];
  }
  context->done(NotFound("miss ({}): {}", MissReasonName(reason), detail));
}

void StoreImpl::StartGet(std::shared_ptr<GetContext> context) {
  std::shared_ptr<ReadFlight> flight;
  absl::Status refused;
  std::optional<MissReason> miss;
  {
    Aftermath after(this);
    std::lock_guard lock(mu_);
    const BlockAddress& address = context->spec.address;
    refused = CheckNamespaceLocked(address.ns);
    auto session = sessions_.find(context->spec.session);
    if (refused.ok() && context->spec.session != 0 && session == sessions_.end()) {
      refused = FailedPrecondition("session {} is not open", context->spec.session);
    }
    if (refused.ok() && session != sessions_.end() &&
        session->second.held_bytes > options_.held_bytes_per_session_max) {
      refused =
          ResourceExhausted("session {} holds {} bytes of blocks that it is still reading; at most {}",
                            context->spec.session, session->second.held_bytes, options_.held_bytes_per_session_max);
    }
    if (refused.ok() && address.shard >= namespaces_[address.ns].facts.shards) {
      refused = InvalidArgument("shard {} was asked for; this namespace has shards 0 to {}", address.shard,
                                namespaces_[address.ns].facts.shards - 1);
    }
    if (refused.ok()) {
      EntryId id = table_.Find({address.ns, address.shard, address.key});
      if (id != kNoEntry && ExpiredLocked(table_.entry(id))) {
        ++totals_.expired;
        RemoveBlockLocked(address.ns, address.key, &after);
        id = kNoEntry;
        miss = MissReason::kExpired;
      } else if (id == kNoEntry) {
        miss = context->fault.value_or(MissReason::kUnknown);
      } else {
        NodeId chosen = kNoNode;
        for (NodeId node = table_.entry(id).first_copy; node != kNoNode && chosen == kNoNode;
             node = table_.copy(node).next) {
          const HeldCopy& held = table_.copy(node);
          if (!(context->tried >> held.tier & 1) && held.served.AtLeast(context->spec.least)) chosen = node;
        }
        if (chosen == kNoNode) {
          miss = context->fault.value_or(MissReason::kPrecision);
        } else {
          const HeldCopy& held = table_.copy(chosen);
          policy_->Access(chosen);
          UseInWindowLocked(id);
          RunMask runs = WantedRuns(context->spec.most) & held.copy->Runs();
          bool cold = options_.tiers[held.tier].tier->persistent();
          auto joined = cold ? flights_.find({id, runs.bits()}) : flights_.end();
          if (joined != flights_.end() && joined->second->copy == held.copy) {
            joined->second->waiters.push_back(context);
            return;
          }
          flight = std::make_shared<ReadFlight>();
          flight->entry = id;
          flight->identity = IdentityOfLocked(table_.entry(id));
          flight->ns = address.ns;
          flight->tier = held.tier;
          flight->copy = held.copy;
          flight->runs = runs;
          flight->held = held.served;
          flight->waiters.push_back(context);
          flight->shared = cold && joined == flights_.end();
          if (flight->shared) flights_.emplace(std::pair(id, runs.bits()), flight);
        }
      }
    }
  }
  if (!refused.ok()) return context->done(refused);
  if (miss.has_value()) return FinishMiss(context, *miss, fmt::format("block {}", context->spec.address.key.Hex()));
  Tier* tier = options_.tiers[flight->tier].tier.get();
  if (context->spec.by_reference && tier->device_mover() != nullptr) {
    EncodedBlock block;
    block.header = HeaderInMemory(flight->tier, flight->copy, flight->identity);
    if (block.header != nullptr) {
      block.present = flight->runs & block.header->encoded;
      block.owner = flight->copy;
      return options_.executor->Post([this, context, flight, block = std::move(block)] {
        ServeGet(context, *flight, block, block.present & flight->copy->Runs());
      });
    }
  }
  CopyPtr copy = flight->copy;
  Identity identity = flight->identity;
  RunMask runs = flight->runs;
  tier->Read(std::move(copy), identity, runs,
             [this, flight = std::move(flight)](absl::StatusOr<EncodedBlock> block) mutable {
               options_.executor->Post([this, flight = std::move(flight), block = std::move(block)]() mutable {
                 OnBlockRead(std::move(flight), std::move(block));
               });
             });
}

void StoreImpl::OnBlockRead(std::shared_ptr<ReadFlight> flight, absl::StatusOr<EncodedBlock> block) {
  RunMask intact;
  if (block.ok()) intact = IntactRuns(*block);
  // With a code, what a medium refuses may still be made from what it gives.
  bool damaged = block.ok() ? !intact.Contains(flight->runs & block->header->encoded)
                            : absl::IsDataLoss(block.status()) || absl::IsUnavailable(block.status());
  if (damaged && !flight->corrected && options_.tiers[flight->tier].tier->HasParity(*flight->copy)) {
    return CorrectRead(std::move(flight), std::move(block));
  }
  std::vector<std::shared_ptr<GetContext>> waiters;
  {
    std::lock_guard lock(mu_);
    if (flight->shared) flights_.erase({flight->entry, flight->runs.bits()});
    waiters = std::exchange(flight->waiters, {});
  }
  if (!block.ok()) {
    // What is missing or does not check is withdrawn; a passing fault of the medium takes nothing away.
    if (block.status().code() == absl::StatusCode::kDataLoss || block.status().code() == absl::StatusCode::kNotFound) {
      OnDamage(flight->entry, flight->identity, flight->tier, flight->copy, {});
    }
    for (auto& waiter : waiters) {
      waiter->tried |= static_cast<uint16_t>(1u << flight->tier);
      if (absl::IsDataLoss(block.status())) {
        waiter->fault = MissReason::kDamaged;
      } else if (!absl::IsNotFound(block.status())) {
        waiter->fault = MissReason::kReadFailed;
      }
      StartGet(std::move(waiter));
    }
    return;
  }
  RunMask missing = (flight->runs & block->header->encoded) - intact;
  // What a medium did not give at all is no damage: it may give it the next time.
  if (!(missing & block->present).Empty() || block->corrected) {
    OnDamage(flight->entry, flight->identity, flight->tier, flight->copy, intact);
  }
  for (auto& waiter : waiters) ServeGet(waiter, *flight, *block, intact);
  if (missing.Empty()) MaybePromote(*flight, *block);
}

void StoreImpl::CorrectRead(std::shared_ptr<ReadFlight> flight, absl::StatusOr<EncodedBlock> block) {
  flight->corrected = true;
  Tier* tier = options_.tiers[flight->tier].tier.get();
  CopyPtr copy = flight->copy;
  Identity identity = flight->identity;
  RunMask runs = flight->runs;
  tier->ReadCorrected(
      std::move(copy), identity, runs,
      [this, flight = std::move(flight), block = std::move(block)](absl::StatusOr<EncodedBlock> corrected) mutable {
        // Without a code of its own the copy is what it was.
        if (absl::IsUnimplemented(corrected.status())) corrected = std::move(block);
        options_.executor->Post([this, flight = std::move(flight), corrected = std::move(corrected)]() mutable {
          OnBlockRead(std::move(flight), std::move(corrected));
        });
      });
}

void StoreImpl::EndLateGets() {
  std::vector<std::shared_ptr<GetContext>> late;
  {
    std::lock_guard lock(mu_);
    int64_t now_ns = options_.clock->NowNs();
    for (auto& [place, flight] : flights_) {
      auto in_time = [now_ns](const std::shared_ptr<GetContext>& waiter) {
        return waiter->spec.deadline_ns == 0 || now_ns < waiter->spec.deadline_ns;
      };
      auto first_late = std::stable_partition(flight->waiters.begin(), flight->waiters.end(), in_time);
      late.insert(late.end(), std::make_move_iterator(first_late), std::make_move_iterator(flight->waiters.end()));
      flight->waiters.erase(first_late, flight->waiters.end());
    }
  }
  for (const auto& context : late) {
    FinishMiss(context, MissReason::kReadFailed, "the deadline passed while the block was being read");
  }
}

void StoreImpl::ServeGet(const std::shared_ptr<GetContext>& context, const ReadFlight& flight,
                         const EncodedBlock& block, RunMask intact) {
  GetResult result;
  result.block = block.Narrowed(RunsFor(*block.header, context->spec.most) & intact);
  result.served = ClassOf(*block.header, result.block.present);
  result.tier = flight.tier;
  if (context->spec.by_reference && options_.tiers[flight.tier].tier->device_mover() != nullptr) {
    result.copy = flight.copy;
  }
  bool undecodable = result.served.Min() == PrecisionClass::kNone;
  if (undecodable || !result.served.AtLeast(context->spec.least)) {
    context->tried |= static_cast<uint16_t>(1u << flight.tier);
    context->fault = intact.Contains(block.present) ? MissReason::kReadFailed : MissReason::kDamaged;
    return StartGet(context);
  }
  if (context->spec.deadline_ns != 0 && options_.clock->NowNs() >= context->spec.deadline_ns) {
    return FinishMiss(context, MissReason::kReadFailed, "the deadline passed while the block was being read");
  }
  uint64_t bytes = result.block.Layout(result.block.present).TotalBytes();
  {
    std::lock_guard lock(mu_);
    if (!context->prefetch) ++tiers_[flight.tier].hits;
    if (!context->prefetch) totals_.get_bytes += bytes;
    if (!result.served.AtLeast(Coarser(flight.held, context->spec.most))) ++totals_.served_degraded;
    ++readers_;
    auto session = sessions_.find(context->spec.session);
    if (session != sessions_.end()) session->second.held_bytes += bytes;
  }
  result.block.owner = std::make_shared<ReaderHold>(this, context->spec.session, bytes, std::move(result.block.owner));
  context->done(std::move(result));
}

void StoreImpl::HandleDamage(EntryId id, const Identity& identity, uint8_t tier, const CopyPtr& copy, RunMask intact) {
  Aftermath after(this);
  std::lock_guard lock(mu_);
  // The entry may be another block's by now, or this block's newer version: only the very copy that was read is
  // touched.
  if (FindByIdentityLocked(identity) != id) return;
  HeldCopy* held = table_.FindCopy(id, tier);
  if (held == nullptr || held->copy != copy) return;
  RunMask keep = intact & copy->Runs();
  // Without a header at hand, K and V decode when their metadata and base are whole.
  auto decodes = [&](Part part) {
    RunMask had = copy->Runs();
    for (RunKind kind : {RunKind::kMeta, RunKind::kExact, RunKind::kP2, RunKind::kWhole}) {
      if (had.Has(kind, part) && !keep.Has(kind, part)) return false;
    }
    return true;
  };
  bool whole = !decodes(Part::kK) || !decodes(Part::kV);
  if (!whole) {
    for (Part part : kParts) {
      if (!keep.Has(RunKind::kP4, part)) keep = keep - RunMask::Of(RunKind::kP8, part);
    }
    if (NarrowLocked(id, tier, keep, &after, /*damaged=*/true).ok()) return;
    return;  // A log keeps the damaged plane until its segment goes; every read of it is served coarser.
  }
  DropCopyLocked(id, tier, &after);
  if (table_.entry(id).first_copy == kNoNode) RemoveBlockLocked(table_.entry(id).ns, identity.key, &after);
}

std::optional<uint8_t> StoreImpl::PromotionTargetLocked(uint8_t from) const {
  // The nearest memory tier above: a hotter one would give up finer blocks for a copy that is as coarse there as here.
  for (int tier = from - 1; tier >= 0; --tier) {
    if (!options_.tiers[static_cast<size_t>(tier)].tier->persistent()) return static_cast<uint8_t>(tier);
  }
  return std::nullopt;
}

void StoreImpl::MaybePromote(const ReadFlight& flight, const EncodedBlock& block) {
  Aftermath after(this);
  std::lock_guard lock(mu_);
  if (!options_.promote_on_get || !options_.tiers[flight.tier].tier->persistent()) return;
  if (stopping_ || FindByIdentityLocked(flight.identity) != flight.entry) return;
  const Entry& e = table_.entry(flight.entry);
  std::optional<uint8_t> to = PromotionTargetLocked(flight.tier);
  if (!to.has_value() || (e.flags & Entry::kMoving) || table_.HottestTier(flight.entry) < flight.tier) return;
  // Only a whole copy is worth a place above: one read with few planes must not stand for the block.
  if (!block.present.Contains(flight.copy->Runs()) || moves_in_flight_ >= options_.moves_in_flight_max) return;
  auto move = std::make_unique<Move>();
  move->entry = flight.entry;
  move->from = flight.tier;
  move->to = *to;
  move->target = FinestHeld(table_.copy(table_.FindCopyNode(flight.entry, flight.tier)));
  move->keep_source = true;
  move->event = EventKind::kPromoted;
  move->source = flight.copy;
  move->block = block;
  StartMoveLocked(std::move(move), &after);
}

void StoreImpl::Prefetch(NamespaceId ns, const std::vector<Digest>& keys, ClassPair least,
                         absl::AnyInvocable<void(std::vector<absl::Status>)> done) {
  // One answer a key when all its shards have arrived; the first failure of a key is its answer.
  struct Batch {
    std::mutex mu;
    std::vector<absl::Status> statuses;
    size_t waiting = 0;
    absl::AnyInvocable<void(std::vector<absl::Status>)> done;
  };
  auto batch = std::make_shared<Batch>();
  batch->statuses.resize(keys.size());
  batch->done = std::move(done);
  std::vector<std::pair<size_t, uint16_t>> wanted;
  {
    std::lock_guard lock(mu_);
    absl::Status known = CheckNamespaceLocked(ns);
    for (size_t i = 0; i < keys.size(); ++i) {
      ++totals_.prefetches;
      if (!known.ok()) {
        batch->statuses[i] = known;
        continue;
      }
      for (uint32_t shard = 0; shard < namespaces_[ns].facts.shards; ++shard) {
        EntryId id = table_.Find({ns, static_cast<uint16_t>(shard), keys[i]});
        if (id == kNoEntry || !ServesLocked(id, least)) {
          batch->statuses[i] = NotFound("miss: block {}", keys[i].Hex());
        } else if (options_.tiers[table_.HottestTier(id)].tier->persistent()) {
          wanted.emplace_back(i, static_cast<uint16_t>(shard));
        }
      }
    }
  }
  batch->waiting = wanted.size() + 1;
  auto finish = [batch](size_t index, absl::Status status) {
    bool last = false;
    {
      std::lock_guard lock(batch->mu);
      if (!status.ok() && index < batch->statuses.size() && batch->statuses[index].ok())
        batch->statuses[index] = std::move(status);
      last = --batch->waiting == 0;
    }
    if (last) batch->done(std::move(batch->statuses));
  };
  for (auto [index, shard] : wanted) {
    std::optional<uint8_t> to;
    {
      std::lock_guard lock(mu_);
      EntryId id = table_.Find({ns, shard, keys[index]});
      if (id != kNoEntry) to = PromotionTargetLocked(table_.HottestTier(id));
    }
    if (!to.has_value()) {
      finish(index, FailedPrecondition("no memory tier is above the one that holds the block"));
      continue;
    }
    PromoteShard({ns, shard, keys[index]}, *to,
                 [finish, index = index](absl::StatusOr<ClassPair> promoted) { finish(index, promoted.status()); });
  }
  finish(keys.size(), absl::OkStatus());
}

}  // namespace firn
