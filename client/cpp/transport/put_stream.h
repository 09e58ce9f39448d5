// The Put call: blocks, or leases to be filled, one after another on one stream.
//
// Threads, ownership: see data_stream.h. The memory that jobs name must live until the stream is done.
// Limits: what fits was checked before (api/checks.h); chunk_bytes is at least 1.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "client/cpp/transport/data_stream.h"
#include "firnkv/blocks.h"

namespace firnkv {

// One block or lease of a Put stream, and its outcome.
struct PutJob {
  firn::v1::PutBlock block;  // Unused where `lease` is set.
  std::optional<uint64_t> lease;
  std::vector<std::span<const uint8_t>> payload;  // In order; none for a job that is settled already.
  uint64_t payload_bytes = 0;
  bool settled = false;
  PutResult result;
};

struct PutStreamOptions {
  firn::v1::PutStart start;
  uint32_t chunk_bytes = 0;
};

class PutStream : public DataStream {
 public:
  PutStream(Transport* transport, TimePoint deadline, PutStreamOptions options, std::vector<PutJob> jobs);

  // After done(): one result a job.
  std::vector<PutResult> TakeResults();

 protected:
  void Rewind() override;
  Next NextMessage(grpc::ByteBuffer* message) override;
  absl::Status OnMessage(const grpc::ByteBuffer& message) override;
  bool Settled() const override { return open_ == 0; }
  void Settle(const absl::Status& status) override;

 private:
  bool FindJob();
  void TakePayload(uint64_t bytes);
  void SettleJob(PutJob* job, PutResult result);

  const PutStreamOptions options_;
  std::vector<PutJob> jobs_;
  size_t open_ = 0;  // Jobs not settled.

  // Of this attempt.
  std::vector<size_t> sent_;  // Jobs by their index on the stream.
  size_t job_ = 0;            // The job being sent, or the next one.
  bool begun_ = false;        // Its first message is out.
  bool announced_ = false;    // It waits for the daemon to say that the block is wanted.
  uint64_t offset_ = 0;       // Payload bytes of it that are out.
  size_t piece_ = 0;          // Where its next byte lies.
  uint64_t piece_offset_ = 0;
  std::vector<std::span<const uint8_t>> chunk_;  // Scratch.
};

}  // namespace firnkv
