// A port for a daemon that a test starts.
//
// Threads: one. Ownership: the port is this process's until it ends.
#pragma once

#include <cstdint>

namespace firn {

// A port on the loopback that nobody listens on, and that no other test that asks here gets meanwhile.
uint16_t FreePort();

}  // namespace firn
