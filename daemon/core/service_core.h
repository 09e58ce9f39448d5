// What every listener's services share: the store once it is there, sessions, budgets, counters.
//
// The daemon listens before its store exists. Until SetStore, and after StopServing, every call is answered UNAVAILABLE
// with the reason. Threads: any. Ownership: borrows the executor and the clock; the store must outlive the last call,
// so the servers end before the store does.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/executor.h"
#include "daemon/config/config.h"
#include "daemon/core/byte_budget.h"
#include "daemon/core/connection_table.h"
#include "daemon/core/event_hub.h"
#include "daemon/core/rpc_counters.h"
#include "daemon/core/session_table.h"
#include "daemon/core/stream_watchdog.h"
#include "daemon/payload/begun_put.h"
#include "tiers/store/store.h"

namespace firn {

namespace v1 {
class PutBlock;
}

// A namespace as calls need it; resolved once.
struct NamespaceRef {
  NamespaceId id = 0;
  NamespaceFacts facts;
  Digest fingerprint;
  Digest model_fingerprint;
};
using NamespacePtr = std::shared_ptr<const NamespaceRef>;

// What a tier is, as Capabilities reports it; known from the configuration.
struct TierDescription {
  std::string name, medium;
  bool persistent = false;
  ClassPair precision, least;
  uint64_t capacity_bytes = 0;
  std::string ecc = "none";
};

// Whose calls these are and what they may do: facts of the listener.
struct CallerIdentity {
  std::string tenant;
  bool admin = false;
  bool local = false;  // Of this machine: the listener is a Unix socket.
};

// A client's block checked against its namespace and the limits. InvalidArgument before a byte of payload is read.
absl::StatusOr<PutOrder> CheckPut(const v1::PutBlock& block, const NamespaceRef& ns, SessionId session,
                                  const LimitSettings& limits);

class ServiceCore {
 public:
  struct Options {
    Executor* executor = nullptr;
    const Clock* clock = nullptr;
    LimitSettings limits;
    std::vector<TierDescription> tiers;
    std::string version;
  };
  enum class State : uint8_t { kStarting, kServing, kStopping };

  explicit ServiceCore(Options options);

  // The store, or Unavailable with the reason.
  absl::StatusOr<Store*> store() const;
  void SetStarting(std::string progress);
  void SetStore(Store* store);
  void StopServing();
  State state() const { return state_.load(std::memory_order_acquire); }
  std::string progress() const;

  // The namespace named by 32 bytes; NotFound for another tenant's as for an unknown one.
  absl::StatusOr<NamespacePtr> FindNamespace(Store* store, const std::string& fingerprint, const std::string& tenant);
  // By the store's number, for events; null when it is unknown.
  NamespacePtr NamespaceById(Store* store, NamespaceId id);
  // It was removed; whoever still has the reference gets NotFound from the store. Events of it, that of its blocks'
  // removal among them, are still to be told under its name: its number keeps it, as the store keeps its number.
  void ForgetNamespace(const NamespaceRef& ns);
  // Calls that are not over, and streams that callbacks of the store still refer to. The store may go when there are
  // none.
  class LiveCall {
   public:
    explicit LiveCall(ServiceCore* core) : core_(core) { core_->live_calls_.fetch_add(1); }
    ~LiveCall() { core_->live_calls_.fetch_sub(1); }
    LiveCall(const LiveCall&) = delete;
    LiveCall& operator=(const LiveCall&) = delete;

   private:
    ServiceCore* const core_;
  };
  uint64_t live_calls() const { return live_calls_.load(); }
  // Ends what clients have left half-made. Call it every 100 ms or so.
  void Sweep();

  Executor* executor() const { return options_.executor; }
  const Clock* clock() const { return options_.clock; }
  const LimitSettings& limits() const { return options_.limits; }
  const std::vector<TierDescription>& tiers() const { return options_.tiers; }
  const std::string& version() const { return options_.version; }
  SessionTable& sessions() { return sessions_; }
  ByteBudget& transport() { return transport_; }
  ConnectionTable& connections() { return connections_; }
  StreamWatchdog& watchdog() { return watchdog_; }
  EventHub& events() { return *events_; }
  RpcCounters& counters() { return counters_; }

 private:
  NamespacePtr Remember(Store* store, NamespaceId id);

  const Options options_;
  std::atomic<State> state_{State::kStarting};
  std::atomic<Store*> store_{nullptr};
  SessionTable sessions_;
  ByteBudget transport_;
  ConnectionTable connections_;
  StreamWatchdog watchdog_;
  const std::shared_ptr<EventHub> events_;
  RpcCounters counters_;
  std::atomic<uint64_t> live_calls_{0};
  mutable std::mutex mu_;
  std::string progress_ = "starting";              // Guarded by mu_.
  std::map<Digest, NamespacePtr> by_fingerprint_;  // Guarded by mu_.
  std::map<NamespaceId, NamespacePtr> by_id_;      // Guarded by mu_.
};

}  // namespace firn
