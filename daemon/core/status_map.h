// The one place where the project's errors become the API's: codes and messages, for whole calls and for keys of a
// batch.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace firn {

namespace v1 {
class Status;
}

struct WireStatus {
  uint32_t code = 0;    // As google.rpc.Code, which is gRPC's and Abseil's numbering too.
  std::string message;  // Valid UTF-8, at most 1 KiB: it may quote bytes of a client's choosing.
};
WireStatus ToWire(const absl::Status& status);

// Leaves `out` empty for OK.
void FromStatus(const absl::Status& status, v1::Status* out);

}  // namespace firn
