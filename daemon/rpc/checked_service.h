// A service whose methods answer INVALID_ARGUMENT to bytes that are no message of the request's type.
//
// gRPC 1.51 answers such a call by itself, with UNIMPLEMENTED and no word why. So a request is parsed into a holder,
// for which parsing always succeeds, and the method is called only if it really did. Methods that are not named with
// Check keep gRPC's answer. Threads: construct, then any.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>

#include "base/check.h"
#include "base/status.h"
#include "daemon/rpc/grpc_glue.h"

namespace firn {

template <typename Message>
struct MaybeMessage {
  Message message;
  bool readable = true;
};

}  // namespace firn

template <typename Message>
class grpc::SerializationTraits<firn::MaybeMessage<Message>> {
 public:
  static grpc::Status Deserialize(grpc::ByteBuffer* bytes, firn::MaybeMessage<Message>* out) {
    out->readable = grpc::SerializationTraits<Message>::Deserialize(bytes, &out->message).ok();
    return grpc::Status::OK;
  }
};

namespace firn {

template <typename Base>
class CheckedService : public Base {
 protected:
  using Context = grpc::CallbackServerContext;

  template <typename Service, typename Request, typename Response>
  void Check(ServiceCore* core, Method method,
             grpc::ServerUnaryReactor* (Service::*answer)(Context*, const Request*, Response*)) {
    auto handle = [self = static_cast<Service*>(this), core, method, answer](
                      Context* context, const MaybeMessage<Request>* request, Response* response) {
      if (request->readable) return (self->*answer)(context, &request->message, response);
      grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
      reactor->Finish(ToGrpc(Malformed<Request>(core, method)));
      return reactor;
    };
    using Handler = grpc::internal::CallbackUnaryHandler<MaybeMessage<Request>, Response>;
    this->MarkMethodCallback(IndexOf(method), new Handler(std::move(handle)));
  }

  template <typename Service, typename Request, typename Response>
  void Check(ServiceCore* core, Method method,
             grpc::ServerWriteReactor<Response>* (Service::*answer)(Context*, const Request*)) {
    using Reactor = grpc::ServerWriteReactor<Response>;
    auto handle = [self = static_cast<Service*>(this), core, method, answer](
                      Context* context, const MaybeMessage<Request>* request) -> Reactor* {
      if (request->readable) return (self->*answer)(context, &request->message);
      return new FailedStream<Reactor>(Malformed<Request>(core, method));
    };
    using Handler = grpc::internal::CallbackServerStreamingHandler<MaybeMessage<Request>, Response>;
    this->MarkMethodCallback(IndexOf(method), new Handler(std::move(handle)));
  }

 private:
  static int IndexOf(Method method) {
    auto* service = google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(Base::service_full_name());
    FIRN_CHECK(service != nullptr);
    auto* found = service->FindMethodByName(std::string(kMethodNames[static_cast<size_t>(method)]));
    FIRN_CHECK(found != nullptr);
    return found->index();
  }

  template <typename Request>
  static absl::Status Malformed(ServiceCore* core, Method method) {
    core->counters().Count(method);
    core->counters().Failed(method);
    return InvalidArgument("malformed {}", Request::descriptor()->name());
  }
};

}  // namespace firn
