// What every command of `firn` shares: the global options, the client, and how results and errors reach people and
// scripts.
//
// With --json a command prints one JSON document on stdout and nothing else there; progress and errors go to stderr.
// Errors of the command line, of files and of the daemon are told apart by the exit code (ExitCode, docs/cli.md).
// Threads: one.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "firnkv/client.h"

namespace firn::cli {

using Json = nlohmann::ordered_json;

enum ExitCode : int {
  kExitOk = 0,
  kExitSome = 1,          // Done, with another answer than hoped for: blocks missed or refused, a plan that is wrong.
  kExitUsage = 2,         // The command line is wrong, or a file: it cannot be read, or is not what it must be.
  kExitUnavailable = 3,   // No daemon there, it is starting or stopping, or it did not answer in time.
  kExitInconsistent = 4,  // verify found a difference, or chaos something wrong.
  kExitFailed = 5,        // The daemon refused or failed.
};

class Context {
 public:
  // Set by the command line.
  std::string socket;
  std::string timeout;
  bool json = false;
  bool quiet = false;

  // Connects on first use.
  absl::StatusOr<firnkv::Client*> Connect();
  // To another daemon, with the same options.
  absl::StatusOr<std::unique_ptr<firnkv::Client>> ConnectTo(const std::string& address) const;
  // Per call; 0: the client's default.
  absl::StatusOr<int64_t> DeadlineMs() const;

  // The exit code that a status stands for; also prints it.
  int Report(const absl::Status& status);
  // Prints the document where scripts asked for one.
  void Print(const Json& document) const;

 private:
  std::unique_ptr<firnkv::Client> client_;
};

int ExitCodeOf(const absl::Status& status);

}  // namespace firn::cli
