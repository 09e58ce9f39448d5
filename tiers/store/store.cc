// Creation, namespaces, artifacts, sessions and statistics.
#include "tiers/store/store.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "tiers/policy/prefix_lru.h"
#include "tiers/store/store_impl.h"

namespace firn {
namespace {

constexpr size_t kSessionsMax = 65536;

}  // namespace

std::string_view MissReasonName(MissReason reason) {
  static constexpr std::string_view kNames[kMissReasons] = {"unknown", "expired",     "precision",
                                                            "damaged", "read_failed", "shard"};
  return kNames[static_cast<size_t>(reason)];
}

ClassPair SourceClass(DType dtype, const BlockShape& shape) {
  PrecisionClass c =
      dtype == DType::kFp8E4m3 || dtype == DType::kFp8E5m2 ? PrecisionClass::k8Bit : PrecisionClass::kExact;
  return {shape.k_width == 0 ? PrecisionClass::kExact : c, shape.v_width == 0 ? PrecisionClass::kExact : c};
}

ClassPair Coarser(const ClassPair& a, const ClassPair& b) { return {std::min(a.k, b.k), std::min(a.v, b.v)}; }
ClassPair Finer(const ClassPair& a, const ClassPair& b) { return {std::max(a.k, b.k), std::max(a.v, b.v)}; }

RunMask WantedRuns(const ClassPair& target) {
  RunMask runs;
  for (Part part : kParts) {
    PrecisionClass c = part == Part::kK ? target.k : target.v;
    for (RunKind kind : {RunKind::kMeta, RunKind::kExact, RunKind::kP2, RunKind::kWhole})
      runs |= RunMask::Of(kind, part);
    if (c > PrecisionClass::k2Bit) runs |= RunMask::Of(RunKind::kP4, part);
    if (c > PrecisionClass::k4Bit) runs |= RunMask::Of(RunKind::kP8, part);
  }
  return runs;
}

std::shared_ptr<const Artifact> ArtifactTable::Find(const Digest& digest) const {
  std::lock_guard lock(mu_);
  auto it = artifacts_.find(digest);
  return it == artifacts_.end() ? nullptr : it->second;
}

void ArtifactTable::Add(std::shared_ptr<const Artifact> artifact) {
  std::lock_guard lock(mu_);
  Digest digest = artifact->digest();
  uint64_t bytes = artifact->serialized().size();
  if (artifacts_.emplace(digest, std::move(artifact)).second) bytes_ += bytes;
}

uint64_t ArtifactTable::bytes() const {
  std::lock_guard lock(mu_);
  return bytes_;
}

Aftermath::~Aftermath() {
  for (Forgotten& gone : forgotten_) store_->options_.tiers[gone.tier].tier->Forget(gone.copy, gone.identity);
  forgotten_.clear();
  released_.clear();
  for (Task& task : tasks_) task();
}

absl::StatusOr<std::unique_ptr<Store>> Store::Create(StoreOptions options) {
  if (options.tiers.empty() || options.tiers.size() > kTiersMax) {
    return InvalidArgument("the chain has {} tiers; it has 1 to {}", options.tiers.size(), kTiersMax);
  }
  if (options.executor == nullptr || options.clock == nullptr)
    return InvalidArgument("the store needs an executor and a clock");
  ClassPair hotter{PrecisionClass::kExact, PrecisionClass::kExact};
  for (const TierConfig& config : options.tiers) {
    // What a persistent tier says of a block (ColdEvents) is about the one there is.
    if (config.tier != nullptr && config.tier->persistent() && &config != &options.tiers.back()) {
      return InvalidArgument("tier \"{}\" is persistent; only the last tier may be", config.name);
    }
    if (config.tier == nullptr) return InvalidArgument("tier \"{}\" has no medium", config.name);
    if (config.precision.Min() == PrecisionClass::kNone)
      return InvalidArgument("tier \"{}\" has no precision", config.name);
    if (!hotter.AtLeast(config.precision)) {
      return InvalidArgument(
          "tier \"{}\" (k {}, v {}) is finer than the tier above it (k {}, v {}); precision only falls down the chain",
          config.name, PrecisionClassName(config.precision.k), PrecisionClassName(config.precision.v),
          PrecisionClassName(hotter.k), PrecisionClassName(hotter.v));
    }
    if (!config.precision.AtLeast(config.least))
      return InvalidArgument("tier \"{}\": `least` is finer than `precision`", config.name);
    if (!(config.low_watermark > 0 && config.low_watermark <= config.high_watermark && config.high_watermark <= 1)) {
      return InvalidArgument("tier \"{}\": watermarks are low {} and high {}; 0 < low <= high <= 1", config.name,
                             config.low_watermark, config.high_watermark);
    }
    hotter = config.precision;
  }
  return std::unique_ptr<Store>(new StoreImpl(std::move(options)));
}

StoreImpl::StoreImpl(StoreOptions options)
    : options_(std::move(options)),
      policy_(std::make_unique<PrefixLru>(this)),
      events_(options_.events_kept),
      tiers_(options_.tiers.size()) {
  // Later than any generation that an earlier process can have given, even where nothing was recovered to prove it.
  last_generation_ = static_cast<uint64_t>(std::max<int64_t>(0, options_.clock->UnixMs())) << 16;
}

StoreImpl::~StoreImpl() = default;

NodeId StoreImpl::ParentNode(NodeId node) const {
  const HeldCopy& held = table_.copy(node);
  EntryId parent = table_.entry(held.entry).parent;
  return parent == kNoEntry ? kNoNode : table_.FindCopyNode(parent, held.tier);
}

absl::Status StoreImpl::CheckNamespaceLocked(NamespaceId ns) const {
  if (ns >= namespaces_.size() || namespaces_[ns].removed) return NotFound("namespace {} is not registered", ns);
  return absl::OkStatus();
}

Identity StoreImpl::IdentityOfLocked(const Entry& e) const {
  return {namespaces_[e.ns].fingerprint, e.key, e.shard, e.generation};
}

absl::Status StoreImpl::CheckPlanLocked(const NamespaceFacts& facts, const PrecisionPlan& plan) const {
  FIRN_RETURN_IF_ERROR(ValidatePlan(facts, plan));
  if (plan.key_method == KeyMethod::kBalancedRotated) {
    PartCoding keys;
    keys.codec = CodecId::kNestedToken;
    keys.flags = PartCoding::kRotated | PartCoding::kCentred | PartCoding::kBalanced;
    keys.artifact = plan.balance;
    FIRN_RETURN_IF_ERROR(CheckArtifact(facts, Part::kK, keys));
  }
  for (const TierRule& rule : plan.rules) {
    if (!rule.coding.artifact.IsZero()) FIRN_RETURN_IF_ERROR(CheckArtifact(facts, rule.part, rule.coding));
  }
  return absl::OkStatus();
}

absl::Status StoreImpl::CheckPlanNames(const PrecisionPlan& plan) const {
  auto known = [this](const std::string& name) {
    return std::any_of(options_.tiers.begin(), options_.tiers.end(),
                       [&](const TierConfig& tier) { return tier.name == name; });
  };
  for (const TierRule& rule : plan.rules) {
    if (!rule.tier.empty() && !known(rule.tier))
      return InvalidArgument("a rule for tier \"{}\"; the daemon has no such tier", rule.tier);
  }
  for (const auto& [name, target] : plan.tier_target) {
    if (!known(name)) return InvalidArgument("tier_target names tier \"{}\"; the daemon has no such tier", name);
  }
  if (plan.key_method != KeyMethod::kBalancedRotated && !plan.balance.IsZero()) {
    return InvalidArgument("balance_artifact {} was given; only key_method balanced_rotated uses one",
                           plan.balance.Hex());
  }
  return absl::OkStatus();
}

absl::Status StoreImpl::CheckArtifact(const NamespaceFacts& facts, Part part, const PartCoding& coding) const {
  auto artifact = artifacts_.Find(coding.artifact);
  if (artifact == nullptr) {
    return FailedPrecondition(
        "artifact {} is not known here; put it first (PutArtifact, `firn calibrate --register`, or a plan file that "
        "names it by its file)",
        coding.artifact.Hex());
  }
  uint32_t heads = facts.kv_heads * facts.shards, width = part == Part::kK ? facts.k_width : facts.v_width;
  if (artifact->layers() != facts.layers() || (artifact->heads() != heads && artifact->heads() != facts.kv_heads) ||
      artifact->width() != width) {
    return InvalidArgument("artifact {} is for {} layers, {} heads and width {}; the namespace has {}, {} and {}",
                           coding.artifact.Hex(), artifact->layers(), artifact->heads(), artifact->width(),
                           facts.layers(), heads, width);
  }
  // The sections that this coding reads, looked for as decoding will.
  return CheckArtifactFor(coding, {facts.layers(), facts.kv_heads, 1, width}, 0, std::move(artifact));
}

void StoreImpl::AddNamespaceLocked(const NamespaceFacts& facts, const PrecisionPlan& plan, NamespaceId* id) {
  Digest fingerprint = NamespaceFingerprint(facts);
  auto [it, added] = namespace_by_fingerprint_.try_emplace(fingerprint, static_cast<NamespaceId>(namespaces_.size()));
  if (added) namespaces_.emplace_back();
  NamespaceState& state = namespaces_[it->second];
  state.facts = facts;
  state.plan = plan;
  state.fingerprint = fingerprint;
  state.balance = plan.key_method == KeyMethod::kBalancedRotated ? artifacts_.Find(plan.balance) : nullptr;
  state.codings.clear();
  for (const TierConfig& tier : options_.tiers) state.codings.push_back(CodingsFor(plan, tier));
  *id = it->second;
}

absl::StatusOr<NamespaceId> StoreImpl::FindNamespace(const Digest& fingerprint) const {
  std::lock_guard lock(mu_);
  auto it = namespace_by_fingerprint_.find(fingerprint);
  if (it == namespace_by_fingerprint_.end()) return NotFound("namespace {} is not registered", fingerprint.Hex());
  return it->second;
}

absl::StatusOr<NamespaceFacts> StoreImpl::Facts(NamespaceId ns) const {
  std::lock_guard lock(mu_);
  FIRN_RETURN_IF_ERROR(CheckNamespaceLocked(ns));
  return namespaces_[ns].facts;
}

absl::StatusOr<PrecisionPlan> StoreImpl::Plan(NamespaceId ns) const {
  std::lock_guard lock(mu_);
  FIRN_RETURN_IF_ERROR(CheckNamespaceLocked(ns));
  return namespaces_[ns].plan;
}

std::vector<NamespaceId> StoreImpl::ListNamespaces(std::string_view tenant) const {
  std::lock_guard lock(mu_);
  std::vector<NamespaceId> ids;
  for (NamespaceId id = 0; id < namespaces_.size(); ++id) {
    if (!namespaces_[id].removed && namespaces_[id].facts.tenant == tenant) ids.push_back(id);
  }
  return ids;
}

SessionId StoreImpl::OpenSession(std::string_view tenant) {
  std::lock_guard lock(mu_);
  if (sessions_.size() >= kSessionsMax) return 0;
  SessionId id = ++last_session_;
  sessions_[id].tenant = std::string(tenant);
  return id;
}

void StoreImpl::CloseSession(SessionId session) {
  std::lock_guard lock(mu_);
  auto it = sessions_.find(session);
  if (it == sessions_.end()) return;
  for (const auto& [name, count] : it->second.pins) {
    pins_ -= count;
    EntryId id = table_.Find(name);
    if (id == kNoEntry) continue;
    Entry& e = table_.entry(id);
    FIRN_CHECK(e.pins >= count);
    e.pins -= count;
  }
  for (auto& [name, put] : puts_) {
    if (put.session == session) put.cancelled = true;
  }
  sessions_.erase(it);
}

StoreStats StoreImpl::Stats() const {
  std::lock_guard lock(mu_);
  StoreStats out = totals_;
  for (size_t i = 0; i < options_.tiers.size(); ++i) {
    const TierState& state = tiers_[i];
    TierStats tier;
    tier.name = options_.tiers[i].name;
    tier.usage = options_.tiers[i].tier->Usage();
    tier.counters = options_.tiers[i].tier->Counters();
    tier.hits = state.hits;
    tier.demotions_in = state.demotions_in;
    tier.demotion_latency = state.demotion_latency.Snapshot();
    tier.demotion_failures = state.demotion_failures;
    tier.promotions_in = state.promotions_in;
    tier.degrades = state.degrades;
    tier.degraded_bytes = state.degraded_bytes;
    tier.evictions = state.evictions;
    tier.evictor_found_nothing = state.found_nothing;
    tier.recent_broken = state.recent_broken;
    tier.damaged_reads = state.damaged_reads;
    tier.mended = state.mended;
    tier.damage_degraded = state.damage_degraded;
    tier.damage_withdrawn = state.damage_withdrawn;
    tier.scrubbed_copies = state.scrubbed_copies;
    tier.scrubbed_bytes = state.scrubbed_bytes;
    tier.scrub_findings = state.scrub_findings;
    std::copy(state.by_class.begin(), state.by_class.end(), tier.blocks_by_class);
    out.tiers.push_back(std::move(tier));
  }
  out.blocks = table_.size();
  out.index_bytes = table_.MemoryBytes() + windows_.MemoryBytes();
  out.recent_blocks = windows_.blocks();
  out.namespaces = namespace_by_fingerprint_.size();
  out.sessions = sessions_.size();
  out.pins = pins_;
  out.readers = readers_;
  out.puts_in_flight = puts_.size();
  out.moves_in_flight = moves_in_flight_;
  out.events_lost = events_.lost();
  AddScrubStatsLocked(&out);
  return out;
}

std::vector<BlockEvent> StoreImpl::Events(uint64_t after, size_t limit, bool* gap) const {
  std::lock_guard lock(mu_);
  return events_.After(after, limit, gap);
}

void StoreImpl::WhenEvents(uint64_t after, Task wake) {
  {
    std::lock_guard lock(mu_);
    if (!stopping_ && events_.Wait(after, wake)) return;
  }
  wake();
}

}  // namespace firn
