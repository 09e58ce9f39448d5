// Namespaces, plans and artifacts: known here, and kept where a restart finds them.
#include <utility>

#include "base/status.h"
#include "tiers/store/store_impl.h"

namespace firn {

void StoreImpl::SetFactWriter(FactWriter writer) {
  std::lock_guard lock(mu_);
  fact_writer_ = std::move(writer);
}

void StoreImpl::RegisterNamespace(const NamespaceFacts& facts, const PrecisionPlan& plan,
                                  absl::AnyInvocable<void(absl::StatusOr<NamespaceId>)> done) {
  absl::Status valid = ValidateFacts(facts);
  if (!valid.ok()) return done(valid);
  NamespaceId id = 0;
  bool refit = false;
  {
    std::lock_guard lock(mu_);
    absl::Status plan_ok = CheckPlanLocked(facts, plan);
    auto it = namespace_by_fingerprint_.find(NamespaceFingerprint(facts));
    bool as_before = it != namespace_by_fingerprint_.end() && namespaces_[it->second].plan == plan;
    bool same = as_before && namespaces_[it->second].saved;
    if (plan_ok.ok() && !as_before) plan_ok = CheckPlanNames(plan);
    if (plan_ok.ok() && it == namespace_by_fingerprint_.end() &&
        namespace_by_fingerprint_.size() >= options_.namespaces_max) {
      plan_ok = ResourceExhausted("{} namespaces are registered; at most {}", namespace_by_fingerprint_.size(),
                                  options_.namespaces_max);
    }
    if (plan_ok.ok()) {
      refit = it != namespace_by_fingerprint_.end() && namespaces_[it->second].plan.recent_tokens != plan.recent_tokens;
      AddNamespaceLocked(facts, plan, &id);
      if (!same) namespaces_[id].saved = false;
      if (!same && fact_writer_) {
        SaveNamespaceLocked(id, std::exchange(done, nullptr));
      }
    }
    valid = plan_ok;
  }
  if (refit) FitWindows(id);
  if (done == nullptr) return WriteQueuedFacts();
  if (!valid.ok()) return done(valid);
  done(id);
}

void StoreImpl::SaveNamespaceLocked(NamespaceId id, absl::AnyInvocable<void(absl::StatusOr<NamespaceId>)> done) {
  const NamespaceState& ns = namespaces_[id];
  QueueFactLocked(
      "namespace", ns.fingerprint.Hex(), SerializeNamespace(ns.facts, ns.plan),
      [this, id, plan = ns.plan, done = std::move(done)](absl::Status written) mutable {
        if (!written.ok()) return done(written);  // It serves; registering it again writes it again.
        {
          std::lock_guard lock(mu_);
          if (namespaces_[id].removed) {
            written = Aborted("the namespace was removed by another call while it was registered; register it again");
          } else if (namespaces_[id].plan == plan) {
            namespaces_[id].saved = true;
          }
        }
        if (!written.ok()) return done(written);
        done(id);
      });
}

void StoreImpl::QueueFactLocked(std::string kind, std::string name, std::vector<uint8_t> value,
                                absl::AnyInvocable<void(absl::Status)> done) {
  fact_queue_.push_back({std::move(kind), std::move(name), std::move(value), std::move(done)});
}

void StoreImpl::WriteQueuedFacts() {
  while (true) {
    QueuedFact fact;
    FactWriter writer;
    {
      std::lock_guard lock(mu_);
      if (fact_queue_.empty() || handing_over_fact_) return;
      handing_over_fact_ = true;
      fact = std::move(fact_queue_.front());
      fact_queue_.pop_front();
      writer = fact_writer_;
    }
    writer(std::move(fact.kind), std::move(fact.name), std::move(fact.value), std::move(fact.done));
    std::lock_guard lock(mu_);
    handing_over_fact_ = false;
  }
}

absl::Status StoreImpl::CheckArtifactRoomLocked(uint64_t bytes) const {
  uint64_t limit = options_.artifacts_bytes_max;
  std::string_view whose = "limits.artifacts";
  if (std::optional<uint8_t> tier = PersistentTier(); tier.has_value()) {
    uint64_t share = options_.tiers[*tier].tier->Usage().capacity_bytes / 16;
    if (share < limit) whose = "1/16 of the persistent tier's capacity";
    limit = std::min(limit, share);
  }
  uint64_t held = artifacts_.bytes() + artifact_bytes_arriving_;
  if (held + bytes <= limit) return absl::OkStatus();
  return ResourceExhausted("an artifact of {} bytes was put and {} bytes of artifacts are kept; at most {} in all, {}",
                           bytes, held, limit, whose);
}

void StoreImpl::PutArtifact(std::shared_ptr<const Artifact> artifact, absl::AnyInvocable<void(absl::Status)> done) {
  absl::Status room;
  {
    std::lock_guard lock(mu_);
    bool known = artifacts_.Find(artifact->digest()) != nullptr;
    bool save = fact_writer_ && !saved_artifacts_.contains(artifact->digest());
    if (!known) room = CheckArtifactRoomLocked(artifact->serialized().size());
    if (room.ok() && save) {
      SaveArtifactLocked(std::move(artifact), /*arriving=*/!known, std::exchange(done, nullptr));
    } else if (room.ok() && !known) {
      artifacts_.Add(std::move(artifact));
    }
  }
  if (done == nullptr) return WriteQueuedFacts();
  done(std::move(room));
}

void StoreImpl::SaveArtifactLocked(std::shared_ptr<const Artifact> artifact, bool arriving,
                                   absl::AnyInvocable<void(absl::Status)> done) {
  const Artifact& saved = *artifact;
  uint64_t bytes = arriving ? saved.serialized().size() : 0;
  artifact_bytes_arriving_ += bytes;
  QueueFactLocked("artifact", saved.digest().Hex(), saved.serialized(),
                  [this, artifact = std::move(artifact), bytes, done = std::move(done)](absl::Status written) mutable {
                    {
                      // Known once it is written: what a plan names must be there after a restart.
                      std::lock_guard lock(mu_);
                      artifact_bytes_arriving_ -= bytes;
                      if (written.ok()) {
                        artifacts_.Add(artifact);
                        saved_artifacts_.insert(artifact->digest());
                      }
                    }
                    done(std::move(written));
                  });
}

}  // namespace firn
