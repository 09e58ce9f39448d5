#include <utility>

#include "base/status.h"
#include "client/cpp/api/checks.h"
#include "client/cpp/api/client_impl.h"
#include "client/cpp/api/convert.h"
#include "client/cpp/api/jobs.h"
#include "client/cpp/transport/get_stream.h"
#include "client/cpp/transport/put_stream.h"

namespace firnkv {
namespace {

constexpr uint32_t kChunkBytesMin = 4096;
// FP32 answers are up to four times as large as the FP8 block they come from.
constexpr uint64_t kWidestAnswer = 4;

absl::StatusOr<uint32_t> ChunkBytes(uint32_t asked, const Limits& limits) {
  if (asked == 0) return limits.chunk_bytes_max;
  if (asked < kChunkBytesMin || asked > limits.chunk_bytes_max) {
    return firn::InvalidArgument("chunk_bytes is {}; {} to {} expected", asked, kChunkBytesMin, limits.chunk_bytes_max);
  }
  return asked;
}

void AppendPieces(const SourcePieces& part, PutJob* job) {
  job->payload.insert(job->payload.end(), part.pieces().begin(), part.pieces().end());
  job->payload_bytes += part.bytes();
}

absl::StatusOr<std::vector<GetJob>> MakeGetJobs(const Namespace& ns, std::span<const GetItem> items) {
  std::vector<GetJob> jobs(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    jobs[i].result.status = CheckGet(ns, items[i]);
    jobs[i].settled = !jobs[i].result.status.ok();
    if (jobs[i].settled) continue;
    ToProto(items[i].key, jobs[i].ref.mutable_key());
    jobs[i].ref.set_shard(items[i].shard);
    jobs[i].parts = items[i].parts;
    jobs[i].allocate = items[i].allocate;
  }
  return jobs;
}

GetStreamOptions MakeGetOptions(const Namespace& ns, const GetOptions& options, const Limits& limits,
                                uint32_t chunk_bytes) {
  GetStreamOptions out;
  out.keys_max = limits.keys_max;
  out.payload_bytes_max = limits.block_bytes_max * kWidestAnswer;
  out.request.set_namespace_fingerprint(Bytes(ns.fingerprint));
  out.request.set_session(SessionId(options.session));
  out.request.set_representation(static_cast<firn::v1::Representation>(options.representation));
  ToProto(options.least, out.request.mutable_least());
  ToProto(options.most, out.request.mutable_most());
  out.request.set_layer_first(options.layer_first);
  out.request.set_layer_count(options.layer_count);
  if (options.layout.has_value()) {
    ToProto(*options.layout, out.request.mutable_layout());
    out.payload_bytes_max += options.layout->payload_bytes;
  }
  out.request.set_chunk_bytes(chunk_bytes);
  return out;
}

// The two streams with their caller's completion.
class AsyncPut final : public PutStream {
 public:
  AsyncPut(Transport* transport, TimePoint until, PutStreamOptions options, std::vector<PutJob> jobs,
           Callback<std::vector<PutResult>> completion)
      : PutStream(transport, until, std::move(options), std::move(jobs)), completion_(std::move(completion)) {}
  void Complete() override { completion_(TakeResults()); }

 private:
  Callback<std::vector<PutResult>> completion_;
};

class AsyncGet final : public GetStream {
 public:
  AsyncGet(Transport* transport, TimePoint until, GetStreamOptions options, std::vector<GetJob> jobs,
           Callback<std::vector<GetResult>> completion)
      : GetStream(transport, until, std::move(options), std::move(jobs)), completion_(std::move(completion)) {}
  void Complete() override { completion_(TakeResults()); }

