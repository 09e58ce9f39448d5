#include "daemon/runtime/supervisor.h"

#include <fmt/format.h>
#include <systemd/sd-daemon.h>

namespace firn {
namespace {

// Status lines end at a newline: one in the text would start another assignment.
std::string OneLine(std::string text) {
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  return text;
}

void Send(const std::string& state) { (void)sd_notify(0, state.c_str()); }

}  // namespace

void NotifyReady(const std::string& status) { Send("READY=1\nSTATUS=" + OneLine(status)); }
void NotifyStatus(const std::string& status) { Send("STATUS=" + OneLine(status)); }
void NotifyExtendTimeout(int64_t more_ms, const std::string& status) {
  Send(fmt::format("EXTEND_TIMEOUT_USEC={}\nSTATUS={}", more_ms * 1000, OneLine(status)));
}
void NotifyStopping(const std::string& status) { Send("STOPPING=1\nSTATUS=" + OneLine(status)); }
void NotifyAlive() { Send("WATCHDOG=1"); }

int64_t WatchdogIntervalMs() {
  uint64_t usec = 0;
  if (sd_watchdog_enabled(0, &usec) <= 0) return 0;
  return static_cast<int64_t>(usec / 2000);
}

}  // namespace firn
