// The Get call: batches of blocks asked for, received straight into the caller's memory.
//
// Threads, ownership: see data_stream.h. A block is placed chunk by chunk as it comes; what does not come whole is
// zeroed, so that the caller never sees a part of a block.
#pragma once

#include <condition_variable>
#include <mutex>
#include <span>
#include <vector>

#include "client/cpp/transport/data_stream.h"
#include "firnkv/blocks.h"

namespace firnkv {

struct GetJob {
  firn::v1::BlockRef ref;
  TargetParts parts;
  bool allocate = false;
  bool settled = false;
  GetResult result;

  // Of the attempt under way.
  bool found = false;
  uint64_t received = 0;
  std::vector<std::pair<uint64_t, std::span<uint8_t>>> places;  // By offset in the payload; together they cover it.
};

struct GetStreamOptions {
  firn::v1::GetRequest request;    // Without blocks and tag.
  uint32_t keys_max = 0;           // In one request.
  uint64_t payload_bytes_max = 0;  // Of one block: more is not believed.
};

class GetStream : public DataStream {
 public:
  GetStream(Transport* transport, TimePoint deadline, GetStreamOptions options, std::vector<GetJob> jobs);
  ~GetStream() override { AwaitCopies(); }

  // After done(): one result a job.
  std::vector<GetResult> TakeResults();

 protected:
  void Rewind() override;
  Next NextMessage(grpc::ByteBuffer* message) override;
  absl::Status OnMessage(const grpc::ByteBuffer& message) override;
  bool Settled() const override { return open_ == 0; }
  void Settle(const absl::Status& status) override;

 private:
  absl::Status OnFound(const firn::v1::GetBlock& found, GetJob* job);
  absl::Status Place(GetJob* job, uint64_t offset, bool last);
  // Returns when nothing of this stream is being copied.
  void AwaitCopies();
  void ZeroReceived(GetJob* job);
  void SettleJob(GetJob* job, absl::Status status);
  bool packed() const { return options_.request.representation() == firn::v1::REPRESENTATION_PACKED; }

  const GetStreamOptions options_;
  std::vector<GetJob> jobs_;
  size_t open_ = 0;

  // Of this attempt.
  size_t next_ = 0;                         // First job not asked for yet.
  std::vector<std::vector<size_t>> asked_;  // Jobs by tag and index.
  GetFrame frame_;                          // Scratch.

  std::mutex copies_mu_;
  std::condition_variable copied_;
  uint64_t backlog_bytes_ = 0;  // Guarded by copies_mu_: of chunks that the copier still has.
};

}  // namespace firnkv