 private:
  Callback<std::vector<GetResult>> completion_;
};

// What both ways of a Put need before the first byte.
struct PreparedPut {
  PutStreamOptions options;
  std::vector<PutJob> jobs;
};

absl::StatusOr<PreparedPut> PreparePut(Transport* transport, const Namespace& ns, std::span<const PutItem> items,
                                       const PutOptions& options, std::chrono::system_clock::time_point deadline) {
  FIRN_RETURN_IF_ERROR(transport->Usable());
  FIRN_ASSIGN_OR_RETURN(Limits limits, transport->GetLimits(deadline));
  PreparedPut out;
  FIRN_ASSIGN_OR_RETURN(out.options, MakePutOptions(ns, options, limits));
  out.jobs.resize(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    out.jobs[i].result.status = CheckPut(ns, limits, items[i]);
    out.jobs[i].settled = !out.jobs[i].result.status.ok();
    if (out.jobs[i].settled) continue;
    FillPutBlock(ns, items[i], options, &out.jobs[i].block);
    AddPayload(items[i].parts, &out.jobs[i]);
  }
  return out;
}

struct PreparedGet {
  GetStreamOptions options;
  std::vector<GetJob> jobs;
};

absl::StatusOr<PreparedGet> PrepareGet(Transport* transport, const Namespace& ns, std::span<const GetItem> items,
                                       const GetOptions& options, std::chrono::system_clock::time_point deadline) {
  FIRN_RETURN_IF_ERROR(transport->Usable());
  FIRN_ASSIGN_OR_RETURN(Limits limits, transport->GetLimits(deadline));
  FIRN_ASSIGN_OR_RETURN(uint32_t chunk_bytes, ChunkBytes(options.chunk_bytes, limits));
  PreparedGet out;
  out.options = MakeGetOptions(ns, options, limits, chunk_bytes);
  FIRN_ASSIGN_OR_RETURN(out.jobs, MakeGetJobs(ns, items));
  return out;
}

}  // namespace

absl::StatusOr<PutStreamOptions> MakePutOptions(const Namespace& ns, const PutOptions& options, const Limits& limits) {
  PutStreamOptions out;
  FIRN_ASSIGN_OR_RETURN(out.chunk_bytes, ChunkBytes(options.chunk_bytes, limits));
  out.start.set_namespace_fingerprint(Bytes(ns.fingerprint));
  out.start.set_session(SessionId(options.session));
  return out;
}

void FillPutBlock(const Namespace& ns, const PutItem& item, const PutOptions& options, firn::v1::PutBlock* out) {
  ToProto(item.key, out->mutable_ref()->mutable_key());
  out->mutable_ref()->set_shard(item.shard);
  if (item.parent.has_value()) ToProto(*item.parent, out->mutable_parent());
  out->set_first_token(item.first_token);
  out->set_tokens(item.tokens);
  out->set_ttl_ms(options.ttl_ms);
  out->set_ack(static_cast<firn::v1::AckLevel>(options.ack));
  out->set_payload_bytes(PayloadBytes(ns, item));
  if (item.layout.has_value()) ToProto(*item.layout, out->mutable_layout());
  out->set_announce(options.announce);
  out->set_record_header(item.record_header);
  out->set_runs(item.runs);
  out->mutable_token_importance()->Add(item.token_importance.begin(), item.token_importance.end());
}

void AddPayload(const SourceParts& parts, PutJob* job) {
  AppendPieces(parts.k, job);
  AppendPieces(parts.v, job);
  AppendPieces(parts.k_scales, job);
  AppendPieces(parts.v_scales, job);
}

absl::StatusOr<std::vector<PutResult>> Client::Put(const Namespace& ns, std::span<const PutItem> items,
                                                   const PutOptions& options) {
  if (items.empty()) return std::vector<PutResult>();
  auto deadline = impl_->DataDeadline(options.deadline_ms);
  Transport* transport = impl_->transport.get();
  FIRN_ASSIGN_OR_RETURN(PreparedPut put, PreparePut(transport, ns, items, options, deadline));
  PutStream stream(transport, deadline, std::move(put.options), std::move(put.jobs));
  transport->Run(&stream);
  return stream.TakeResults();
}

void Client::PutAsync(const Namespace& ns, std::vector<PutItem> items, const PutOptions& options,
                      Callback<std::vector<PutResult>> done) {
  auto deadline = impl_->DataDeadline(options.deadline_ms);
  Transport* transport = impl_->transport.get();
  auto put = PreparePut(transport, ns, items, options, deadline);
  if (!put.ok()) return done(put.status());
  transport->Post(
      std::make_shared<AsyncPut>(transport, deadline, std::move(put->options), std::move(put->jobs), std::move(done)));
}

absl::StatusOr<std::vector<GetResult>> Client::Get(const Namespace& ns, std::span<const GetItem> items,
                                                   const GetOptions& options) {
  if (items.empty()) return std::vector<GetResult>();
  auto deadline = impl_->DataDeadline(options.deadline_ms);
  Transport* transport = impl_->transport.get();
  FIRN_ASSIGN_OR_RETURN(PreparedGet get, PrepareGet(transport, ns, items, options, deadline));
  GetStream stream(transport, deadline, std::move(get.options), std::move(get.jobs));
  transport->Run(&stream);
  return stream.TakeResults();
}

void Client::GetAsync(const Namespace& ns, std::vector<GetItem> items, const GetOptions& options,
                      Callback<std::vector<GetResult>> done) {
  auto deadline = impl_->DataDeadline(options.deadline_ms);
  Transport* transport = impl_->transport.get();
  auto get = PrepareGet(transport, ns, items, options, deadline);
  if (!get.ok()) return done(get.status());
  transport->Post(
      std::make_shared<AsyncGet>(transport, deadline, std::move(get->options), std::move(get->jobs), std::move(done)));
}

}  // namespace firnkv
