// A client of bytes: any method, any message, well-formed or not. Messages of the API are serialized by the caller.
//
// Threads: one at a time for each stream. It knows nothing of the project's own client library, as any gRPC client
// would not.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"

namespace firn {

class RawStream {
 public:
  virtual ~RawStream() = default;
  // False when the call is over.
  virtual bool Write(const std::string& message) = 0;
  virtual bool Read(std::string* message) = 0;
  virtual void HalfClose() = 0;
  virtual void Cancel() = 0;
  // The call's status; nothing may be read afterwards.
  virtual absl::Status Finish() = 0;
};

class RawClient {
 public:
  // "unix:/path" or "host:port". A connection of its own for each client. `window_bytes`: how much the client takes in
  // before it reads; 0: gRPC's own choice.
  explicit RawClient(const std::string& address, int window_bytes = 0);
  ~RawClient();

  // `method` is "KvStore/Get", of package firn.v1, or a full path that starts with '/'.
  absl::Status Call(const std::string& method, const std::string& request, std::string* response,
                    int64_t deadline_ms = 30'000);
  std::unique_ptr<RawStream> Open(const std::string& method, int64_t deadline_ms = 60'000);

  template <typename Request, typename Response>
  absl::Status Call(const std::string& method, const Request& request, Response* response,
                    int64_t deadline_ms = 30'000) {
    std::string bytes;
    absl::Status status = Call(method, request.SerializeAsString(), &bytes, deadline_ms);
    if (status.ok() && !response->ParseFromString(bytes)) return absl::InternalError("unreadable response");
    return status;
  }

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace firn
