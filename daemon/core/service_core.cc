#include "daemon/core/service_core.h"

#include <utility>

#include "base/status.h"

namespace firn {

ServiceCore::ServiceCore(Options options)
    : options_(std::move(options)),
      sessions_(options_.limits.sessions_max, options_.limits.leases_max),
      transport_(options_.limits.transport_budget_bytes / 2),
      connections_(options_.limits.connections_max),
      events_(std::make_shared<EventHub>(options_.executor, options_.clock)) {}

absl::StatusOr<Store*> ServiceCore::store() const {
  switch (state()) {
    case State::kServing:
      return store_.load(std::memory_order_acquire);
    case State::kStarting:
      return Unavailable("firnd is starting: {}", progress());
    case State::kStopping:
      break;
  }
  return Unavailable("firnd is stopping");
}

void ServiceCore::SetStarting(std::string progress) {
  std::lock_guard lock(mu_);
  progress_ = std::move(progress);
}

void ServiceCore::SetStore(Store* store) {
  store_.store(store, std::memory_order_release);
  State starting = State::kStarting;
  state_.compare_exchange_strong(starting, State::kServing);
}

void ServiceCore::StopServing() {
  state_ = State::kStopping;
  events_->WakeAll();
}

std::string ServiceCore::progress() const {
  std::lock_guard lock(mu_);
  return progress_;
}

NamespacePtr ServiceCore::Remember(Store* store, NamespaceId id) {
  auto facts = store->Facts(id);
  if (!facts.ok()) return nullptr;
  auto ref = std::make_shared<NamespaceRef>();
  ref->id = id;
  ref->facts = *std::move(facts);
  ref->fingerprint = NamespaceFingerprint(ref->facts);
  ref->model_fingerprint = ModelFingerprint(ref->facts);
  std::lock_guard lock(mu_);
  by_fingerprint_[ref->fingerprint] = ref;
  by_id_[id] = ref;
  return ref;
}

absl::StatusOr<NamespacePtr> ServiceCore::FindNamespace(Store* store, const std::string& fingerprint,
                                                        const std::string& tenant) {
  auto digest = Digest::FromBytes(AsBytes(fingerprint));
  if (!digest.has_value()) {
    return InvalidArgument("namespace_fingerprint has {} bytes; it has 32, as RegisterNamespace returns them",
                           fingerprint.size());
  }
  NamespacePtr ref;
  {
    std::lock_guard lock(mu_);
    auto known = by_fingerprint_.find(*digest);
    if (known != by_fingerprint_.end()) ref = known->second;
  }
  if (ref == nullptr) {
    auto id = store->FindNamespace(*digest);
    if (id.ok()) ref = Remember(store, *id);
  }
  if (ref == nullptr || ref->facts.tenant != tenant) {
    return NotFound("namespace {} is not registered", digest->Hex());
  }
  return ref;
}

void ServiceCore::ForgetNamespace(const NamespaceRef& ns) {
  std::lock_guard lock(mu_);
  by_fingerprint_.erase(ns.fingerprint);
}

NamespacePtr ServiceCore::NamespaceById(Store* store, NamespaceId id) {
  {
    std::lock_guard lock(mu_);
    auto known = by_id_.find(id);
    if (known != by_id_.end()) return known->second;
  }
  return Remember(store, id);
}

void ServiceCore::Sweep() {
  int64_t now_ns = clock()->NowNs();
  watchdog_.Sweep(now_ns, transport_.waiting_bytes());
  counters_.expired_leases += sessions_.DropIdleLeases(now_ns, limits().put_idle_ms);
}

}  // namespace firn
