// Watch: the store's events of one tenant, in order, as fast as the watcher takes them and no faster.
//
// Events are fetched when the watcher is ready for them, so a slow one costs no memory: it falls behind until the ring
// has overtaken it, and is told of the gap.
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/status.h"
#include "daemon/core/convert.h"
#include "daemon/rpc/grpc_glue.h"
#include "daemon/rpc/streams.h"

namespace firn {
namespace {

constexpr size_t kEventsPerMessage = 512;
using Reactor = grpc::ServerWriteReactor<v1::WatchResponse>;

class WatchStream final : public Reactor, public WatchedStream, public std::enable_shared_from_this<WatchStream> {
 public:
  WatchStream(ServiceCore* core, const CallerIdentity& caller, Store* store, grpc::CallbackServerContext* context)
      : core_(core), live_(core), caller_(caller), store_(store), context_(context) {}

  void Start(const v1::WatchRequest& request) {
    std::lock_guard lock(mu_);
    self_ = shared_from_this();
    core_->watchdog().Watch(weak_from_this());
    if (!request.namespace_fingerprint().empty()) {
      auto found = core_->FindNamespace(store_, request.namespace_fingerprint(), caller_.tenant);
      if (!found.ok()) return FinishLocked(found.status());
      only_ = *found;
    }
    std::optional<uint64_t> after;
    if (request.has_after()) after = request.after();
    EventHub::Place place = core_->events().Resume(store_, after);
    after_ = place.after;
    // The first message says where the watcher stands, so that it can resume before anything has happened.
    response_.set_sequence(core_->events().Shown(after_));
    response_.set_gap(place.gap);
    WriteLocked();
  }

  void OnWriteDone(bool ok) override {
    {
      std::lock_guard lock(mu_);
      writing_ = false;
      if (!ok || finished_) return;
    }
    core_->executor()->Post([self = shared_from_this()] { self->Fetch(); });
  }

  void OnCancel() override {
    std::lock_guard lock(mu_);
    FinishLocked(absl::CancelledError("the watcher has gone"));
  }

  void OnDone() override {
    std::shared_ptr<WatchStream> self;
    std::lock_guard lock(mu_);
    context_ = nullptr;
    self = std::move(self_);
  }

  void EndIfStalled(int64_t now_ns) override {
    std::lock_guard lock(mu_);
    if (context_ == nullptr || finished_ || !writing_) return;
    if (now_ns - write_since_ns_ <= core_->limits().read_stall_ms * 1'000'000) return;
    core_->counters().stalled_streams.fetch_add(1, std::memory_order_relaxed);
    context_->TryCancel();
  }

 private:
  // One at a time: started by a write that is done or by an event that was waited for.
  void Fetch() {
    bool gap = false;
    auto events = store_->Events(after_, kEventsPerMessage, &gap);
    v1::WatchResponse response;
    for (const BlockEvent& event : events) {
      after_ = event.sequence;
      NamespacePtr ns = core_->NamespaceById(store_, event.ns);
      if (ns == nullptr || ns->facts.tenant != caller_.tenant || (only_ != nullptr && only_->id != ns->id)) continue;
      v1::BlockEvent* shown = response.add_events();
      shown->set_sequence(core_->events().Shown(event.sequence));
      shown->set_kind(static_cast<v1::EventKind>(event.kind));
      shown->set_namespace_fingerprint(BytesOf(ns->fingerprint));
      shown->set_key(BytesOf(event.key));
      shown->set_shard(event.shard);
      shown->set_tier(event.tier);
      FromClassPair(event.now, shown->mutable_now());
    }
    response.set_sequence(core_->events().Shown(after_));
    response.set_gap(gap);
    std::lock_guard lock(mu_);
    if (finished_) return;
    if (core_->state() == ServiceCore::State::kStopping) return FinishLocked(Unavailable("firnd is stopping"));
    if (gap || response.events_size() > 0) {
      response_ = std::move(response);
      return WriteLocked();
    }
    core_->events().Wait(store_, after_, [self = shared_from_this()] { self->Fetch(); });
  }

  void WriteLocked() {
    writing_ = true;
    write_since_ns_ = core_->clock()->NowNs();
    StartWrite(&response_);
  }

  void FinishLocked(const absl::Status& status) {
    if (finished_) return;
    finished_ = true;
    if (!status.ok() && status.code() != absl::StatusCode::kCancelled) core_->counters().Failed(Method::kWatch);
    Finish(ToGrpc(status));
  }

  ServiceCore* const core_;
  const ServiceCore::LiveCall live_;
  const CallerIdentity caller_;
  Store* const store_;
  NamespacePtr only_;
  uint64_t after_ = 0;  // Of whoever fetches; as the store counts.
  v1::WatchResponse response_;

  std::mutex mu_;
  grpc::CallbackServerContext* context_;  // Guarded by mu_; null once the call is done.
  int64_t write_since_ns_ = 0;            // Guarded by mu_.
  bool writing_ = false;                  // Guarded by mu_.
  bool finished_ = false;                 // Guarded by mu_.
  std::shared_ptr<WatchStream> self_;     // Until OnDone.
};

}  // namespace

Reactor* NewWatchStream(ServiceCore* core, const CallerIdentity& caller, grpc::CallbackServerContext* context,
                        const v1::WatchRequest& request) {
  core->counters().Count(Method::kWatch);
  auto store = core->store();
  if (!store.ok()) {
    core->counters().Failed(Method::kWatch);
    return new FailedStream<Reactor>(store.status());
  }
  auto stream = std::make_shared<WatchStream>(core, caller, *store, context);
  stream->Start(request);
  return stream.get();
}

}  // namespace firn
