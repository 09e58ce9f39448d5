// One Put stream: messages in order, commits beside them, answers as they come.
//
// See streams.h for threads and lifetime. A message is handled by one thread at a time, from OnReadDone until the next
// read is started; in between it may wait for the store to make room. So `block_`, `slices_` and what else only the
// handler uses need no lock.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "daemon/rpc/grpc_glue.h"
#include "daemon/rpc/streams.h"
#include "daemon/wire/put_frame.h"

namespace firn {

class PutStream final : public RawBidiReactor, public WatchedStream, public std::enable_shared_from_this<PutStream> {
 public:
  PutStream(ServiceCore* core, const CallerIdentity& caller, Store* store, grpc::CallbackServerContext* context);
  void Start();

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  void EndIfStalled(int64_t now_ns) override;
  std::optional<Stall> Stalled() override;
  void EndStall() override;

 private:
  // The block whose payload is arriving.
  struct Block {
    uint32_t index = 0;
    int64_t since_ns = 0;  // When its first message came.
    std::optional<uint64_t> lease;
    BegunPut begun;
    bool wanted = false;  // False: its outcome is known and the rest of its payload is passed over.
  };

  void HandleMessage();
  absl::Status HandleStart(const v1::PutStart& start);
  void HandleBlock(const v1::PutBlock& block);
  void HandleLease(uint64_t lease);
  void OnLeaseReady(absl::StatusOr<BegunPut> begun);
  void BeginNow();
  void OnBegun(absl::StatusOr<BegunPut> begun);
  void HandlePayload();
  void CompleteBlock();
  void FillLease();
  // What CompleteBlock sent elsewhere is over.
  void OnCompleted(v1::PutResponse answer, int64_t since_ns);
  void DropBlock(const char* why);
  void NextMessage();
  // Answers for the block at hand: its outcome is known.
  void Refuse(const absl::Status& status);
  void Answer(v1::PutResponse answer);
  // The last answer for a block that began at `since_ns`.
  void Conclude(v1::PutResponse answer, int64_t since_ns);
  void EndWith(const absl::Status& status);

  void ReadLocked();
  void WriteLocked();
  void EndStallLocked();
  void FinishIfQuietLocked();
  void FinishLocked(const absl::Status& status);

  ServiceCore* const core_;
  const ServiceCore::LiveCall live_;
  const CallerIdentity caller_;
  Store* const store_;

  // Of the handler.
  grpc::ByteBuffer read_buffer_;
  MessageSlices message_;
  PutFrame frame_;
  v1::PutRequest control_;
  NamespacePtr namespace_;
  std::shared_ptr<ClientSession> session_;
  uint32_t next_index_ = 0;
  std::optional<Block> block_;
  std::optional<PutOrder> order_;  // Being begun.
  bool retried_ = false;

  std::mutex mu_;
  grpc::CallbackServerContext* context_;    // Guarded by mu_; null once the call is done.
  std::deque<v1::PutResponse> answers_;     // Guarded by mu_.
  grpc::ByteBuffer write_buffer_;           // Guarded by mu_.
  absl::Status final_status_;               // Guarded by mu_.
  uint32_t commits_ = 0;                    // Guarded by mu_. In flight.
  int64_t read_since_ns_ = 0;               // Guarded by mu_.
  int64_t write_since_ns_ = 0;              // Guarded by mu_.
  bool reading_ = false, writing_ = false;  // Guarded by mu_.
  bool handling_ = false;                   // Guarded by mu_. A message is being handled.
  bool mid_block_ = false;                  // Guarded by mu_. Payload of a wanted block is missing.
  uint64_t staged_bytes_ = 0;        // Guarded by mu_. What the block that is missing payload keeps beside its runs.
  bool paused_ = false;              // Guarded by mu_. Reading waits for commits or answers to go.
  bool retry_when_quiet_ = false;    // Guarded by mu_. A begin waits for this stream's own commits.
  bool input_over_ = false;          // Guarded by mu_.
  bool finished_ = false;            // Guarded by mu_.
  std::shared_ptr<PutStream> self_;  // Until OnDone.
};

}  // namespace firn
