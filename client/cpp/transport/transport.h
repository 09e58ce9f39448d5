// The connections of a client: channels, stubs, and the thread that drives asynchronous streams.
//
// Two channels to the same daemon: bulk payloads have a connection of their own, so that they neither delay short calls
// nor share their flow control; it is kept alive by pings while calls run on it, so that a stopped daemon cannot hold
// payload memory for long. Threads: safe from any thread. Ownership: shared by the client, its sessions, watches and
// streams. Fork: gRPC's threads do not survive it. Usable() says so in a child, and the destructor then leaks on
// purpose: taking the parent's connections apart in a child can hang.
#pragma once

#include <grpcpp/grpcpp.h>
#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "base/executor.h"
#include "firn/v1/admin.grpc.pb.h"
#include "firn/v1/kv.grpc.pb.h"
#include "firnkv/client.h"

namespace firnkv {

class DataStream;

class Transport {
 public:
  static absl::StatusOr<std::shared_ptr<Transport>> Create(const ClientOptions& options);
  ~Transport();

  // FailedPrecondition in a process that was forked after gRPC had started.
  absl::Status Usable() const;
  const ClientOptions& options() const { return options_; }  // With the address as gRPC wants it.

  firn::v1::KvStore::Stub* kv() { return kv_.get(); }
  firn::v1::Admin::Stub* admin() { return admin_.get(); }
  const std::shared_ptr<grpc::Channel>& data_channel() { return data_channel_; }

  // The daemon's limits, asked for once.
  absl::StatusOr<Limits> GetLimits(std::chrono::system_clock::time_point deadline);

  // The daemon may have been replaced: ask again.
  void ForgetLimits();

  // Cancels every asynchronous call and waits until their completions have run. Nothing may be started any more.
  void Stop();

  // A thread that copies what was received to where it belongs; made by the first call.
  firn::Executor* copier();

  // Asynchronous calls with one answer, so that Stop finds them.
  void AddCall(grpc::ClientContext* context);
  void RemoveCall(grpc::ClientContext* context);

  // Drives a stream in the calling thread until it is done.
  void Run(DataStream* stream);
  // Drives it on the client's thread; the stream's own completion tells its owner.
  void Post(std::shared_ptr<DataStream> stream);

 private:
  explicit Transport(const ClientOptions& options);
  void DriveAsync();

  const ClientOptions options_;
  const pid_t pid_;
  std::shared_ptr<grpc::Channel> control_channel_;
  std::shared_ptr<grpc::Channel> data_channel_;
  std::unique_ptr<firn::v1::KvStore::Stub> kv_;
  std::unique_ptr<firn::v1::Admin::Stub> admin_;

  std::mutex mu_;
  std::optional<Limits> limits_;                                // Guarded by mu_.
  std::unique_ptr<grpc::CompletionQueue> queue_;                // Guarded by mu_; made by the first Post.
  std::thread driver_;                                          // Guarded by mu_.
  std::unique_ptr<firn::Executor> copier_;                      // Guarded by mu_.
  std::condition_variable idle_;                                // running_ and calls_ are empty.
  std::set<grpc::ClientContext*> calls_;                        // Guarded by mu_.
  std::map<DataStream*, std::shared_ptr<DataStream>> running_;  // Guarded by mu_.
};

// The daemon's words; where it could not be reached, also where it was looked for.
absl::Status FromGrpc(const grpc::Status& status, const std::string& address);

}  // namespace firnkv
