// Host and port of a configured address. Threads: any.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"

namespace firn {

struct HostPort {
  std::string host;  // Without the brackets of IPv6.
  int port = 0;
};

// "127.0.0.1:7411", "[::1]:7411", "localhost:0"; nothing when it is neither.
std::optional<HostPort> SplitAddress(const std::string& address);

// IPv4 or IPv6 in digits.
bool IsNumericAddress(const std::string& host);

// A numeric address of 127.0.0.0/8, ::1, or exactly "localhost". A name is never loopback by how it begins.
bool IsLoopback(const std::string& host);

// OK where a socket of this machine can be bound to the host, on some port. A name is looked up.
absl::Status CanListenOn(const std::string& host);

}  // namespace firn
