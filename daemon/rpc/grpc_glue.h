// Small pieces that every service file of the daemon needs of gRPC.
//
// Threads: any.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "daemon/core/service_core.h"
#include "daemon/core/status_map.h"

namespace firn {

inline grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  WireStatus wire = ToWire(status);
  return {static_cast<grpc::StatusCode>(wire.code), wire.message};
}

// The call's deadline on the core's clock, at most `longest_ms` from now.
int64_t DeadlineNs(const grpc::CallbackServerContext& context, const Clock& clock, int64_t longest_ms);

// The slices of a message, and views of them.
struct MessageSlices {
  std::vector<grpc::Slice> slices;
  std::vector<ByteSpan> views;
};
// False when the message cannot be read (compressed and damaged).
bool TakeSlices(grpc::ByteBuffer* message, MessageSlices* out);

// Parses a message whose payload need not be kept apart.
template <typename Message>
bool ParseMessage(grpc::ByteBuffer* bytes, Message* out) {
  return grpc::SerializationTraits<Message>::Deserialize(bytes, out).ok();
}

// A stream that is over before it began.
template <typename Reactor>
class FailedStream final : public Reactor {
 public:
  explicit FailedStream(const absl::Status& status) { this->Finish(ToGrpc(status)); }
  void OnDone() override { delete this; }
};

// Calls of one unary method: counts, finds the store, runs `fn(Store*, done)` on the executor and finishes when done is
// called with the call's status, from any thread. Request and response live until then.
using UnaryDone = absl::AnyInvocable<void(absl::Status)>;
template <typename Fn>
grpc::ServerUnaryReactor* AnswerLater(ServiceCore* core, grpc::CallbackServerContext* context, Method method, Fn fn) {
  core->counters().Count(method);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  UnaryDone done = [core, reactor, method, since_ns = core->clock()->NowNs(),
                    live = std::make_unique<ServiceCore::LiveCall>(core)](absl::Status status) mutable {
    if (!status.ok()) core->counters().Failed(method);
    core->counters().Took(method, core->clock()->NowNs() - since_ns);
    reactor->Finish(ToGrpc(status));
    live.reset();
  };
  auto store = core->store();
  if (!store.ok()) {
    done(store.status());
    return reactor;
  }
  core->executor()->Post(
      [store = *store, fn = std::move(fn), done = std::move(done)]() mutable { fn(store, std::move(done)); });
  return reactor;
}
// The same for a method whose answer is there when `fn(Store*)` returns its status.
template <typename Fn>
grpc::ServerUnaryReactor* Answer(ServiceCore* core, grpc::CallbackServerContext* context, Method method, Fn fn) {
  return AnswerLater(core, context, method,
                     [fn = std::move(fn)](Store* store, UnaryDone done) mutable { done(fn(store)); });
}

}  // namespace firn
