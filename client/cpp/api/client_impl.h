// What a Client is made of, for the files that implement it. Threads and ownership: see firnkv/client.h.
#pragma once

#include <memory>
#include <string>

#include "client/cpp/transport/transport.h"
#include "firnkv/client.h"

namespace firnkv {

class Client::Impl {
 public:
  explicit Impl(std::shared_ptr<Transport> transport_in) : transport(std::move(transport_in)) {}

  std::chrono::system_clock::time_point Deadline(const CallOptions& options) const;
  std::chrono::system_clock::time_point DataDeadline(int64_t deadline_ms) const;

  const std::shared_ptr<Transport> transport;
};

// The wire name of a session; empty for none.
std::string SessionId(const Session* session);

}  // namespace firnkv
