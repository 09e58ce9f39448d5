// The firnd of this build for a test, in a new folder under TMPDIR that is removed with the object.
//
// Threads: one thread drives it.
#pragma once

#include "client/trial/trial_daemon.h"

namespace firn {

class DaemonProcess : public TrialDaemon {
 public:
  explicit DaemonProcess(DaemonOptions options = {});
  ~DaemonProcess();  // Kills what still runs.
};

}  // namespace firn
