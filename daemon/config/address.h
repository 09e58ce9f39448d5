// Host and port of a configured address. Threads: pure functions.
#pragma once

#include <optional>
#include <string>

namespace firn {

struct HostPort {
  std::string host;  // Without the brackets of IPv6.
  int port = 0;
};

// "127.0.0.1:7411", "[::1]:7411", "localhost:0"; nothing when it is neither.
std::optional<HostPort> SplitAddress(const std::string& address);

// A numeric address of 127.0.0.0/8, ::1, or exactly "localhost". A name is never loopback by how it begins.
bool IsLoopback(const std::string& host);

}  // namespace firn
