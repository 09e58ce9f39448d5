#include "client/cpp/transport/get_stream.h"

#include <grpcpp/impl/codegen/proto_utils.h>

#include <algorithm>
#include <cstring>

#include "base/status.h"
#include "client/cpp/api/convert.h"
#include "client/cpp/transport/transport.h"

namespace firnkv {
namespace {

constexpr size_t kRequestBytesMax = 1 << 20;  // Opaque keys may be long; a request stays well below any message limit.

constexpr uint64_t kCopiedApartBytesMin = 256 << 10;  // Below, handing over costs more than copying.
constexpr uint64_t kBacklogBytesMax = 16 << 20;

// Copies a chunk that starts at payload offset `offset` to its places.
void CopyOut(const std::vector<std::pair<uint64_t, std::span<uint8_t>>>& places, uint64_t offset,
             std::span<const std::span<const uint8_t>> payload) {
  auto place = std::upper_bound(places.begin(), places.end(), offset,
                                [](uint64_t at, const auto& entry) { return at < entry.first; }) -
               1;
  for (std::span<const uint8_t> piece : payload) {
    while (!piece.empty()) {
      while (offset - place->first == place->second.size()) ++place;
      std::span<uint8_t> target = place->second.subspan(offset - place->first);
      size_t count = std::min(target.size(), piece.size());
      std::memcpy(target.data(), piece.data(), count);
      piece = piece.subspan(count);
      offset += count;
    }
  }
}

// Maps part `bytes` bytes long from payload offset `*offset` on to the caller's pieces.
absl::Status MapPart(const char* name, const TargetPieces& target, uint64_t bytes, uint64_t* offset, GetJob* job) {
  if (target.bytes() < bytes) {
    return firn::InvalidArgument("{} needs {} bytes; the buffer given has {}", name, bytes, target.bytes());
  }
  for (std::span<uint8_t> piece : target.pieces()) {
    if (bytes == 0) break;
    std::span<uint8_t> used = piece.first(std::min<uint64_t>(piece.size(), bytes));
    job->places.emplace_back(*offset, used);
    *offset += used.size();
    bytes -= used.size();
  }
  return absl::OkStatus();
}

}  // namespace

GetStream::GetStream(Transport* transport, TimePoint deadline, GetStreamOptions options, std::vector<GetJob> jobs)
    : DataStream(transport, "/firn.v1.KvStore/Get", deadline), options_(std::move(options)), jobs_(std::move(jobs)) {
  for (const GetJob& job : jobs_) open_ += job.settled ? 0 : 1;
}

void GetStream::AwaitCopies() {
  std::unique_lock lock(copies_mu_);
  copied_.wait(lock, [this] { return backlog_bytes_ == 0; });
}

void GetStream::ZeroReceived(GetJob* job) {
  if (job->received == 0) return;
  AwaitCopies();
  for (auto& [offset, place] : job->places) std::memset(place.data(), 0, place.size());
}

void GetStream::Rewind() {
  AwaitCopies();
  next_ = 0;
  asked_.clear();
  for (GetJob& job : jobs_) {
    if (job.settled) continue;
    ZeroReceived(&job);
    job.found = false;
    job.received = 0;
    job.places.clear();
    job.result = {};
  }
}

DataStream::Next GetStream::NextMessage(grpc::ByteBuffer* message) {
  firn::v1::GetRequest request = options_.request;
  std::vector<size_t> batch;
  size_t request_bytes = 0;
  for (; next_ < jobs_.size() && batch.size() < options_.keys_max && request_bytes < kRequestBytesMax; ++next_) {
    if (jobs_[next_].settled) continue;
    *request.add_blocks() = jobs_[next_].ref;
    request_bytes += jobs_[next_].ref.ByteSizeLong();
    batch.push_back(next_);
  }
  if (batch.empty()) return Next::kEnd;
  request.set_tag(asked_.size());
  asked_.push_back(std::move(batch));
  bool own = false;
  grpc::SerializationTraits<firn::v1::GetRequest>::Serialize(request, message, &own);
  return Next::kMessage;
}

absl::Status GetStream::OnMessage(const grpc::ByteBuffer& message) {
  FIRN_RETURN_IF_ERROR(ParseGet(message, &frame_));
  const firn::v1::GetResponse& head = frame_.head;
  if (head.tag() >= asked_.size() || head.index() >= asked_[head.tag()].size()) {
    return firn::InternalError("the daemon answered block {} of request {}, which was not asked for", head.index(),
                               head.tag());
  }
  GetJob* job = &jobs_[asked_[head.tag()][head.index()]];
  if (job->settled) return absl::OkStatus();  // Refused on this side; what follows of it is dropped.
  if (head.has_status() && head.status().code() != 0) {
    ZeroReceived(job);
    SettleJob(job, FromProto(head.status()));
    return absl::OkStatus();
  }
  if (head.has_found()) {
    if (absl::Status fits = OnFound(head.found(), job); !fits.ok()) {
      SettleJob(job, fits);
      return absl::OkStatus();
    }
  }
  if (frame_.payload_bytes > 0) FIRN_RETURN_IF_ERROR(Place(job, head.offset(), head.last()));
  if (!head.last()) return absl::OkStatus();
  if (!job->found || job->received != job->result.payload_bytes) {
    return firn::DataLoss("the daemon sent {} of {} bytes of a block", job->received, job->result.payload_bytes);
  }
  SettleJob(job, absl::OkStatus());
  return absl::OkStatus();
}

absl::Status GetStream::OnFound(const firn::v1::GetBlock& found, GetJob* job) {
  GetResult* result = &job->result;
  ReadFound(found, result);
  uint64_t parts[4] = {result->k_bytes, result->v_bytes, result->k_scale_bytes, result->v_scale_bytes};
  if (packed()) {
    std::fill(std::begin(parts), std::end(parts), 0);
    parts[0] = result->payload_bytes;
  }
  uint64_t sum = 0;
  for (uint64_t bytes : parts) sum += std::min(bytes, options_.payload_bytes_max + 1);
  if (sum != result->payload_bytes || sum > options_.payload_bytes_max) {
    return firn::DataLoss("the daemon announced {} bytes in parts of {} bytes together; the limit is {}",
                          result->payload_bytes, sum, options_.payload_bytes_max);
  }
  job->found = true;
  if (job->allocate) {
    result->payload.resize(sum);
    job->places.emplace_back(0, std::span<uint8_t>(result->payload));
    return absl::OkStatus();
  }
  uint64_t offset = 0;
  FIRN_RETURN_IF_ERROR(MapPart(packed() ? "the packed record" : "K", job->parts.k, parts[0], &offset, job));
  FIRN_RETURN_IF_ERROR(MapPart("V", job->parts.v, parts[1], &offset, job));
  FIRN_RETURN_IF_ERROR(MapPart("the scales of K", job->parts.k_scales, parts[2], &offset, job));
  return MapPart("the scales of V", job->parts.v_scales, parts[3], &offset, job);
}

// Brings the frame's payload to its place; the last chunk at once, since there is nothing left to receive meanwhile.
absl::Status GetStream::Place(GetJob* job, uint64_t offset, bool last) {
  uint64_t total = job->result.payload_bytes, bytes = frame_.payload_bytes;
  if (!job->found || offset > total || bytes > total - offset || bytes > total - job->received) {
    return firn::DataLoss("the daemon sent bytes [{}, {}) after {} others of a block of {} bytes", offset,
                          offset + bytes, job->received, total);
  }
  job->received += bytes;
  bool apart = bytes >= kCopiedApartBytesMin && !(last && open_ == 1);
  if (apart) {
    std::lock_guard lock(copies_mu_);
    apart = backlog_bytes_ + bytes <= kBacklogBytesMax;
    backlog_bytes_ += apart ? bytes : 0;
  }
  if (!apart) {
    CopyOut(job->places, offset, frame_.payload);
    return absl::OkStatus();
  }
  // `places` does not change before the copies of the stream are awaited; the slices go with the task.
  transport()->copier()->Post(
      [this, job, offset, bytes, slices = std::move(frame_.slices), payload = std::move(frame_.payload)] {
        CopyOut(job->places, offset, payload);
        std::lock_guard lock(copies_mu_);
        backlog_bytes_ -= bytes;
        if (backlog_bytes_ == 0) copied_.notify_all();
      });
  return absl::OkStatus();
}

void GetStream::SettleJob(GetJob* job, absl::Status status) {
  job->settled = true;
  if (!status.ok() && !job->result.payload.empty()) {
    AwaitCopies();
    job->result.payload.clear();
  }
  job->result.status = std::move(status);
  --open_;
}

void GetStream::Settle(const absl::Status& status) {
  for (GetJob& job : jobs_) {
    if (job.settled) continue;
    ZeroReceived(&job);
    SettleJob(&job, status);
  }
}

std::vector<GetResult> GetStream::TakeResults() {
  AwaitCopies();
  std::vector<GetResult> results;
  results.reserve(jobs_.size());
  for (GetJob& job : jobs_) results.push_back(std::move(job.result));
  return results;
}

}  // namespace firnkv
