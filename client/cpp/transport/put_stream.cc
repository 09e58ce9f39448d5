#include "client/cpp/transport/put_stream.h"

#include <grpcpp/impl/codegen/proto_utils.h>

#include <algorithm>

#include "base/status.h"
#include "client/cpp/api/convert.h"

namespace firnkv {

PutStream::PutStream(Transport* transport, TimePoint deadline, PutStreamOptions options, std::vector<PutJob> jobs)
    : DataStream(transport, "/firn.v1.KvStore/Put", deadline), options_(std::move(options)), jobs_(std::move(jobs)) {
  for (const PutJob& job : jobs_) open_ += job.settled ? 0 : 1;
}

void PutStream::Rewind() {
  sent_.clear();
  job_ = 0;
  begun_ = announced_ = false;
  offset_ = 0;
}

// Moves job_ to one that still has something to send; false at the end.
bool PutStream::FindJob() {
  for (; job_ < jobs_.size(); ++job_) {
    if (!jobs_[job_].settled && (!begun_ || offset_ < jobs_[job_].payload_bytes)) return true;
    begun_ = announced_ = false;  // Sent whole, or not needed any more: the next `block` ends it on the stream.
  }
  return false;
}

DataStream::Next PutStream::NextMessage(grpc::ByteBuffer* message) {
  if (!FindJob()) return Next::kEnd;
  PutJob& job = jobs_[job_];
  if (announced_) return Next::kWait;
  firn::v1::PutRequest head;
  if (!begun_) {
    if (sent_.empty()) *head.mutable_start() = options_.start;
    if (job.lease.has_value()) {
      head.set_lease(*job.lease);
    } else {
      *head.mutable_block() = job.block;
    }
    sent_.push_back(job_);
    begun_ = true;
    offset_ = piece_offset_ = 0;
    piece_ = 0;
    announced_ = !job.lease.has_value() && job.block.announce();
  } else {
    head.set_offset(offset_);
  }
  chunk_.clear();
  if (!announced_) TakePayload(std::min<uint64_t>(options_.chunk_bytes, job.payload_bytes - offset_));
  *message = FramePut(head, chunk_, hold());
  return Next::kMessage;
}

void PutStream::TakePayload(uint64_t bytes) {
  const auto& pieces = jobs_[job_].payload;
  offset_ += bytes;
  while (bytes > 0) {
    uint64_t take = std::min<uint64_t>(bytes, pieces[piece_].size() - piece_offset_);
    chunk_.push_back(pieces[piece_].subspan(piece_offset_, take));
    piece_offset_ += take;
    bytes -= take;
    if (piece_offset_ == pieces[piece_].size()) {
      ++piece_;
      piece_offset_ = 0;
    }
  }
}

absl::Status PutStream::OnMessage(const grpc::ByteBuffer& message) {
  firn::v1::PutResponse response;
  grpc::ByteBuffer copy = message;  // A reference; deserializing consumes it.
  if (!grpc::SerializationTraits<firn::v1::PutResponse>::Deserialize(&copy, &response).ok()) {
    return firn::DataLoss("an answer of the Put stream does not parse");
  }
  if (response.index() >= sent_.size()) {
    return firn::InternalError("the daemon answered block {} of a Put stream of {} blocks so far", response.index(),
                               sent_.size());
  }
  size_t index = sent_[response.index()];
  if (jobs_[index].settled) return absl::OkStatus();
  if (response.outcome() == firn::v1::PUT_OUTCOME_BEGUN) {
    if (index == job_) announced_ = false;
    return absl::OkStatus();
  }
  SettleJob(&jobs_[index], FromProto(response));
  return absl::OkStatus();
}

void PutStream::SettleJob(PutJob* job, PutResult result) {
  job->settled = true;
  job->result = std::move(result);
  --open_;
}

void PutStream::Settle(const absl::Status& status) {
  for (PutJob& job : jobs_) {
    if (!job.settled) SettleJob(&job, PutResult{.status = status});
  }
}

std::vector<PutResult> PutStream::TakeResults() {
  std::vector<PutResult> results;
  results.reserve(jobs_.size());
  for (PutJob& job : jobs_) results.push_back(std::move(job.result));
  return results;
}

}  // namespace firnkv
