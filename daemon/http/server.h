// The admin HTTP endpoint: a few fixed pages, read-only, for probes and Prometheus.
//
// Threads: runs on the control loop, which answers while the executor is busy. Limits: GET and HEAD, 8 KiB of request,
// 2 s for the first one of a connection, 10 s between two and for an answer to be taken, 64 connections: one more takes
// the place of the one that has waited longest. What is no request is answered 400, what is too long 431. Errors:
// FailedPrecondition when the address is in use.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace firn {

class ControlLoop;

struct HttpAnswer {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

class HttpServer {
 public:
  // Answers a path; runs on the control loop.
  using Handler = std::function<HttpAnswer(const std::string& path)>;

  // `address` is "host:port" of numbers; port 0 takes any.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(ControlLoop* loop, const std::string& address,
                                                           Handler handler);
  ~HttpServer();
  uint16_t port() const;

 private:
  class Connection;
  struct State;
  explicit HttpServer(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace firn
