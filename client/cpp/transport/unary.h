// Calls with one request and one response, waited for or not.
//
// Threads: any. Errors: as the daemon says; FailedPrecondition after a fork.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "base/status.h"
#include "client/cpp/transport/transport.h"

namespace firnkv {

inline std::chrono::system_clock::time_point DeadlineAfter(int64_t deadline_ms, int64_t default_ms) {
  // Some years are enough for anybody, and do not overflow.
  int64_t ms = std::min<int64_t>(deadline_ms > 0 ? deadline_ms : default_ms, int64_t{1} << 40);
  return std::chrono::system_clock::now() + std::chrono::milliseconds(ms);
}

template <typename Stub, typename Request, typename Response>
absl::Status CallUntil(Transport* transport, Stub* stub,
                       grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                       const std::type_identity_t<Request>& request, std::chrono::system_clock::time_point deadline,
                       Response* response) {
  FIRN_RETURN_IF_ERROR(transport->Usable());
  grpc::ClientContext context;
  context.set_deadline(deadline);
  return FromGrpc((stub->*method)(&context, request, response), transport->options().address);
}

// `Async` is the stub's callback interface; `done` gets the answer on a thread of gRPC, or at once where the call
// cannot be made.
template <typename Async, typename Request, typename Response>
void CallAsync(Transport* transport, Async* stub,
               void (Async::*method)(grpc::ClientContext*, const Request*, Response*,
                                     std::function<void(grpc::Status)>),
               const std::type_identity_t<Request>& request, std::chrono::system_clock::time_point deadline,
               std::function<void(absl::Status, const Response&)> done) {
  if (absl::Status usable = transport->Usable(); !usable.ok()) return done(usable, {});
  struct Call {
    grpc::ClientContext context;
    Request request;
    Response response;
  };
  auto call = std::make_shared<Call>();
  call->context.set_deadline(deadline);
  call->request = request;
  transport->AddCall(&call->context);
  (stub->*method)(&call->context, &call->request, &call->response,
                  [call, transport, done = std::move(done)](const grpc::Status& status) {
                    done(FromGrpc(status, transport->options().address), call->response);
                    transport->RemoveCall(&call->context);
                  });
}

}  // namespace firnkv
