// Channel settings for bulk payloads. Both ends of a connection want them: each end's settings rule what it receives.
#pragma once

namespace grpc {
class ChannelArguments;
}

namespace firnkv {

void TuneForPayloads(grpc::ChannelArguments* arguments);

}  // namespace firnkv
