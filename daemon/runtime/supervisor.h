// What systemd is told: ready, still starting, stopping, alive.
//
// Threads: any. Outside systemd every call does nothing.
#pragma once

#include <cstdint>
#include <string>

namespace firn {

void NotifyReady(const std::string& status);
void NotifyStatus(const std::string& status);
// Still starting or stopping: grants itself `more_ms` from now before systemd loses patience.
void NotifyExtendTimeout(int64_t more_ms, const std::string& status);
void NotifyStopping(const std::string& status);
void NotifyAlive();
// How often NotifyAlive is expected (half of WatchdogSec); 0: no watchdog.
int64_t WatchdogIntervalMs();

}  // namespace firn
