// A bare gRPC byte stream: what the inline path is measured against. Messages of raw bytes, no fields, no copies of
// ours.
//
// The server is a callback service over ByteBuffers, the client drives a completion queue from its own thread: the
// fastest of the ways that gRPC offers on both ends. `Upload` sends units and waits for an acknowledgement of each;
// `Download` asks for units and receives them. The channel settings of the product are used here as well, so that only
// what FirnKV adds is compared. Threads: one caller.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"

namespace firn::bench {

struct BareUnits {
  uint64_t unit_bytes = 0;
  uint32_t units = 0;
  uint32_t chunk_bytes = 0;  // Of one message.
  // The receiving end copies what comes into one buffer of unit_bytes, as whoever wants the bytes must; else it drops
  // them.
  bool into_memory = false;
};

class BareServer {
 public:
  explicit BareServer(const std::string& address, bool tuned);
  ~BareServer();

 private:
  class Service;
  std::unique_ptr<Service> service_;
  std::unique_ptr<grpc::Server> server_;
};

class BareClient {
 public:
  explicit BareClient(const std::string& address, bool tuned);
  // `source` has unit_bytes; it is sent again for every unit.
  absl::Status Upload(const BareUnits& units, std::span<const uint8_t> source);
  absl::Status Download(const BareUnits& units);

 private:
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace firn::bench
