// One daemon a state directory, one a socket.
//
// A lock is a file with an exclusive flock, which ends with the process however it ends; the file names the process
// that holds it. Threads: not safe. Errors: FailedPrecondition when another process holds the lock or answers on the
// socket, naming it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace firn {

class InstanceLock {
 public:
  static absl::StatusOr<std::unique_ptr<InstanceLock>> Acquire(const std::string& path);
  ~InstanceLock();
  InstanceLock(const InstanceLock&) = delete;
  InstanceLock& operator=(const InstanceLock&) = delete;

 private:
  InstanceLock(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  const std::string path_;
  const int fd_;
};

// Makes way for a Unix socket at `path`: makes its directory, removes a socket that nobody answers on. Call it with the
// lock of `path` + ".lock" held. Anything else at `path` is left alone and refused.
absl::Status PrepareSocketPath(const std::string& path);

// Sets mode and group of the socket file.
absl::Status SetSocketAccess(const std::string& path, uint32_t mode, const std::string& group);

// Makes `path` and its parents; new ones get mode 0750.
absl::Status MakeDirectories(const std::string& path);

}  // namespace firn
