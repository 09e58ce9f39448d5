// A firnd of its own for a test: a folder, a configuration, a process that can be started, stopped and killed.
//
// Threads: one thread drives it. Everything lies in a new folder under TMPDIR, removed with the object. Waits are
// bounded.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "firnkv/client.h"

namespace firn {

struct DaemonOptions {
  std::string hot_capacity = "32MiB";
  std::string warm_capacity = "32MiB";
  std::string cold_capacity = "256MiB";
  std::string cold_path;  // Empty: a folder of the daemon's own.
  std::string admin_http = "off";
  std::string hot_backend;  // "cpu", "cuda": the hot tier is on a GPU, or on the processor in its place; empty: DRAM.
  std::string extra_toml;   // Appended to the configuration.
};

class DaemonProcess {
 public:
  explicit DaemonProcess(DaemonOptions options = {});
  ~DaemonProcess();  // Kills what still runs.
  DaemonProcess(const DaemonProcess&) = delete;
  DaemonProcess& operator=(const DaemonProcess&) = delete;

  // Starts it and waits until it answers as ready. The time it took is ready_ms().
  absl::Status Start(int64_t timeout_ms = 30'000);
  void KillNow();  // SIGKILL; returns when it is gone.
  // SIGTERM; the exit status, or -1 when it did not end in time and was killed.
  int Terminate(int64_t timeout_ms = 30'000);

  std::unique_ptr<firnkv::Client> Connect() const;
  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path cold_path() const;
  std::string socket_path() const { return (folder_ / "run" / "firnd.sock").string(); }
  std::string Log() const;
  pid_t pid() const { return pid_; }
  int64_t ready_ms() const { return ready_ms_; }
  // Resident set, from /proc.
  uint64_t ResidentBytes() const;

 private:
  bool WaitForExit(int64_t timeout_ms, int* status);

  const DaemonOptions options_;
  std::filesystem::path folder_;
  pid_t pid_ = -1;
  int64_t ready_ms_ = 0;
};

}  // namespace firn
