#include "daemon/rpc/put_stream.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "base/units.h"
#include "daemon/core/convert.h"

namespace firn {
namespace {

// A stream that has so much under way reads no further.
constexpr uint32_t kCommitsMax = 64;
constexpr size_t kAnswersMax = 1024;

}  // namespace

RawBidiReactor* NewPutStream(ServiceCore* core, const CallerIdentity& caller, grpc::CallbackServerContext* context) {
  core->counters().Count(Method::kPut);
  auto store = core->store();
  if (!store.ok()) {
    core->counters().Failed(Method::kPut);
    return new FailedStream<RawBidiReactor>(store.status());
  }
  auto stream = std::make_shared<PutStream>(core, caller, *store, context);
  stream->Start();
  return stream.get();
}

PutStream::PutStream(ServiceCore* core, const CallerIdentity& caller, Store* store,
                     grpc::CallbackServerContext* context)
    : core_(core), live_(core), caller_(caller), store_(store), context_(context) {}

void PutStream::Start() {
  std::lock_guard lock(mu_);
  self_ = shared_from_this();
  core_->watchdog().Watch(weak_from_this());
  ReadLocked();
}

void PutStream::OnReadDone(bool ok) {
  {
    std::lock_guard lock(mu_);
    reading_ = false;
    handling_ = true;
    if (finished_) ok = false;
  }
  if (ok) return HandleMessage();
  DropBlock("the stream ended");
  std::lock_guard lock(mu_);
  handling_ = false;
  input_over_ = true;
  FinishIfQuietLocked();
}

void PutStream::HandleMessage() {
  if (!TakeSlices(&read_buffer_, &message_)) return EndWith(InvalidArgument("unreadable PutRequest"));
  auto frame = ParsePutFrame(message_.views);
  if (!frame.ok()) return EndWith(frame.status());
  frame_ = *std::move(frame);
  control_.Clear();
  if (!control_.ParseFromString(frame_.control)) return EndWith(InvalidArgument("malformed PutRequest"));
  if (frame_.payload_bytes > core_->limits().chunk_bytes_max) {
    return EndWith(InvalidArgument("a message has {} bytes of payload; limits.chunk_bytes is {}", frame_.payload_bytes,
                                   core_->limits().chunk_bytes_max));
  }
  if (control_.has_start()) {
    absl::Status status = HandleStart(control_.start());
    if (!status.ok()) return EndWith(status);
  } else if (namespace_ == nullptr) {
    return EndWith(InvalidArgument("the first message of a Put stream has `start`"));
  }
  if (control_.has_block() && control_.lease() != 0) {
    return EndWith(InvalidArgument("a message begins a `block` or fills a `lease`, not both"));
  }
  if (control_.has_block()) return HandleBlock(control_.block());
  if (control_.lease() != 0) return HandleLease(control_.lease());
  HandlePayload();
}

absl::Status PutStream::HandleStart(const v1::PutStart& start) {
  if (namespace_ != nullptr) return InvalidArgument("a Put stream has one `start`");
  FIRN_ASSIGN_OR_RETURN(namespace_, core_->FindNamespace(store_, start.namespace_fingerprint(), caller_.tenant));
  if (!start.session().empty()) {
    FIRN_ASSIGN_OR_RETURN(session_, core_->sessions().Find(start.session(), caller_.tenant));
  }
  return absl::OkStatus();
}

void PutStream::HandleBlock(const v1::PutBlock& block) {
  DropBlock("the next block began");
  block_.emplace();
  block_->index = next_index_++;
  block_->since_ns = core_->clock()->NowNs();
  auto order = CheckPut(block, *namespace_, session_ == nullptr ? 0 : session_->id(), core_->limits());
  if (!order.ok()) {
    Refuse(order.status());
    return HandlePayload();
  }
  order_ = *std::move(order);
  retried_ = false;
  BeginNow();
}

void PutStream::BeginNow() {
  int64_t deadline_ns = 0;
  {
    std::lock_guard lock(mu_);
    if (!finished_) deadline_ns = DeadlineNs(*context_, *core_->clock(), core_->limits().put_idle_ms);
  }
  BeginOrder(store_, *order_, core_->clock()->NowNs(), deadline_ns,
             [self = shared_from_this()](absl::StatusOr<BegunPut> begun) {
               if (!begun.ok() || begun->existing.has_value()) return self->OnBegun(std::move(begun));
               PrepareSink(&self->core_->transport(), *std::move(begun),
                           [self](absl::StatusOr<BegunPut> ready) { self->OnBegun(std::move(ready)); });
             });
}

void PutStream::OnBegun(absl::StatusOr<BegunPut> begun) {
  if (begun.ok() && begun->existing.has_value()) {
    v1::PutResponse answer;
    answer.set_index(block_->index);
    FromPutResult(*begun->existing, &answer);
    Conclude(std::move(answer), block_->since_ns);
  } else if (begun.ok()) {
    block_->begun = *std::move(begun);
    block_->wanted = true;
    if (control_.block().announce()) {
      v1::PutResponse answer;
      answer.set_index(block_->index);
      answer.set_outcome(v1::PUT_OUTCOME_BEGUN);
      Answer(std::move(answer));
    }
  } else if (begun.status().code() == absl::StatusCode::kAborted && !retried_) {
    // A put of this block is in flight. If it is this stream's own, its outcome is near: the same key twice in a batch
    // is no error.
    std::lock_guard lock(mu_);
    if (commits_ > 0 && !finished_) {
      retried_ = true;
      retry_when_quiet_ = true;
      return;
    }
  }
  if (!begun.ok()) Refuse(begun.status());
  order_.reset();
  HandlePayload();
}

void PutStream::HandleLease(uint64_t lease) {
  DropBlock("the next block began");
  block_.emplace();
  block_->index = next_index_++;
  block_->since_ns = core_->clock()->NowNs();
  auto taken = session_ == nullptr ? FailedPrecondition("leases belong to a session; `start` names none")
                                   : session_->TakeLease(lease);
  if (taken.ok() && (taken->begun.filled || taken->begun.put->spec().from_device)) {
    const bool filled = taken->begun.filled;
    session_->PutBack(lease, *std::move(taken), core_->clock()->NowNs());
    taken = filled ? FailedPrecondition("lease {} is filled already", lease)
                   : FailedPrecondition("lease {} was begun with extent gpu_handle: FillFromDevice fills it", lease);
  }
  if (!taken.ok()) {
    Refuse(taken.status());
    return HandlePayload();
  }
  block_->lease = lease;
  PrepareSink(&core_->transport(), std::move(taken->begun),
              [self = shared_from_this()](absl::StatusOr<BegunPut> begun) { self->OnLeaseReady(std::move(begun)); });
}

void PutStream::OnLeaseReady(absl::StatusOr<BegunPut> begun) {
  if (begun.ok()) {
    block_->begun = *std::move(begun);
    block_->wanted = true;
  } else {
    Refuse(begun.status());
  }
  HandlePayload();
}

void PutStream::HandlePayload() {
  if (frame_.payload_bytes > 0) {
    core_->counters().received_payload_bytes.fetch_add(frame_.payload_bytes, std::memory_order_relaxed);
    if (!block_.has_value()) return EndWith(InvalidArgument("payload before the first block"));
    if (block_->wanted) {
      absl::Status status = block_->begun.sink->Write(control_.offset(), frame_.payload);
      if (!status.ok()) Refuse(status);
    }
  }
  if (block_.has_value() && block_->wanted && block_->begun.sink->complete()) CompleteBlock();
  NextMessage();
}

void PutStream::CompleteBlock() {
  block_->wanted = false;
  {
    std::lock_guard lock(mu_);
    ++commits_;
  }
  if (block_->lease.has_value()) return FillLease();
  core_->executor()->Post([self = shared_from_this(), index = block_->index, since_ns = block_->since_ns,
                           begun = std::move(block_->begun)]() mutable {
    CommitBegun(self->store_, std::move(begun), [self, index, since_ns](absl::StatusOr<PutResult> result) {
      v1::PutResponse answer;
      answer.set_index(index);
      FromPutResult(result, &answer);
      self->OnCompleted(std::move(answer), since_ns);
    });
  });
}

// Bytes go to their place as soon as they are there, so that a lease that waits for its commit holds no more than its
// block.
void PutStream::FillLease() {
  auto fill = [self = shared_from_this(), session = session_, lease = *block_->lease, index = block_->index,
               since_ns = block_->since_ns, begun = std::move(block_->begun)]() mutable {
    v1::PutResponse answer;
    answer.set_index(index);
    absl::Status placed = PlacePayload(&begun);
    if (placed.ok()) {
      answer.set_outcome(v1::PUT_OUTCOME_FILLED);
      session->PutBack(lease, {std::move(begun)}, self->core_->clock()->NowNs());
    } else {
      FromPutResult(placed, &answer);
      session->PutBack(lease, {}, 0);
    }
    self->OnCompleted(std::move(answer), since_ns);
  };
  block_->lease.reset();
  core_->executor()->Post(std::move(fill));
}

void PutStream::OnCompleted(v1::PutResponse answer, int64_t since_ns) {
  Conclude(std::move(answer), since_ns);
  bool retry = false;
  {
    std::lock_guard lock(mu_);
    --commits_;
    if (commits_ == 0) retry = std::exchange(retry_when_quiet_, false);
    if (paused_ && commits_ < kCommitsMax && answers_.size() < kAnswersMax) {
      paused_ = false;
      ReadLocked();
    }
    FinishIfQuietLocked();
  }
  if (retry) BeginNow();
}

void PutStream::DropBlock(const char* why) {
  if (!block_.has_value()) return;
  if (block_->wanted) Refuse(Aborted("{} before the payload was complete", why));
  block_.reset();
}

void PutStream::NextMessage() {
  {
    std::lock_guard lock(mu_);
    if (!finished_ && !input_over_) {
      handling_ = false;
      mid_block_ = block_.has_value() && block_->wanted;
      staged_bytes_ = mid_block_ && block_->begun.sink != nullptr ? block_->begun.sink->plan().StagingBytes() : 0;
      if (commits_ >= kCommitsMax || answers_.size() >= kAnswersMax) {
        paused_ = true;
      } else {
        ReadLocked();
      }
      return;
    }
  }
  DropBlock("the call ended");  // While the message was handled.
  std::lock_guard lock(mu_);
  handling_ = false;
  FinishIfQuietLocked();
}

void PutStream::Refuse(const absl::Status& status) {
  block_->wanted = false;
  block_->begun = {};
  if (block_->lease.has_value()) session_->PutBack(*block_->lease, {}, 0);  // It is no lease any more.
  block_->lease.reset();
  v1::PutResponse answer;
  answer.set_index(block_->index);
  FromPutResult(status, &answer);
  Conclude(std::move(answer), block_->since_ns);
}

void PutStream::Conclude(v1::PutResponse answer, int64_t since_ns) {
  core_->counters().Took(Method::kPut, core_->clock()->NowNs() - since_ns);
  Answer(std::move(answer));
}

void PutStream::Answer(v1::PutResponse answer) {
  std::lock_guard lock(mu_);
  if (finished_) return;
  answers_.push_back(std::move(answer));
  WriteLocked();
}

void PutStream::EndWith(const absl::Status& status) {
  DropBlock("the stream ended");
  std::lock_guard lock(mu_);
  handling_ = false;
  input_over_ = true;
  final_status_ = status;
  FinishIfQuietLocked();
}

void PutStream::ReadLocked() {
  reading_ = true;
  read_since_ns_ = core_->clock()->NowNs();
  StartRead(&read_buffer_);
}

void PutStream::WriteLocked() {
  if (writing_ || finished_ || answers_.empty()) return;
  std::string bytes = answers_.front().SerializeAsString();
  answers_.pop_front();
  grpc::Slice slice(bytes);
  write_buffer_ = grpc::ByteBuffer(&slice, 1);
  writing_ = true;
  write_since_ns_ = core_->clock()->NowNs();
  StartWrite(&write_buffer_);
}

void PutStream::OnWriteDone(bool ok) {
  std::lock_guard lock(mu_);
  writing_ = false;
  if (!ok) return;  // The call is being cancelled: OnCancel ends it.
  WriteLocked();
  if (paused_ && commits_ < kCommitsMax && answers_.size() < kAnswersMax && !finished_) {
    paused_ = false;
    ReadLocked();
  }
  FinishIfQuietLocked();
}

void PutStream::FinishIfQuietLocked() {
  if (input_over_ && !handling_ && commits_ == 0 && answers_.empty() && !writing_) FinishLocked(final_status_);
}

void PutStream::FinishLocked(const absl::Status& status) {
  if (finished_) return;
  finished_ = true;
  if (!status.ok()) core_->counters().Failed(Method::kPut);
  Finish(ToGrpc(status));
}

void PutStream::OnCancel() {
  BegunPut dropped;  // Given back outside the lock.
  std::optional<uint64_t> lease;
  {
    std::lock_guard lock(mu_);
    input_over_ = true;
    if (!handling_ && block_.has_value()) {
      dropped = std::move(block_->begun);
      lease = block_->lease;
      block_.reset();
    }
    FinishLocked(absl::CancelledError("the call was cancelled"));
  }
  if (lease.has_value()) session_->PutBack(*lease, {}, 0);
}

void PutStream::OnDone() {
  std::shared_ptr<PutStream> self;
  std::lock_guard lock(mu_);
  context_ = nullptr;
  self = std::move(self_);
  // `self` is destroyed after `lock`: it was declared before.
}

void PutStream::EndIfStalled(int64_t now_ns) {
  std::lock_guard lock(mu_);
  if (context_ == nullptr || finished_) return;
  const LimitSettings& limits = core_->limits();
  if (core_->state() == ServiceCore::State::kStopping && reading_ && !mid_block_) {
    input_over_ = true;
    final_status_ = Unavailable("firnd is stopping");
    return FinishIfQuietLocked();
  }
  bool idle = reading_ && mid_block_ && now_ns - read_since_ns_ > limits.put_idle_ms * 1'000'000;
  bool stuck = writing_ && now_ns - write_since_ns_ > limits.read_stall_ms * 1'000'000;
  if (idle || stuck) EndStallLocked();
}

std::optional<WatchedStream::Stall> PutStream::Stalled() {
  std::lock_guard lock(mu_);
  if (context_ == nullptr || finished_ || !reading_ || !mid_block_) return std::nullopt;
  return Stall{read_since_ns_, staged_bytes_};
}

void PutStream::EndStall() {
  std::lock_guard lock(mu_);
  if (context_ != nullptr && !finished_) EndStallLocked();
}

void PutStream::EndStallLocked() {
  core_->counters().stalled_streams.fetch_add(1, std::memory_order_relaxed);
  context_->TryCancel();
}

}  // namespace firn
