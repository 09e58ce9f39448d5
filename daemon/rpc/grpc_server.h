// One listener: an address, the tenant whose calls arrive there, and a gRPC server with the services that it offers.
//
// Each listener has a server of its own, so that the tenant of a call is a fact of the connection and never a field.
// Start returns when the socket accepts connections; calls are answered UNAVAILABLE until the core has its store.
// Threads: any. Ownership: borrows the core.
// Errors: of binding, of files of TLS, of the socket's directory, mode and group.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/config/config.h"
#include "daemon/core/service_core.h"

namespace firn {

// Largest message either way, payload included; set on both ends.
inline constexpr uint32_t kMessageBytesMax = 16 * 1024 * 1024;

class GrpcListener {
 public:
  // `listeners` is how many share the memory that gRPC may take.
  static absl::StatusOr<std::unique_ptr<GrpcListener>> Start(ServiceCore* core, const ListenerSettings& settings,
                                                             size_t listeners);
  ~GrpcListener();

  // Health checks answer SERVING or NOT_SERVING.
  void SetServing(bool serving);
  // Refuses new calls, gives those under way `grace_ms`, then cancels them; returns when all are over.
  void Shutdown(int64_t grace_ms);
  // What clients connect to: with the port that was chosen where the configuration says 0.
  const std::string& address() const;

 private:
  struct State;
  explicit GrpcListener(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace firn
