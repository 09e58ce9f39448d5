// The streams of the data service. Each is one object that lives until gRPC and every callback are done with it.
//
// A stream's own lock guards what gRPC's threads, the executor and the watchdog share; gRPC operations are started
// under it, so that none is started after Finish. Memory per stream is bounded: one message being received, or two
// messages being sent. A client that stops is given limits.put_idle (in the middle of a block) or limits.read_stall
// (not reading), then the stream is cancelled and everything it held is given back.
#pragma once

#include <grpcpp/grpcpp.h>

#include "daemon/core/service_core.h"
#include "firn/v1/kv.pb.h"

namespace firn {

using RawBidiReactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

RawBidiReactor* NewPutStream(ServiceCore* core, const CallerIdentity& caller, grpc::CallbackServerContext* context);
RawBidiReactor* NewGetStream(ServiceCore* core, const CallerIdentity& caller, grpc::CallbackServerContext* context);
grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionResponse>* NewSessionStream(
    ServiceCore* core, const CallerIdentity& caller, grpc::CallbackServerContext* context);
grpc::ServerWriteReactor<v1::WatchResponse>* NewWatchStream(ServiceCore* core, const CallerIdentity& caller,
                                                            grpc::CallbackServerContext* context,
                                                            const v1::WatchRequest& request);

}  // namespace firn
