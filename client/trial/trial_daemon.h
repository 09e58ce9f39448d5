// A firnd for trials: a configuration in a folder, a process that can be started, stopped and killed.
//
// Threads: one thread drives it; Log and ResidentBytes from any. Ownership: the folder is the caller's and stays. Waits
// are bounded. Errors: Start says what the daemon's log says.
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
  std::string cold_path = {};  // Empty: a folder of the daemon's own.
  std::string admin_http = "off";
  // "cpu", "cuda": the hot tier is on a GPU, or on the processor in its place; empty: DRAM.
  std::string hot_backend = {};
  std::string ecc = {};         // Of the tiers that are not on a GPU, as in the configuration; empty: none.
  std::string extra_toml = {};  // Appended to the configuration.
  // The daemon is killed when the thread that started it ends, so that none outlives a program that is killed.
  bool dies_with_starter = false;
};

class TrialDaemon {
 public:
  // `program` is firnd; `folder` exists.
  TrialDaemon(std::string program, std::filesystem::path folder, DaemonOptions options);
  ~TrialDaemon();  // Kills what still runs.
  TrialDaemon(const TrialDaemon&) = delete;
  TrialDaemon& operator=(const TrialDaemon&) = delete;

  // Starts it and waits until it answers as ready. The time it took is ready_ms().
  absl::Status Start(int64_t timeout_ms = 30'000);
  void KillNow();  // SIGKILL; returns when it is gone.
  // SIGTERM; the exit status, or -1 when it did not end in time and was killed.
  int Terminate(int64_t timeout_ms = 30'000);
  // False also when it ended by itself.
  bool Running();

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
  void WriteConfig() const;
  bool WaitForExit(int64_t timeout_ms, int* status);

  const std::string program_;
  const std::filesystem::path folder_;
  const DaemonOptions options_;
  pid_t pid_ = -1;
  int64_t ready_ms_ = 0;
};

}  // namespace firn
