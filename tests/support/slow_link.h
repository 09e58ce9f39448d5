// A Unix socket in front of another one that passes bytes on as slowly as a test wants, or not at all: a client behind
// it is slow, or has stopped, without knowing.
//
// Threads: limits may change at any time from any thread. Ownership: ends all connections with the object. Little is
// buffered on the way: the far end feels the limit after some 100 KiB.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace firn {

class SlowLink {
 public:
  static constexpr int64_t kUnlimited = -1;

  // Listens on `path`, which must not exist, for connections to the socket `to`.
  SlowLink(std::string to, std::string path);
  ~SlowLink();
  SlowLink(const SlowLink&) = delete;
  SlowLink& operator=(const SlowLink&) = delete;

  const std::string& path() const { return path_; }
  // Bytes a second of each connection; 0 stops it.
  void LimitToClient(int64_t bytes_per_second) { to_client_.limit = bytes_per_second; }
  void LimitToServer(int64_t bytes_per_second) { to_server_.limit = bytes_per_second; }
  // Passed on so far, by all connections.
  uint64_t to_client_bytes() const { return to_client_.passed; }
  uint64_t to_server_bytes() const { return to_server_.passed; }

 private:
  struct Direction {
    std::atomic<int64_t> limit{kUnlimited};
    std::atomic<uint64_t> passed{0};
  };

  void Accept();
  void Pass(int from, int to, Direction& direction);

  const std::string to_, path_;
  Direction to_client_, to_server_;
  std::atomic<bool> stop_{false};
  int listener_ = -1;
  std::mutex mu_;
  std::vector<int> sockets_;  // Guarded by mu_, as below.
  std::vector<std::thread> passers_;
  std::thread acceptor_;
};

}  // namespace firn
