// Device memory in messages.
#pragma once

#include "firn/v1/kv.pb.h"
#include "firnkv/device.h"

namespace firnkv {

void ToProto(const DeviceRows& rows, firn::v1::DeviceRows* out);

}  // namespace firnkv
