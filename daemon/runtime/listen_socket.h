// Sockets that clients connect to.
//
// Threads: not safe. Ownership: a ListenSocket closes what it has, and removes the socket file that it made. Errors: of
// resolving and binding; FailedPrecondition when the address is in use. Limits: a name stands for at most 8 addresses.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace firn {

class ListenSocket {
 public:
  // A Unix socket at `path`, which must be free, with this mode and group (empty: the process's own).
  static absl::StatusOr<ListenSocket> Unix(const std::string& path, uint32_t mode, const std::string& group);
  // "host:port" or "[host]:port", every address that the host has; port 0 takes any.
  static absl::StatusOr<ListenSocket> Tcp(const std::string& address);

  ListenSocket(ListenSocket&& other) noexcept;
  ListenSocket& operator=(ListenSocket&&) = delete;
  ~ListenSocket();

  const std::vector<int>& fds() const { return fds_; }  // Non-blocking.
  bool tcp() const { return path_.empty(); }
  uint16_t port() const { return port_; }

 private:
  ListenSocket() = default;
  std::vector<int> fds_;
  std::string path_;
  uint16_t port_ = 0;
};

}  // namespace firn
