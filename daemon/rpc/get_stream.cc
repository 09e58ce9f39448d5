#include "daemon/rpc/get_stream.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "base/units.h"
#include "daemon/core/convert.h"
#include "daemon/wire/put_frame.h"

namespace firn {
namespace {

constexpr size_t kBatchesMax = 8;            // Requests taken in before their answers are out.
constexpr size_t kReadyMax = 2;              // Messages produced ahead.
constexpr uint64_t kAheadBytes = 32 * kMiB;  // Of blocks read ahead, at source precision.
constexpr size_t kAheadMax = 16;
constexpr uint32_t kChunkBytesMin = 4096;

// A slice that keeps `owner` alive for as long as gRPC holds it.
grpc::Slice OwnedSlice(ByteSpan bytes, const std::shared_ptr<const void>& owner) {
  auto* reference = new std::shared_ptr<const void>(owner);
  return grpc::Slice(
      const_cast<uint8_t*>(bytes.data()), bytes.size(),
      [](void* held) { delete static_cast<std::shared_ptr<const void>*>(held); }, reference);
}

}  // namespace

RawBidiReactor* NewGetStream(ServiceCore* core, const CallerIdentity& caller, grpc::CallbackServerContext* context) {
  core->counters().Count(Method::kGet);
  auto store = core->store();
  if (!store.ok()) {
    core->counters().Failed(Method::kGet);
    return new FailedStream<RawBidiReactor>(store.status());
  }
  auto stream = std::make_shared<GetStream>(core, caller, *store, context);
  stream->Start();
  return stream.get();
}

GetStream::GetStream(ServiceCore* core, const CallerIdentity& caller, Store* store,
                     grpc::CallbackServerContext* context)
    : core_(core),
      live_(core),
      caller_(caller),
      store_(store),
      own_session_(store->OpenSession(caller.tenant)),
      context_(context) {}

GetStream::~GetStream() { store_->CloseSession(own_session_); }

void GetStream::Start() {
  std::lock_guard lock(mu_);
  self_ = shared_from_this();
  core_->watchdog().Watch(weak_from_this());
  ReadLocked();
}

void GetStream::OnReadDone(bool ok) {
  absl::StatusOr<BatchPtr> batch = absl::CancelledError("");
  if (ok) {
    v1::GetRequest request;
    batch = ParseMessage(&read_buffer_, &request) ? ParseBatch(request)
                                                  : absl::StatusOr<BatchPtr>(InvalidArgument("malformed GetRequest"));
  }
  {
    std::lock_guard lock(mu_);
    reading_ = false;
    if (!ok || !batch.ok()) {
      input_over_ = true;
      if (ok) final_status_ = batch.status();
      return FinishIfQuietLocked();
    }
    if (finished_) return;
    if (!(*batch)->addresses.empty()) batches_.push_back(*batch);  // An empty batch has an empty answer.
    if (batches_.size() < kBatchesMax) ReadLocked();
  }
  IssueReads();
  Kick();
}

absl::StatusOr<GetStream::BatchPtr> GetStream::ParseBatch(const v1::GetRequest& request) {
  const LimitSettings& limits = core_->limits();
  if (static_cast<uint32_t>(request.blocks_size()) > limits.keys_max) {
    return InvalidArgument("{} blocks in a batch; limits.keys is {}", request.blocks_size(), limits.keys_max);
  }
  uint32_t chunk_bytes = request.chunk_bytes() == 0 ? limits.chunk_bytes_max : request.chunk_bytes();
  if (chunk_bytes < kChunkBytesMin || chunk_bytes > limits.chunk_bytes_max) {
    return InvalidArgument("chunk_bytes = {}; allowed: {} to {}", chunk_bytes, kChunkBytesMin, limits.chunk_bytes_max);
  }
  auto batch = std::make_shared<Batch>();
  batch->tag = request.tag();
  batch->since_ns = core_->clock()->NowNs();
  FIRN_ASSIGN_OR_RETURN(NamespacePtr ns, core_->FindNamespace(store_, request.namespace_fingerprint(), caller_.tenant));
  batch->spec.session = own_session_;
  if (!request.session().empty()) {
    FIRN_ASSIGN_OR_RETURN(batch->session, core_->sessions().Find(request.session(), caller_.tenant));
    batch->spec.session = batch->session->id();
  }
  FIRN_ASSIGN_OR_RETURN(batch->spec.least, ToClassPair(request.least(), "least"));
  if (request.has_most()) {
    FIRN_ASSIGN_OR_RETURN(batch->spec.most, ToClassPair(request.most(), "most"));
    if (!batch->spec.most.AtLeast(batch->spec.least)) return InvalidArgument("most is coarser than least");
  }
  int64_t wait_ms = limits.read_deadline_ms;
  if (request.wait_ms() != 0) wait_ms = std::min<int64_t>(wait_ms, request.wait_ms());
  {
    std::lock_guard lock(mu_);
    if (context_ == nullptr) return absl::CancelledError("the call is over");
    batch->spec.deadline_ns = DeadlineNs(*context_, *core_->clock(), wait_ms);
  }
  PayloadRequest& payload = batch->payload;
  payload.representation = request.representation();
  payload.layer_first = request.layer_first();
  payload.layer_count = request.layer_count();
  if (request.has_layout()) payload.layout = ToLayout(request.layout());
  payload.layout_bytes = request.layout().payload_bytes();
  payload.chunk_bytes = chunk_bytes;

  for (const v1::BlockRef& ref : request.blocks()) {
    auto key = ToKey(ref.key(), "key");
    if (!key.ok()) {
      batch->addresses.push_back(key.status());
    } else if (ref.shard() >= ns->facts.shards) {
      batch->addresses.push_back(
          InvalidArgument("shard = {}; the namespace has {} shards", ref.shard(), ns->facts.shards));
    } else {
      batch->addresses.push_back(BlockAddress{ns->id, *key, static_cast<uint16_t>(ref.shard())});
    }
  }
  batch->results.resize(batch->addresses.size());
  uint64_t block_bytes = ns->facts.Shape(ns->facts.block_tokens).values() * DTypeBytes(ns->facts.dtype);
  batch->ahead_max = std::clamp<size_t>(kAheadBytes / std::max<uint64_t>(block_bytes, 1), 1, kAheadMax);
  return batch;
}

void GetStream::IssueReads() {
  while (true) {
    BatchPtr batch;
    size_t index = 0;
    {
      std::lock_guard lock(mu_);
      if (finished_ || batches_.empty()) return;
      batch = batches_.front();
      if (batch->issued == batch->addresses.size() || batch->issued >= batch->sent + batch->ahead_max) return;
      index = batch->issued++;
    }
    const auto& address = batch->addresses[index];
    if (!address.ok()) {
      OnRead(batch, index, address.status());
      continue;
    }
    GetSpec spec = batch->spec;
    spec.address = *address;
    store_->Get(spec, [self = shared_from_this(), batch, index](absl::StatusOr<GetResult> result) {
      self->OnRead(batch, index, std::move(result));
      self->Kick();
    });
  }
}

void GetStream::OnRead(const BatchPtr& batch, size_t index, absl::StatusOr<GetResult> result) {
  std::lock_guard lock(mu_);
  if (!finished_) batch->results[index] = std::move(result);
}

bool GetStream::CanProduceLocked() const {
  if (finished_ || producing_ || ready_.size() >= kReadyMax || batches_.empty()) return false;
  const Batch& batch = *batches_.front();
  return in_block_ || batch.results[batch.sent].has_value();
}

void GetStream::Kick() {
  {
    std::lock_guard lock(mu_);
    if (!CanProduceLocked()) return;
    producing_ = true;
  }
  Produce(false);
}

// Runs until enough is ready, nothing is there to produce, or it goes on elsewhere. Called with producing_ set.
void GetStream::Produce(bool on_executor) {
  while (true) {
    BatchPtr batch;
    {
      std::lock_guard lock(mu_);
      producing_ = false;
      if (!CanProduceLocked()) {
        if (finished_) source_.reset();
        return FinishIfQuietLocked();
      }
      producing_ = true;
      batch = batches_.front();
    }
    if (!ProduceOne(batch, on_executor, nullptr)) return;
    IssueReads();
  }
}

bool GetStream::ProduceOne(const BatchPtr& batch, bool on_executor, std::unique_ptr<ByteBudget::Grant> grant) {
  if (source_ == nullptr) {
    std::optional<absl::StatusOr<GetResult>> result;
    {
      std::lock_guard lock(mu_);
      result = std::exchange(batch->results[batch->sent], std::nullopt);
    }
    if (!result.has_value()) return true;  // Finished meanwhile.
    absl::StatusOr<std::unique_ptr<PayloadSource>> source =
        result->ok() ? PayloadSource::Create(**std::move(result), batch->payload, &store_->artifacts())
                     : result->status();
    if (!source.ok()) {
      AnswerError(batch, source.status());
      return true;
    }
    source_ = *std::move(source);
    found_sent_ = false;
    std::lock_guard lock(mu_);
    in_block_ = true;
  }
  PayloadChunk chunk;
  if (!source_->done()) {
    uint64_t buffer_bytes = source_->NextBufferBytes();
    if (buffer_bytes > 0 && !on_executor) {
      core_->executor()->Post([self = shared_from_this()] { self->Produce(true); });
      return false;
    }
    if (buffer_bytes > 0 && grant == nullptr) grant = TakeBuffer(batch, buffer_bytes);
    if (buffer_bytes > 0 && grant == nullptr) return false;
    auto next = source_->Next(std::move(grant));
    if (!next.ok()) {
      AnswerError(batch, next.status());
      return true;
    }
    chunk = *std::move(next);
  }
  v1::GetResponse control;
  control.set_tag(batch->tag);
  if (!found_sent_) *control.mutable_found() = source_->found();
  found_sent_ = true;
  control.set_offset(chunk.offset);
  control.set_last(source_->done());
  Send(control, std::move(chunk), batch);
  return true;
}

// True when production stops here because something is still to be sent: at least `ready_bytes_min` that are ready, or,
// for 0, a message being sent. OnWriteDone kicks it on.
bool GetStream::PauseUntilSent(uint64_t ready_bytes_min) {
  std::lock_guard lock(mu_);
  if (!finished_) {
    uint64_t ready_bytes = 0;
    for (const grpc::ByteBuffer& message : ready_) ready_bytes += message.Length();
    if (ready_bytes_min > 0 ? ready_bytes < ready_bytes_min : !writing_) return false;
  } else {
    source_.reset();
  }
  producing_ = false;
  return true;
}

std::unique_ptr<ByteBudget::Grant> GetStream::TakeBuffer(const BatchPtr& batch, uint64_t bytes) {
  if (PauseUntilSent(batch->payload.chunk_bytes)) return nullptr;
  ByteBudget& budget = core_->transport();
  if (auto grant = budget.TryAcquireAhead(bytes, held_)) return grant;
  if (PauseUntilSent(0)) return nullptr;
  if (auto grant = budget.TryAcquire(bytes, held_)) return grant;
  auto granted = [self = shared_from_this(), batch](absl::StatusOr<std::unique_ptr<ByteBudget::Grant>> result) {
    self->core_->executor()->Post([self, batch, result = std::move(result)]() mutable {
      if (!result.ok()) {
        self->AnswerError(batch, result.status());
      } else {
        self->ProduceOne(batch, true, *std::move(result));
      }
      self->Produce(true);
    });
  };
  budget.Acquire(bytes, std::move(granted), held_);
  return nullptr;
}

void GetStream::AnswerError(const BatchPtr& batch, const absl::Status& status) {
  source_.reset();
  v1::GetResponse control;
  control.set_tag(batch->tag);
  control.set_last(true);
  FromStatus(status, control.mutable_status());
  Send(control, {}, batch);
}

void GetStream::Send(const v1::GetResponse& answer, PayloadChunk chunk, const BatchPtr& batch) {
  v1::GetResponse control = answer;
  if (control.last()) source_.reset();
  std::lock_guard lock(mu_);
  if (finished_) return;
  control.set_index(static_cast<uint32_t>(batch->sent));
  std::vector<grpc::Slice> slices;
  slices.reserve(chunk.pieces.size() + 1);
  slices.emplace_back(GetFramePrefix(control, chunk.bytes));
  for (ByteSpan piece : chunk.pieces) slices.push_back(OwnedSlice(piece, chunk.owner));
  ready_.emplace_back(slices.data(), slices.size());
  core_->counters().sent_payload_bytes.fetch_add(chunk.bytes, std::memory_order_relaxed);
  if (control.last()) core_->counters().Took(Method::kGet, core_->clock()->NowNs() - batch->since_ns);
  in_block_ = !control.last();
  if (control.last() && ++batch->sent == batch->addresses.size()) {
    batches_.pop_front();
    if (!reading_ && !input_over_) ReadLocked();
  }
  WriteLocked();
}

void GetStream::ReadLocked() {
  reading_ = true;
  StartRead(&read_buffer_);
}

void GetStream::WriteLocked() {
  if (writing_ || finished_ || ready_.empty()) return;
  write_buffer_.Swap(&ready_.front());
  ready_.pop_front();
  writing_ = true;
  write_since_ns_ = core_->clock()->NowNs();
  StartWrite(&write_buffer_);
}

void GetStream::OnWriteDone(bool ok) {
  {
    std::lock_guard lock(mu_);
    writing_ = false;
    write_buffer_.Clear();
    if (!ok) return;  // The call is being cancelled: OnCancel ends it.
    WriteLocked();
    FinishIfQuietLocked();
  }
  IssueReads();
  Kick();
}

void GetStream::FinishIfQuietLocked() {
  if (input_over_ && batches_.empty() && ready_.empty() && !writing_ && !producing_) FinishLocked(final_status_);
}

void GetStream::FinishLocked(const absl::Status& status) {
  if (finished_) return;
  finished_ = true;
  if (!status.ok()) core_->counters().Failed(Method::kGet);
  Finish(ToGrpc(status));
}

void GetStream::OnCancel() {
  std::deque<BatchPtr> batches;  // Given back outside the lock, with the blocks they hold.
  std::deque<grpc::ByteBuffer> ready;
  std::unique_ptr<PayloadSource> source;
  std::lock_guard lock(mu_);
  input_over_ = true;
  FinishLocked(absl::CancelledError("the call was cancelled"));
  batches.swap(batches_);
  ready.swap(ready_);
  if (!producing_) source = std::move(source_);
}

void GetStream::OnDone() {
  std::shared_ptr<GetStream> self;
  std::lock_guard lock(mu_);
  context_ = nullptr;
  self = std::move(self_);
}

void GetStream::EndIfStalled(int64_t now_ns) {
  std::lock_guard lock(mu_);
  if (context_ == nullptr || finished_) return;
  if (core_->state() == ServiceCore::State::kStopping && batches_.empty()) {
    input_over_ = true;
    final_status_ = Unavailable("firnd is stopping");
    return FinishIfQuietLocked();
  }
  if (!writing_) return;
  if (now_ns - write_since_ns_ > core_->limits().read_stall_ms * 1'000'000) EndStallLocked();
}

std::optional<WatchedStream::Stall> GetStream::Stalled() {
  std::lock_guard lock(mu_);
  if (context_ == nullptr || finished_ || !writing_) return std::nullopt;
  return Stall{write_since_ns_, held_->load()};
}

void GetStream::EndStall() {
  std::lock_guard lock(mu_);
  if (context_ != nullptr && !finished_) EndStallLocked();
}

void GetStream::EndStallLocked() {
  core_->counters().stalled_streams.fetch_add(1, std::memory_order_relaxed);
  context_->TryCancel();
}

}  // namespace firn
