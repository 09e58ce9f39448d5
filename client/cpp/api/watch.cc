#include "firnkv/watch.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "base/status.h"
#include "client/cpp/api/client_impl.h"
#include "client/cpp/api/convert.h"
#include "client/cpp/transport/unary.h"

namespace firnkv {
namespace {

using TimePoint = std::chrono::system_clock::time_point;

constexpr size_t kBatchesQueuedMax = 16;  // Then the daemon waits for its reader.

// One Watch call. Batches queue up to a bound; the daemon is not read beyond it.
class WatchCall final : public grpc::ClientReadReactor<firn::v1::WatchResponse> {
 public:
  WatchCall(Transport* transport, const firn::v1::WatchRequest& request) : transport_(transport), request_(request) {
    transport->kv()->async()->Watch(&context_, &request_, this);
    StartRead(&response_);
    StartCall();
  }
  ~WatchCall() override = default;

  void Cancel() { context_.TryCancel(); }
  void AwaitEnd() {
    std::unique_lock lock(mu_);
    changed_.wait(lock, [this] { return over_; });
  }
  // A batch, or the end's status, or DeadlineExceeded.
  absl::StatusOr<EventBatch> Next(TimePoint deadline, bool* ended) {
    std::unique_lock lock(mu_);
    *ended = false;
    if (!changed_.wait_until(lock, deadline, [this] { return over_ || !batches_.empty(); })) {
      return absl::DeadlineExceededError("no event within the time given");
    }
    if (batches_.empty()) {
      *ended = true;
      return status_.ok() ? firn::Unavailable("the daemon ended the watch") : status_;
    }
    EventBatch batch = std::move(batches_.front());
    batches_.pop_front();
    bool read_on = std::exchange(paused_, false);
    lock.unlock();
    if (read_on) {
      StartRead(&response_);
      RemoveHold();
    }
    return batch;
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    std::unique_lock lock(mu_);
    batches_.push_back(FromProto(response_));
    changed_.notify_all();
    if (batches_.size() >= kBatchesQueuedMax) {
      paused_ = true;
      AddHold();  // StartRead will come from outside a reaction.
      return;
    }
    lock.unlock();
    StartRead(&response_);
  }
  void OnDone(const grpc::Status& status) override {
    std::lock_guard lock(mu_);
    status_ = FromGrpc(status, transport_->options().address);
    over_ = true;
    changed_.notify_all();
  }
  // Lets the call end although its reader has stopped reading.
  void Drain() {
    std::unique_lock lock(mu_);
    bool held = std::exchange(paused_, false);
    lock.unlock();
    if (held) RemoveHold();
  }

 private:
  Transport* const transport_;
  const firn::v1::WatchRequest request_;
  grpc::ClientContext context_;
  firn::v1::WatchResponse response_;
  std::mutex mu_;
  std::condition_variable changed_;
  std::deque<EventBatch> batches_;  // Guarded by mu_, as all below.
  bool paused_ = false;
  bool over_ = false;
  absl::Status status_;
};

}  // namespace

class WatchStream::Impl {
 public:
  Impl(std::shared_ptr<Transport> transport, std::optional<Digest> ns, std::optional<uint64_t> after)
      : transport_(std::move(transport)), pid_(getpid()), ns_(ns), after_(after) {}
  ~Impl() {
    if (call_ == nullptr) return;
    if (getpid() != pid_) {
      static_cast<void>(call_.release());
      static_cast<void>(new std::shared_ptr<Transport>(transport_));
      return;
    }
    EndCall();
  }

  absl::StatusOr<EventBatch> Next(int64_t timeout_ms) {
    FIRN_RETURN_IF_ERROR(transport_->Usable());
    constexpr std::chrono::milliseconds kFirstPause(50), kLastPause(1000);
    TimePoint deadline = DeadlineAfter(timeout_ms, 1);
    auto pause = kFirstPause;
    while (true) {
      WatchCall* call = CurrentCall();
      if (call == nullptr) return absl::CancelledError("the watch was cancelled");
      bool ended = false;
      auto batch = call->Next(deadline, &ended);
      if (batch.ok()) return Accept(*std::move(batch));
      if (!ended) return batch.status();
      EndCall();
      if (cancelled()) return absl::CancelledError("the watch was cancelled");
      if (batch.status().code() != absl::StatusCode::kUnavailable) return batch.status();
      if (std::chrono::system_clock::now() + pause >= deadline) return batch.status();
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, kLastPause);
    }
  }

  void Cancel() {
    std::lock_guard lock(mu_);
    cancelled_ = true;
    if (call_ != nullptr) call_->Cancel();
  }

 private:
  bool cancelled() {
    std::lock_guard lock(mu_);
    return cancelled_;
  }
  // The running call, or a new one that resumes; null after Cancel.
  WatchCall* CurrentCall() {
    std::lock_guard lock(mu_);
    if (call_ == nullptr && !cancelled_) {
      firn::v1::WatchRequest request;
      if (ns_.has_value()) request.set_namespace_fingerprint(Bytes(*ns_));
      if (after_.has_value()) request.set_after(*after_);
      call_ = std::make_unique<WatchCall>(transport_.get(), request);
    }
    return call_.get();
  }
  void EndCall() {
    std::unique_lock lock(mu_);
    std::unique_ptr<WatchCall> call = std::move(call_);
    lock.unlock();
    if (call == nullptr) return;
    call->Cancel();
    call->Drain();
    call->AwaitEnd();
  }
  EventBatch Accept(EventBatch batch) {
    // A restarted daemon counts from the start again: what happened in between is unknown.
    if (after_.has_value() && batch.sequence < *after_) batch.gap = true;
    after_ = batch.sequence;
    return batch;
  }

  const std::shared_ptr<Transport> transport_;
  const pid_t pid_;
  const std::optional<Digest> ns_;
  std::optional<uint64_t> after_;  // Next's thread only.
  std::mutex mu_;
  std::unique_ptr<WatchCall> call_;  // Set and cleared by Next's thread under mu_.
  bool cancelled_ = false;           // Guarded by mu_.
};

absl::StatusOr<std::unique_ptr<WatchStream>> Client::Watch(const std::optional<Digest>& ns,
                                                           std::optional<uint64_t> after) {
  FIRN_RETURN_IF_ERROR(impl_->transport->Usable());
  return std::unique_ptr<WatchStream>(
      new WatchStream(std::make_shared<WatchStream::Impl>(impl_->transport, ns, after)));
}

WatchStream::WatchStream(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
WatchStream::~WatchStream() = default;
absl::StatusOr<EventBatch> WatchStream::Next(int64_t timeout_ms) { return impl_->Next(timeout_ms); }
void WatchStream::Cancel() { impl_->Cancel(); }

}  // namespace firnkv
