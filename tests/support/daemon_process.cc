#include "tests/support/daemon_process.h"

#include <cstdlib>
#include <utility>

#include "base/check.h"

namespace firn {
namespace {

std::filesystem::path NewFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "firn-test-XXXXXX").string();
  FIRN_CHECK(::mkdtemp(pattern.data()) != nullptr);
  return pattern;
}

}  // namespace

DaemonProcess::DaemonProcess(DaemonOptions options)
    : TrialDaemon(std::string(FIRN_BINARY_DIR) + "/daemon/firnd", NewFolder(), std::move(options)) {}

DaemonProcess::~DaemonProcess() {
  KillNow();
  std::error_code ignored;
  std::filesystem::remove_all(folder(), ignored);
}

}  // namespace firn
