// The verdict that a start would give of a configuration, without starting: what is wrong in the file, among its tiers
// and listeners, and with this machine.
//
// Threads: values. Nothing is created, changed or waited for, except that names of hosts are looked up.
#pragma once

#include <vector>

#include "daemon/config/config.h"
#include "daemon/config/machine.h"

namespace firn {

struct ConfigVerdict {
  std::vector<Finding> errors;    // The daemon does not start.
  std::vector<Finding> warnings;  // It starts and says so.
};

// With the errors of reading. A key that could not be read is not judged again.
ConfigVerdict CheckConfig(const ConfigReading& reading, const Machine& machine);

}  // namespace firn
