// Puts: a place in line for a key, memory to fill, and a block that becomes visible all at once.
#include <algorithm>
#include <limits>
#include <utility>

#include "base/status.h"
#include "tiers/store/in_flight_put.h"

namespace firn {
namespace {

PrecisionClass Of(const ClassPair& pair, Part part) { return part == Part::kK ? pair.k : pair.v; }

// As a demotion's errors are held against the limit: plain codes by their coarsest head, the others by their finest.
absl::Status CheckPackedErrors(const RecordHeader& header, float limit) {
  if (limit <= 0) return absl::OkStatus();
  for (Part part : kParts) {
    if (header.CodingOf(part).codec == CodecId::kIdentity) continue;  // As it was put: FP8 too.
    const bool codes = FamilyOf(header.CodingOf(part).codec) == CodecFamily::kCodes;
    const PrecisionClass c = Of(codes ? ClassOf(header, header.encoded) : FinestOf(header, header.encoded), part);
    const auto slot = PartErrors::SlotOf(c);
    if (slot == nullptr) continue;
    const float error = header.errors[static_cast<size_t>(part)].*slot;
    if (error <= limit) continue;
    return FailedPrecondition("{} of a packed record has an error of {} at {}; the namespace's limit is {}",
                              part == Part::kK ? "K" : "V", error, PrecisionClassName(c), limit);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status StoreImpl::CheckPutLocked(const PutSpec& spec) const {
  FIRN_RETURN_IF_ERROR(CheckNamespaceLocked(spec.address.ns));
  const NamespaceFacts& facts = namespaces_[spec.address.ns].facts;
  if (stopping_ || draining_) return Unavailable("the store is stopping");
  if (spec.tokens == 0 || spec.tokens > facts.block_tokens) {
    return InvalidArgument("a block of {} tokens was put; this namespace's blocks have 1 to {}", spec.tokens,
                           facts.block_tokens);
  }
  if (uint64_t{spec.first_token} + spec.tokens > std::numeric_limits<uint32_t>::max()) {
    return InvalidArgument("first_token = {} was given for a block of {} tokens; at most {}", spec.first_token,
                           spec.tokens, std::numeric_limits<uint32_t>::max() - spec.tokens);
  }
  if (spec.address.shard >= facts.shards) {
    return InvalidArgument("shard {} was put; this namespace has shards 0 to {}", spec.address.shard, facts.shards - 1);
  }
  if (spec.ttl_ms < 0) return InvalidArgument("a time to live of {} ms was given; it is 0 (none) or more", spec.ttl_ms);
  if (spec.session != 0 && !sessions_.contains(spec.session))
    return FailedPrecondition("session {} is not open", spec.session);
  if (spec.ack == AckLevel::kDurable && !PersistentTier().has_value()) {
    return FailedPrecondition("a durable acknowledgement was asked for, and no tier of this daemon is persistent");
  }
  return absl::OkStatus();
}

absl::Status StoreImpl::CheckTokensLocked(const PutSpec& spec) const {
  // Outwards from the shard that is put: shards come in order, nearly always, so the next one is often there.
  const auto shards = static_cast<int64_t>(namespaces_[spec.address.ns].facts.shards);
  for (int64_t away = 0; away < shards; ++away) {
    for (int64_t shard : {spec.address.shard - away, spec.address.shard + away}) {
      if (shard < 0 || shard >= shards) continue;
      EntryId id = table_.Find({spec.address.ns, static_cast<uint16_t>(shard), spec.address.key});
      if (id == kNoEntry || ExpiredLocked(table_.entry(id))) continue;
      if (table_.entry(id).tokens == spec.tokens) return absl::OkStatus();
      return FailedPrecondition("block {} has {} tokens; {} were put under the same key", spec.address.key.Hex(),
                                table_.entry(id).tokens, spec.tokens);
    }
  }
  return absl::OkStatus();
}

absl::Status StoreImpl::CheckPackedLocked(const PutSpec& spec) const {
  const RecordHeader& header = *spec.packed;
  const NamespaceState& ns = namespaces_[spec.address.ns];
  if (spec.from_device) return InvalidArgument("a packed record does not come from device memory");
  if (header.dtype != ns.facts.dtype || header.shape != ns.facts.Shape(spec.tokens)) {
    return InvalidArgument(
        "a packed record of {} tokens of {} was put; its shape or type is not that of {} tokens of "
        "this namespace, whose values are {}",
        header.shape.tokens, DTypeName(header.dtype), spec.tokens, DTypeName(ns.facts.dtype));
  }
  if (header.identity.shard != spec.address.shard) {
    return InvalidArgument("shard = {}; the packed record is of shard {}, whose heads it was coded for",
                           spec.address.shard, header.identity.shard);
  }
  if (header.first_token != spec.first_token) {
    return InvalidArgument("first_token = {}; the packed record's is {}", spec.first_token, header.first_token);
  }
  const ClassPair served = ClassOf(header, header.encoded);
  for (Part part : kParts) {
    if (header.shape.part(part).width == 0) continue;
    const char* name = part == Part::kK ? "K" : "V";
    const PrecisionClass has = Of(served, part), floor = Of(ns.plan.floor, part);
    if (has < floor) {
      return FailedPrecondition("{} of a packed record is {}; the namespace's floor is {}", name,
                                PrecisionClassName(has), PrecisionClassName(floor));
    }
  }
  return CheckPackedErrors(header, ns.plan.max_relative_error);
}

absl::Status StoreImpl::CheckPackedRecord(const RecordHeader& header) const {
  absl::Status whole = CheckRecord(header);
  if (!whole.ok()) return InvalidArgument("a packed record: {}", Message(whole));
  for (Part part : kParts) {
    if (header.shape.part(part).width == 0) continue;
    const PartCoding& coding = header.CodingOf(part);
    FIRN_ASSIGN_OR_RETURN(auto artifact, ArtifactFor(coding, EncodeSpec{}, artifacts_));
    FIRN_RETURN_IF_ERROR(CheckArtifactFor(coding, header.shape.part(part), header.identity.shard, std::move(artifact)));
  }
  return absl::OkStatus();
}

ClassPair StoreImpl::OfferedLocked(const PutSpec& spec) const {
  const NamespaceFacts& facts = namespaces_[spec.address.ns].facts;
  ClassPair offered = SourceClass(facts.dtype, facts.Shape(spec.tokens));
  if (spec.packed != nullptr) offered = Coarser(offered, ClassOf(*spec.packed, spec.packed->encoded));
  return offered;
}

absl::StatusOr<EncodePlan> StoreImpl::PlanPut(const PutSpec& spec, const Identity& identity,
                                              const NamespaceFacts& facts) const {
  if (spec.packed == nullptr) return PlanIdentity(identity, facts.dtype, facts.Shape(spec.tokens));
  EncodePlan plan;
  plan.header = *spec.packed;
  plan.header.identity = identity;
  plan.header.expires_unix_ms = 0;
  plan.layout = LayoutOf(plan.header);
  return plan;
}

void StoreImpl::EnsureDurable(const BlockAddress& address, absl::AnyInvocable<void(absl::StatusOr<PutResult>)> done) {
  EntryName name{address.ns, address.shard, address.key};
  PutResult result;
  absl::Status refused;
  bool there = false;
  {
    std::lock_guard lock(mu_);
    std::optional<uint8_t> to = PersistentTier();
    refused = CheckNamespaceLocked(address.ns);
    if (refused.ok() && !to.has_value()) refused = FailedPrecondition("no tier of this daemon is persistent");
    EntryId id = refused.ok() ? table_.Find(name) : kNoEntry;
    if (refused.ok() && (id == kNoEntry || ExpiredLocked(table_.entry(id)))) {
      refused = NotFound("miss: block {}", name.key.Hex());
    }
    if (refused.ok()) {
      const Entry& e = table_.entry(id);
      result.generation = e.generation;
      result.stored_class = BestClassLocked(id);
      const HeldCopy* held = table_.FindCopy(id, *to);
      there = held != nullptr && held->served.AtLeast(TargetForLocked(e, *to, result.stored_class));
      if (there) result.durable_class = held->served;
    }
  }
  if (!refused.ok()) return done(std::move(refused));
  if (!there) return MakeDurable(name, result.generation, result, std::move(done));
  FlushPersistentTiers([result, done = std::move(done)](absl::Status flushed) mutable {
    if (flushed.ok()) return done(result);
    done(std::move(flushed));
  });
}

absl::StatusOr<std::unique_ptr<InFlightPut>> StoreImpl::BeginPut(const PutSpec& spec) {
  FIRN_RETURN_IF_ERROR(CheckImportance("token_importance", spec.token_importance, spec.tokens));
  if (spec.packed != nullptr) FIRN_RETURN_IF_ERROR(CheckPackedRecord(*spec.packed));
  EntryName name{spec.address.ns, spec.address.shard, spec.address.key};
  EncodePlan plan;
  bool refines = false;
  {
    Aftermath after(this);
    std::lock_guard lock(mu_);
    FIRN_RETURN_IF_ERROR(CheckPutLocked(spec));
    const NamespaceState& ns = namespaces_[name.ns];
    if (spec.packed != nullptr) FIRN_RETURN_IF_ERROR(CheckPackedLocked(spec));
    const ClassPair offered = OfferedLocked(spec);
    EntryId existing = table_.Find(name);
    if (existing != kNoEntry && ExpiredLocked(table_.entry(existing))) {
      ++totals_.expired;
      EraseEntryLocked(existing, &after);
      existing = kNoEntry;
    }
    FIRN_RETURN_IF_ERROR(CheckTokensLocked(spec));
    if (existing != kNoEntry && ServesLocked(existing, offered)) {
      ++totals_.puts_existing;
      policy_->Access(table_.entry(existing).first_copy);
      UseInWindowLocked(existing);
      return AlreadyExists("block {} is stored at this precision or a finer one", name.key.Hex());
    }
    if (puts_.contains(name)) return Aborted("a put of block {} is in flight", name.key.Hex());
    // A finer form of a block that is here keeps its generation: the coarser copies below are the same block and stay
    // good, so that what was durable stays durable until a finer copy takes its place there.
    uint64_t generation = existing != kNoEntry ? table_.entry(existing).generation : ++last_generation_;
    refines = existing != kNoEntry;
    FIRN_ASSIGN_OR_RETURN(plan, PlanPut(spec, {ns.fingerprint, name.key, name.shard, generation}, ns.facts));
    uint64_t bytes = plan.layout.TotalBytes();
    if (!EntryTier(bytes, 0).has_value()) {
      uint64_t largest = 0;
      for (const TierConfig& tier : options_.tiers) largest = std::max(largest, tier.tier->Usage().capacity_bytes);
      return InvalidArgument("a block of {} bytes was put; the largest tier has a capacity of {} bytes", bytes,
                             largest);
    }
    if (totals_.puts_in_flight_bytes + bytes > options_.puts_in_flight_bytes_max) {
      return ResourceExhausted("puts in flight hold {} bytes; {} more would pass the limit of {}",
                               totals_.puts_in_flight_bytes, bytes, options_.puts_in_flight_bytes_max);
    }
    puts_.emplace(
        name,
        PutInFlight{.session = spec.session, .bytes = bytes, .turn = spec.turn, .cancelled = false, .followers = {}});
    totals_.puts_in_flight_bytes += bytes;
  }
  plan.header.parent = spec.parent;
  plan.header.first_token = spec.first_token;
  if (spec.ttl_ms > 0) plan.header.expires_unix_ms = options_.clock->UnixMs() + spec.ttl_ms;
  auto put = std::make_unique<InFlightPutImpl>(this, spec, std::move(plan), refines);
  absl::Status refused = TakeEntryRoom(put.get());
  if (refused.ok()) return put;
  put->set_published();  // Nothing to abort: it never began.
  {
    std::lock_guard lock(mu_);
    WithdrawPutLocked(name);
    if (WantsRoom(refused)) RaiseDemandLocked(put->tier(), put->plan().layout.TotalBytes());
  }
  Pump();
  return refused;
}

std::optional<uint8_t> StoreImpl::EntryTier(uint64_t bytes, size_t first) const {
  for (size_t tier = first; tier < options_.tiers.size(); ++tier) {
    const Tier& medium = *options_.tiers[tier].tier;
    if (medium.available() && bytes <= medium.Usage().capacity_bytes) return static_cast<uint8_t>(tier);
  }
  return std::nullopt;
}

absl::Status StoreImpl::TakeEntryRoom(InFlightPutImpl* put) {
  const RecordHeader& header = put->plan().header;
  const bool from_device = put->spec().from_device;
  uint64_t bytes = put->plan().layout.TotalBytes();
  absl::Status refused = from_device ? FailedPrecondition("no tier takes values from device memory, as they are, now")
                                     : Unavailable("no tier takes a block of {} bytes now", bytes);
  for (auto tier = EntryTier(bytes, 0); tier.has_value(); tier = EntryTier(bytes, *tier + size_t{1})) {
    const TierConfig& config = options_.tiers[*tier];
    bool as_they_are = config.precision.AtLeast(put->offered());
    if (from_device && (!as_they_are || config.tier->device_mover() == nullptr)) continue;
    put->set_tier(*tier);
    if (!as_they_are) {
      put->Stage();
      return absl::OkStatus();
    }
    auto draft = from_device ? config.tier->ReserveForImport(LayoutOf(header)) : config.tier->Reserve(LayoutOf(header));
    if (draft.ok()) {
      put->draft() = *std::move(draft);
      return absl::OkStatus();
    }
    refused = draft.status();
    // A medium that went meanwhile, or that never takes so much at a time, leaves the block to the next.
    if (!absl::IsUnavailable(refused) && !absl::IsInvalidArgument(refused)) break;
  }
  return refused;
}

void StoreImpl::WithdrawPutLocked(const EntryName& name) {
  auto it = puts_.find(name);
  FIRN_CHECK(it != puts_.end());
  totals_.puts_in_flight_bytes -= it->second.bytes;
  puts_.erase(it);
}

void StoreImpl::AbortPut(const EntryName& name) {
  std::lock_guard lock(mu_);
  WithdrawPutLocked(name);
  ++totals_.puts_aborted;
  ScheduleRoomWaitersLocked();
}

void StoreImpl::CommitPut(std::unique_ptr<InFlightPut> put, absl::AnyInvocable<void(absl::StatusOr<PutResult>)> done) {
  FIRN_CHECK(put != nullptr);
  std::shared_ptr<InFlightPutImpl> shared(static_cast<InFlightPutImpl*>(put.release()));
  options_.executor->Post([this, put = std::move(shared), done = std::move(done)]() mutable {
    {
      std::lock_guard lock(mu_);
      RenewIfAloneLocked(*put);
    }
    std::shared_ptr<const RecordHeader> imported;
    {
      std::lock_guard lock(put->imported()->mu);
      imported = put->imported()->header;
    }
    if (imported != nullptr) {
      if (imported->identity != put->plan().header.identity) {
        return FailPut(std::move(put),
                       Aborted("block {} left while a finer form of it was being put", put->name().key.Hex()),
                       std::move(done));
      }
      std::unique_ptr<Draft> draft = std::move(put->draft());
      return CommitEntry(std::move(put), std::move(draft), std::move(imported), true, std::move(done));
    }
    if (put->spec().from_device) {
      return FailPut(std::move(put), FailedPrecondition("the put has not been filled from device memory"),
                     std::move(done));
    }
    auto header = std::make_shared<RecordHeader>(put->plan().header);
    absl::Status sealed = put->Seal(header.get());
    if (!sealed.ok()) return FailPut(std::move(put), std::move(sealed), std::move(done));
    if (put->draft() == nullptr) {
      return EncodeForEntry(std::move(put), std::move(header), options_.clock->NowNs() + kRoomPatienceNs,
                            std::move(done));
    }
    std::unique_ptr<Draft> draft = std::move(put->draft());
    CommitEntry(std::move(put), std::move(draft), std::move(header), false, std::move(done));
  });
}

void StoreImpl::EncodeForEntry(std::shared_ptr<InFlightPutImpl> put, std::shared_ptr<RecordHeader> header,
                               int64_t retry_until_ns, absl::AnyInvocable<void(absl::StatusOr<PutResult>)> done) {
  EncodeSpec spec;
  {
    std::lock_guard lock(mu_);
    Entry e;
    e.ns = put->spec().address.ns;
    spec = SpecForLocked(e.ns, put->tier(), put->ranks());
    spec.target = TargetForLocked(e, put->tier(), put->offered());
  }
  EncodedBlock source = put->View(header);
  std::shared_ptr<const RecordHeader> encoded;
  auto draft = EncodeIntoTier(source, spec, options_.tiers[put->tier()].tier.get(), &encoded);
  if (draft.status().code() == absl::StatusCode::kResourceExhausted && options_.clock->NowNs() < retry_until_ns) {
    bool waits = false;
    {
      std::lock_guard lock(mu_);
      waits = !stopping_ && !draining_;
      if (WantsRoom(draft.status())) RaiseDemandLocked(put->tier(), source.Layout(source.present).TotalBytes());
      if (waits) {
        commit_waiters_.push_back([this, put, header, retry_until_ns, done = std::move(done)]() mutable {
          EncodeForEntry(std::move(put), std::move(header), retry_until_ns, std::move(done));
        });
      }
    }
    if (!waits) return FailPut(std::move(put), draft.status(), std::move(done));
    return Pump();
  }
  if (absl::IsUnavailable(draft.status())) {
    // That tier went away: the next one takes it.
    if (auto tier = EntryTier(source.Layout(source.present).TotalBytes(), put->tier() + size_t{1}); tier.has_value()) {
      put->set_tier(*tier);
      return EncodeForEntry(std::move(put), std::move(header), retry_until_ns, std::move(done));
    }
  }
  if (!draft.ok()) return FailPut(std::move(put), draft.status(), std::move(done));
  CommitEntry(std::move(put), *std::move(draft), std::move(encoded), false, std::move(done));
}

bool StoreImpl::RenewIfAloneLocked(InFlightPutImpl& put) {
  if (!put.refines() || FindByIdentityLocked(put.plan().header.identity) != kNoEntry) return false;
  // Records of the block that left may have been struck from the log, and its generation is spent with them.
  put.Renew(++last_generation_);
  return true;
}

void StoreImpl::CommitRenewed(std::shared_ptr<InFlightPutImpl> put, std::shared_ptr<const RecordHeader> header,
                              CopyPtr copy, absl::AnyInvocable<void(absl::StatusOr<PutResult>)> done) {
  Tier* hot = options_.tiers[put->tier()].tier.get();
  hot->Read(copy, header->identity, header->encoded,
            [this, hot, put, header, copy, done = std::move(done)](absl::StatusOr<EncodedBlock> old) mutable {
              hot->Forget(copy, header->identity);
              copy.reset();
              if (!old.ok()) return FailPut(std::move(put), old.status(), std::move(done));
              auto renewed = std::make_shared<RecordHeader>(*header);
              renewed->identity = put->plan().header.identity;
              auto draft = hot->Reserve(LayoutOf(*renewed));
              if (!draft.ok()) return FailPut(std::move(put), draft.status(), std::move(done));
              std::array<RunBytes, kRunIds> runs;
              for (uint32_t run = 0; run < kRunIds; ++run) {
                CopyScattered(old->runs[run], (*draft)->runs()[run]);
                runs[run] = (*draft)->runs()[run];
              }
              ComputeChecks(renewed.get(), renewed->encoded, runs);
              *old = {};
              CommitEntry(std::move(put), *std::move(draft), std::move(renewed), false, std::move(done));
            });
}

void StoreImpl::FailPut(std::shared_ptr<InFlightPutImpl>&& put, absl::Status status,
                        absl::AnyInvocable<void(absl::StatusOr<PutResult>)> done) {
  put.reset();
  {
    std::lock_guard lock(mu_);
    ++totals_.puts_failed;
  }
  done(std::move(status));
}

void StoreImpl::CommitEntry(std::shared_ptr<InFlightPutImpl> put, std::unique_ptr<Draft> draft,
                            std::shared_ptr<const RecordHeader> header, bool in_place,
                            absl::AnyInvocable<void(absl::StatusOr<PutResult>)> done) {
  CommitOptions commit;
  commit.returned = std::make_shared<std::unique_ptr<Draft>>();
  commit.in_place = in_place;
  options_.tiers[put->tier()].tier->Commit(
      std::move(draft), header, commit,
      [this, put, header, returned = commit.returned, done = std::move(done)](absl::StatusOr<CopyPtr> copy) mutable {
        if (copy.ok()) {
          return PublishPut(std::move(put), std::move(header), *std::move(copy), std::move(*returned), std::move(done));
        }
        if (*returned == nullptr) return FailPut(std::move(put), copy.status(), std::move(done));
        EnterElsewhere(std::move(put), std::move(*returned), std::move(header), std::move(done));
      });
}

void StoreImpl::EnterElsewhere(std::shared_ptr<InFlightPutImpl> put, std::unique_ptr<Draft> draft,
                               std::shared_ptr<const RecordHeader> header,
                               absl::AnyInvocable<void(absl::StatusOr<PutResult>)> done) {
  auto tier = EntryTier(draft->layout().TotalBytes(), put->tier() + size_t{1});
  if (!tier.has_value()) {
    return FailPut(
        std::move(put),
        Unavailable("tier \"{}\" went away, and none behind it takes the block", options_.tiers[put->tier()].name),
        std::move(done));
  }
  put->set_tier(*tier);
  auto source = std::make_shared<RecordHeader>(*header);
  if (put->staged()) {
    // The put has the values as they came; what was to enter that tier was coded from them.
    draft = nullptr;
    *source = put->plan().header;
    absl::Status sealed = put->Seal(source.get());
    if (!sealed.ok()) return FailPut(std::move(put), std::move(sealed), std::move(done));
  } else {
    put->Hold(std::move(draft));
  }
  EncodeForEntry(std::move(put), std::move(source), options_.clock->NowNs() + kRoomPatienceNs, std::move(done));
}

void StoreImpl::PublishPut(std::shared_ptr<InFlightPutImpl> put, std::shared_ptr<const RecordHeader> header,
                           CopyPtr copy, std::unique_ptr<Draft> filled,
                           absl::AnyInvocable<void(absl::StatusOr<PutResult>)> done) {
  const EntryName name = put->name();
  PutResult result;
  bool cancelled = false, renewed = false, gone = false;
  {
    Aftermath after(this);
    std::lock_guard lock(mu_);
    auto flight = puts_.find(name);
    FIRN_CHECK(flight != puts_.end());
    cancelled = flight->second.cancelled || stopping_;
    // Its tier lost everything after it had taken this, and has said so already.
    gone = !cancelled && copy->Runs().Empty() && !header->encoded.Empty();
    renewed = !cancelled && !gone && RenewIfAloneLocked(*put);
    if (gone) {
      after.Forget(put->tier(), std::move(copy), header->identity);
    } else if (renewed) {
      // The checksums of what was committed are those of the generation that is spent.
    } else if (cancelled) {
      after.Forget(put->tier(), std::move(copy), header->identity);
    } else {
      const std::vector<EntryName> followers = std::move(flight->second.followers);
      WithdrawPutLocked(name);
      put->set_published();
      EntryId id = table_.Find(name);
      if (id != kNoEntry) {
        ++totals_.puts_replaced;
        // The coarser copies in memory are of no more use; those on persistent media stay until a finer one gets there.
        for (uint8_t tier = 0; tier < options_.tiers.size(); ++tier) {
          if (!options_.tiers[tier].tier->persistent() && table_.FindCopy(id, tier) != nullptr)
            DropCopyLocked(id, tier, &after);
        }
      } else {
        id = table_.Insert(name);
      }
      Entry& e = table_.entry(id);
      e.generation = header->identity.generation;
      e.first_token = header->first_token;
      e.tokens = header->shape.tokens;
      e.expires_unix_ms = header->expires_unix_ms;
      e.flags &= static_cast<uint16_t>(~Entry::kNonFinite);
      if (header->flags & RecordHeader::kNonFinite) e.flags |= Entry::kNonFinite;
      if (e.expires_unix_ms != 0) expiries_.push({e.expires_unix_ms, name, e.generation});
      LinkFamilyLocked(id, header->parent, followers);
      result.stored = true;
      result.generation = e.generation;
      result.stored_class = ClassOf(*header, header->encoded);
      result.bytes = header->RunBytes(header->encoded);
      // A persistent tier that a put enters may have a coarser copy.
      if (table_.FindCopy(id, put->tier()) != nullptr) DropCopyLocked(id, put->tier(), &after);
      HoldCopyLocked(id, put->tier(), std::move(copy), result.stored_class);
      KeepWindowsShareLocked(put->tier());
      SetRanksLocked(id, put->ranks());
      ++totals_.puts_stored;
      totals_.put_bytes += result.bytes;
      if (e.flags & Entry::kNonFinite) ++totals_.nonfinite_blocks;
      filled = nullptr;
      ScheduleRoomWaitersLocked();  // The draft may have held what others wait for.
      EmitLocked(EventKind::kStored, e, put->tier(), result.stored_class, &after);
    }
  }
  if (gone && filled != nullptr) {
    return EnterElsewhere(std::move(put), std::move(filled), std::move(header), std::move(done));
  }
  filled = nullptr;
  if (gone) {
    return FailPut(std::move(put),
                   Unavailable("tier \"{}\" went away with block {}", options_.tiers[put->tier()].name, name.key.Hex()),
                   std::move(done));
  }
  if (renewed) return CommitRenewed(std::move(put), std::move(header), std::move(copy), std::move(done));
  const PutSpec spec = put->spec();
  put.reset();
  if (cancelled)
    return done(Aborted("block {} was removed, or its session ended, while it was being put", name.key.Hex()));
  if (spec.ack == AckLevel::kDurable) {
    MakeDurable(name, result.generation, result, std::move(done));
  } else {
    done(result);
  }
  Pump();
}

}  // namespace firn
