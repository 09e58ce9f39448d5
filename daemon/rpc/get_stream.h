// One Get stream: batches in order, blocks read ahead, chunks produced one ahead of the one being sent.
//
// See streams.h for threads and lifetime. Chunks are produced on the executor by one task at a time (`producing_`),
// which alone uses `source_`. Reads of a batch's next blocks overlap with sending the block before.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "daemon/payload/payload_source.h"
#include "daemon/rpc/grpc_glue.h"
#include "daemon/rpc/streams.h"

namespace firn {

class GetStream final : public RawBidiReactor, public WatchedStream, public std::enable_shared_from_this<GetStream> {
 public:
  GetStream(ServiceCore* core, const CallerIdentity& caller, Store* store, grpc::CallbackServerContext* context);
  ~GetStream() override;
  void Start();

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  void EndIfStalled(int64_t now_ns) override;
  std::optional<Stall> Stalled() override;
  void EndStall() override;

 private:
  struct Batch {
    uint64_t tag = 0;
    int64_t since_ns = 0;  // When it was asked for.
    GetSpec spec;          // Without the address.
    std::vector<absl::StatusOr<BlockAddress>> addresses;
    std::vector<std::optional<absl::StatusOr<GetResult>>> results;
    PayloadRequest payload;
    std::shared_ptr<ClientSession> session;  // Keeps the session's number from being another's.
    size_t ahead_max = 1;                    // Blocks read ahead.
    size_t issued = 0;                       // Guarded by mu_.
    size_t sent = 0;                         // Guarded by mu_. The block being sent.
  };
  using BatchPtr = std::shared_ptr<Batch>;

  absl::StatusOr<BatchPtr> ParseBatch(const v1::GetRequest& request);
  void IssueReads();
  void OnRead(const BatchPtr& batch, size_t index, absl::StatusOr<GetResult> result);
  void Kick();
  // What only hands out views runs where it is; decoding runs on the executor.
  void Produce(bool on_executor);
  // One message for the block at hand; false when it goes on elsewhere: on the executor, or once the budget has granted
  // a buffer.
  bool ProduceOne(const BatchPtr& batch, bool on_executor, std::unique_ptr<ByteBudget::Grant> grant);
  // Null: it goes on when a message has been sent, or when the budget grants a buffer. A stream has at most one decoded
  // buffer beside the one being sent, and waits for the budget only when it has nothing to send.
  std::unique_ptr<ByteBudget::Grant> TakeBuffer(const BatchPtr& batch, uint64_t bytes);
  bool PauseUntilSent(uint64_t ready_bytes_min);
  void AnswerError(const BatchPtr& batch, const absl::Status& status);
  void Send(const v1::GetResponse& control, PayloadChunk chunk, const BatchPtr& batch);
  bool CanProduceLocked() const;

  void ReadLocked();
  void WriteLocked();
  void EndStallLocked();
  void FinishIfQuietLocked();
  void FinishLocked(const absl::Status& status);

  ServiceCore* const core_;
  const ServiceCore::LiveCall live_;
  const CallerIdentity caller_;
  Store* const store_;
  const SessionId own_session_;  // Counts what calls without a session hold.
  const ByteBudget::Held held_ = std::make_shared<std::atomic<uint64_t>>(0);  // Decoded buffers of this stream.
  grpc::ByteBuffer read_buffer_;

  // Of the producer.
  std::unique_ptr<PayloadSource> source_;  // The block at hand.
  bool found_sent_ = false;                // Its first message is out.

  std::mutex mu_;
  grpc::CallbackServerContext* context_;  // Guarded by mu_; null once the call is done.
  std::deque<BatchPtr> batches_;          // Guarded by mu_.
  std::deque<grpc::ByteBuffer> ready_;    // Guarded by mu_. Produced, not yet being sent.
  grpc::ByteBuffer write_buffer_;         // Guarded by mu_.
  absl::Status final_status_;             // Guarded by mu_.
  int64_t write_since_ns_ = 0;            // Guarded by mu_.
  bool reading_ = false;                  // Guarded by mu_.
  bool writing_ = false;                  // Guarded by mu_.
  bool producing_ = false;                // Guarded by mu_.
  bool in_block_ = false;                 // Guarded by mu_. source_ has more.
  bool input_over_ = false;               // Guarded by mu_.
  bool finished_ = false;                 // Guarded by mu_.
  std::shared_ptr<GetStream> self_;       // Until OnDone.
};

}  // namespace firn
