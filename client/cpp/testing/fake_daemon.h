// A daemon for tests of the client: keeps payloads in a map and misbehaves on request. It speaks the API through
// generated stubs only, so that the client's own framing is checked against protobuf's.
//
// Threads: settings before Start, counters after; the map is locked. What must survive its faults: the client reports
// them, repeats what is safe, and never hands out a part of a block.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "firn/v1/admin.grpc.pb.h"
#include "firn/v1/kv.grpc.pb.h"

namespace firnkv {

struct FakeFaults {
  std::atomic<int> refuse_calls{0};              // The next so many calls answer UNAVAILABLE.
  std::atomic<int> break_gets_after{-1};         // A Get stream ends with UNAVAILABLE after so many messages, once.
  std::atomic<bool> hang{false};                 // Every call waits until its client gives up.
  std::atomic<bool> shorten{false};              // The last chunk of each block is missing.
  std::atomic<bool> overrun{false};              // Chunks name places past the end.
  std::atomic<bool> shuffle{false};              // Chunks of a block come back to front.
  std::atomic<bool> silent_puts{false};          // Put streams end well, without answers.
  std::atomic<uint64_t> full_after{UINT64_MAX};  // Puts beyond so many blocks: RESOURCE_EXHAUSTED.
};

class FakeDaemon final : public firn::v1::KvStore::Service {
 public:
  FakeDaemon();
  ~FakeDaemon() override { Stop(); }
  void Start(const std::string& address);
  void Stop();

  FakeFaults faults;
  firn::v1::Limits limits;
  std::atomic<uint64_t> put_messages{0}, put_bytes{0}, get_requests{0}, calls{0};
  std::atomic<uint64_t> open_sessions{0};
  firn::v1::PutBlock last_block;  // Of the newest put.
  firn::v1::GetRequest last_get;
  firn::v1::LookupRequest last_lookup;

  void Emit(uint64_t sequence, bool gap = false);
  size_t blocks() const;

  grpc::Status RegisterNamespace(grpc::ServerContext*, const firn::v1::RegisterNamespaceRequest*,
                                 firn::v1::NamespaceInfo*) override;
  grpc::Status Put(grpc::ServerContext*,
                   grpc::ServerReaderWriter<firn::v1::PutResponse, firn::v1::PutRequest>*) override;
  grpc::Status Get(grpc::ServerContext*,
                   grpc::ServerReaderWriter<firn::v1::GetResponse, firn::v1::GetRequest>*) override;
  grpc::Status Lookup(grpc::ServerContext*, const firn::v1::LookupRequest*, firn::v1::LookupResponse*) override;
  grpc::Status Exists(grpc::ServerContext*, const firn::v1::ExistsRequest*, firn::v1::ExistsResponse*) override;
  grpc::Status Delete(grpc::ServerContext*, const firn::v1::DeleteRequest*, firn::v1::BatchResponse*) override;
  grpc::Status Pin(grpc::ServerContext*, const firn::v1::PinRequest*, firn::v1::BatchResponse*) override;
  grpc::Status Session(grpc::ServerContext*,
                       grpc::ServerReaderWriter<firn::v1::SessionResponse, firn::v1::SessionRequest>*) override;
  grpc::Status Watch(grpc::ServerContext*, const firn::v1::WatchRequest*,
                     grpc::ServerWriter<firn::v1::WatchResponse>*) override;
  grpc::Status Stats(grpc::ServerContext*, const firn::v1::StatsRequest*, firn::v1::StatsResponse*) override;
  grpc::Status Capabilities(grpc::ServerContext*, const firn::v1::CapabilitiesRequest*,
                            firn::v1::CapabilitiesResponse*) override;

 private:
  struct Stored {
    firn::v1::PutBlock facts;
    std::string payload;
  };
  grpc::Status Enter(grpc::ServerContext* context);
  firn::v1::PutResponse Store(uint32_t index, const firn::v1::PutBlock& facts, std::string payload);
  bool Answer(const firn::v1::GetRequest& request, uint32_t index,
              grpc::ServerReaderWriter<firn::v1::GetResponse, firn::v1::GetRequest>* stream, int* messages);

  std::unique_ptr<grpc::Server> server_;
  std::atomic<bool> stopping_{false};
  mutable std::mutex mu_;
  std::condition_variable changed_;
  std::map<std::string, Stored> stored_;         // By serialized BlockRef. Guarded by mu_.
  std::vector<firn::v1::WatchResponse> events_;  // Guarded by mu_.
};

}  // namespace firnkv
