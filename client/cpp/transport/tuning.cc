#include "client/cpp/transport/tuning.h"

#include <grpcpp/support/channel_arguments.h>

namespace firnkv {

void TuneForPayloads(grpc::ChannelArguments* arguments) {
  arguments->SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 8 << 20);
  arguments->SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 1 << 20);
  arguments->SetInt(GRPC_ARG_TCP_READ_CHUNK_SIZE, 1 << 20);
  arguments->SetInt(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, 4 << 20);
}

}  // namespace firnkv
