// Takes in the connections of one listener, on a thread of its own, and hands them on.
//
// gRPC 1.51 could do that itself, but stops for good when the process has run out of descriptors once. This loop pauses
// and goes on. Over the limit of the table a connection is accepted and closed at once: its client knows, and tries
// again. Threads: `handle` runs on the loop's thread. Ownership: a descriptor is `handle`'s; the sockets and the table
// must outlive the loop, whose destructor returns when nothing is handled any more.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "daemon/core/connection_table.h"
#include "daemon/runtime/listen_socket.h"

namespace firn {

class AcceptLoop {
 public:
  using Handle = std::function<void(int listener_fd, int fd)>;
  static absl::StatusOr<std::unique_ptr<AcceptLoop>> Start(const ListenSocket* socket, ConnectionTable* table,
                                                           Handle handle);
  ~AcceptLoop();

 private:
  AcceptLoop(const ListenSocket* socket, ConnectionTable* table, Handle handle, int stop_fd);
  void Run();
  // Everybody who waits at `listener_fd`; false when the system could not accept and it is better to wait a little.
  bool AcceptAll(int listener_fd);
  void Complain(const char* what, int error);

  const ListenSocket* const socket_;
  ConnectionTable* const table_;
  const Handle handle_;
  const int stop_fd_;  // Readable: stop.
  int64_t complained_ms_ = 0;
  std::thread thread_;
};

}  // namespace firn
