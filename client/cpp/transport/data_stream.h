// One bulk call (Put or Get) as a state machine over a completion queue: the same code whether a caller's thread drives
// it or the client's own.
//
// A stream is started, exchanges messages, finishes, and is repeated for what is still open when the daemon was
// unavailable: with growing pauses, at most `attempts_max` times, never past the deadline. It is done only when gRPC
// holds none of the caller's memory any more. Threads: one driver at a time; Cancel and done() from any thread.
// Ownership: see Transport::Run and Post.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "client/cpp/transport/wire.h"

namespace firnkv {

class Transport;

class DataStream {
 public:
  using TimePoint = std::chrono::system_clock::time_point;
  virtual ~DataStream() = default;
  DataStream(const DataStream&) = delete;
  DataStream& operator=(const DataStream&) = delete;

  void Start(grpc::CompletionQueue* queue);
  // Feeds one event of the queue to its stream, which is returned.
  static DataStream* Dispatch(void* tag, bool ok);
  void Cancel();
  bool done() const { return done_; }
  // Tells the owner; called once, after done(), by whoever drives the stream.
  virtual void Complete() {}

 protected:
  enum class Next { kMessage, kWait, kEnd };

  DataStream(Transport* transport, std::string method, TimePoint deadline);

  // A new attempt begins: forget what was under way, keep what is settled.
  virtual void Rewind() = 0;
  // The next message to send; kWait until another message has come in.
  virtual Next NextMessage(grpc::ByteBuffer* message) = 0;
  // An error ends the attempt, and the call.
  virtual absl::Status OnMessage(const grpc::ByteBuffer& message) = 0;
  // Whether anything is still open after a stream that ended well, or that may be repeated.
  virtual bool Settled() const = 0;
  // The call is over; what is still open gets `status`, which is not OK then.
  virtual void Settle(const absl::Status& status) = 0;

  PayloadHold* hold() { return &hold_; }
  Transport* transport() { return transport_; }
  TimePoint deadline() const { return deadline_; }

 private:
  enum Kind { kStarted, kRead, kWritten, kWritesEnded, kFinished, kWoken, kKinds };
  struct Event {
    DataStream* stream;
    Kind kind;
  };

  void StartAttempt();
  void OnEvent(Kind kind, bool ok);
  void PumpWrites();
  void MaybeFinish();
  void OnFinished();
  bool MayRepeat(const absl::Status& status) const;
  void WakeAfter(std::chrono::milliseconds pause);
  void AwaitRelease();
  void* Expect(Kind kind);

  Transport* const transport_;
  const std::string method_;
  const TimePoint deadline_;
  std::array<Event, kKinds> events_;

  grpc::CompletionQueue* queue_ = nullptr;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  grpc::ByteBuffer received_;
  grpc::Status finish_;
  grpc::Alarm alarm_;
  PayloadHold hold_;
  absl::Status failure_;  // Found on this side; outranks what the daemon says.
  int attempts_ = 0;
  int outstanding_ = 0;  // Events that the queue still owes, but for kFinished and kWoken.
  bool writing_ = false, writes_ended_ = false, reads_ended_ = false, broken_ = false, finishing_ = false;
  bool over_ = false;  // Settled; waiting for gRPC to let go of payload memory.
  std::atomic<bool> done_{false};

  std::mutex mu_;
  std::unique_ptr<grpc::ClientContext> context_;  // Guarded by mu_ against Cancel; else the driver's.
  bool cancelled_ = false;                        // Guarded by mu_.
};

}  // namespace firnkv
