// The daemon: everything that lives from start to stop, in the order in which it comes up and goes down.
//
// Up: locks, the admin endpoint and the listeners (answering "starting"), then, on a thread of its own, the tiers, what
// they held, the store. Down, within a bound: no new calls, those under way, what can still reach a persistent tier,
// the tiers. Threads: Run is called once, on the main thread, and is the control loop. Signals: SIGTERM and SIGINT
// stop, a second one is harmless; SIGHUP reads the configuration again and says what a running daemon can take over.
#pragma once

#include <memory>
#include <string>

#include "daemon/config/config.h"

namespace firn {

// Exit codes, after sysexits.h.
enum ExitCode : int {
  kExitOk = 0,
  kExitUsage = 64,
  kExitOsError = 71,       // Something of the machine is not as needed.
  kExitCannotListen = 73,  // Another firnd runs, or an address is taken.
  kExitTierFailed = 74,    // A tier could not be opened.
  kExitBadConfig = 78,
};

struct DaemonOptions {
  Config config;
  std::string config_path;  // For SIGHUP; empty: there was none.
  ConfigPlaces places;
};

// Returns the exit code when the daemon has stopped.
int RunDaemon(DaemonOptions options);

}  // namespace firn
