// A session is a stream: it lives as long as its client keeps the stream open, and dies with the client.
#include <memory>
#include <mutex>
#include <utility>

#include "base/status.h"
#include "daemon/rpc/grpc_glue.h"
#include "daemon/rpc/streams.h"

namespace firn {
namespace {

constexpr size_t kClientNameBytesMax = 256;
using Reactor = grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionResponse>;

class SessionStream final : public Reactor, public WatchedStream, public std::enable_shared_from_this<SessionStream> {
 public:
  SessionStream(ServiceCore* core, const CallerIdentity& caller, Store* store)
      : core_(core), live_(core), caller_(caller), store_(store) {}
  ~SessionStream() override {
    if (session_ != nullptr) core_->sessions().Close(store_, session_);
  }

  void Start() {
    std::lock_guard lock(mu_);
    self_ = shared_from_this();
    core_->watchdog().Watch(weak_from_this());
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    std::lock_guard lock(mu_);
    if (finished_) return;
    if (!ok) return FinishLocked(absl::OkStatus());
    if (session_ != nullptr) {  // Later requests say nothing new; reading them shows that the client lives.
      StartRead(&request_);
      return;
    }
    if (request_.client().size() > kClientNameBytesMax) {
      return FinishLocked(
          InvalidArgument("client has {} bytes; the limit is {}", request_.client().size(), kClientNameBytesMax));
    }
    auto session = core_->sessions().Open(store_, caller_.tenant);
    if (!session.ok()) return FinishLocked(session.status());
    session_ = *std::move(session);
    response_.set_session(session_->token());
    StartWrite(&response_);
    StartRead(&request_);
  }

  void OnCancel() override {
    std::lock_guard lock(mu_);
    FinishLocked(absl::CancelledError("the session's client has gone"));
  }

  void OnDone() override {
    std::shared_ptr<SessionStream> self;
    std::lock_guard lock(mu_);
    finished_ = true;
    self = std::move(self_);
  }

  // A session has no limit in time; it ends with its client, or with the daemon.
  void EndIfStalled(int64_t) override {
    std::lock_guard lock(mu_);
    if (core_->state() == ServiceCore::State::kStopping) FinishLocked(Unavailable("firnd is stopping"));
  }

 private:
  void FinishLocked(const absl::Status& status) {
    if (finished_) return;
    finished_ = true;
    // A client that leaves is no failure.
    if (!status.ok() && session_ == nullptr) core_->counters().Failed(Method::kSession);
    Finish(ToGrpc(status));
  }

  ServiceCore* const core_;
  const ServiceCore::LiveCall live_;
  const CallerIdentity caller_;
  Store* const store_;
  v1::SessionRequest request_;
  v1::SessionResponse response_;
  std::mutex mu_;
  std::shared_ptr<ClientSession> session_;  // Guarded by mu_.
  bool finished_ = false;                   // Guarded by mu_.
  std::shared_ptr<SessionStream> self_;     // Until OnDone.
};

}  // namespace

Reactor* NewSessionStream(ServiceCore* core, const CallerIdentity& caller, grpc::CallbackServerContext*) {
  core->counters().Count(Method::kSession);
  auto store = core->store();
  if (!store.ok()) {
    core->counters().Failed(Method::kSession);
    return new FailedStream<Reactor>(store.status());
  }
  auto stream = std::make_shared<SessionStream>(core, caller, *store);
  stream->Start();
  return stream.get();
}

}  // namespace firn
