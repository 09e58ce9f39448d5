#include "client/cpp/transport/data_stream.h"

#include <algorithm>

#include "base/check.h"
#include "base/status.h"
#include "client/cpp/transport/transport.h"

namespace firnkv {

using std::chrono::milliseconds;

namespace {

constexpr milliseconds kFirstPause{50};
constexpr milliseconds kReleasePause{1};

}  // namespace

DataStream::DataStream(Transport* transport, std::string method, TimePoint deadline)
    : transport_(transport), method_(std::move(method)), deadline_(deadline) {
  for (int kind = 0; kind < kKinds; ++kind) events_[kind] = {this, static_cast<Kind>(kind)};
}

void DataStream::Start(grpc::CompletionQueue* queue) {
  queue_ = queue;
  if (Settled()) {  // Nothing to ask the daemon; the queue must still come round, since completions never run inside a
                    // call.
    over_ = true;
    Settle(absl::OkStatus());
    WakeAfter(milliseconds(0));
    return;
  }
  StartAttempt();
}

DataStream* DataStream::Dispatch(void* tag, bool ok) {
  auto* event = static_cast<Event*>(tag);
  event->stream->OnEvent(event->kind, ok);
  return event->stream;
}

void DataStream::Cancel() {
  std::lock_guard lock(mu_);
  cancelled_ = true;
  if (context_ != nullptr) context_->TryCancel();
}

void* DataStream::Expect(Kind kind) {
  ++outstanding_;
  return &events_[kind];
}

void DataStream::StartAttempt() {
  ++attempts_;
  writing_ = writes_ended_ = reads_ended_ = broken_ = finishing_ = false;
  Rewind();
  call_.reset();
  {
    std::lock_guard lock(mu_);
    context_ = std::make_unique<grpc::ClientContext>();
    context_->set_deadline(deadline_);
    if (cancelled_) context_->TryCancel();
  }
  call_ = grpc::GenericStub(transport_->data_channel()).PrepareCall(context_.get(), method_, queue_);
  call_->StartCall(Expect(kStarted));
}

void DataStream::OnEvent(Kind kind, bool ok) {
  if (kind == kFinished) return OnFinished();
  if (kind == kWoken) {
    if (over_) return AwaitRelease();
    return StartAttempt();
  }
  --outstanding_;
  switch (kind) {
    case kStarted:
      broken_ = !ok;
      reads_ended_ = !ok;
      if (ok) call_->Read(&received_, Expect(kRead));
      break;
    case kWritten:
      writing_ = false;
      broken_ = broken_ || !ok;
      break;
    case kRead:
      reads_ended_ = !ok;
      if (!ok) break;
      if (failure_.ok()) {
        failure_ = OnMessage(received_);
        if (!failure_.ok()) context_->TryCancel();
      }
      received_.Clear();
      call_->Read(&received_, Expect(kRead));
      break;
    default:
      break;
  }
  PumpWrites();
  MaybeFinish();
}

void DataStream::PumpWrites() {
  if (writing_ || writes_ended_ || broken_ || reads_ended_ || !failure_.ok()) return;
  grpc::ByteBuffer message;
  switch (NextMessage(&message)) {
    case Next::kMessage:
      writing_ = true;
      call_->Write(message, Expect(kWritten));
      break;
    case Next::kEnd:
      writes_ended_ = true;
      call_->WritesDone(Expect(kWritesEnded));
      break;
    case Next::kWait:
      break;
  }
}

void DataStream::MaybeFinish() {
  if (!reads_ended_ || outstanding_ > 0 || finishing_) return;
  finishing_ = true;
  call_->Finish(&finish_, &events_[kFinished]);
}

bool DataStream::MayRepeat(const absl::Status& status) const {
  return status.code() == absl::StatusCode::kUnavailable && attempts_ < transport_->options().attempts_max;
}

void DataStream::OnFinished() {
  absl::Status status = !failure_.ok() ? failure_ : FromGrpc(finish_, transport_->options().address);
  // Only now does the call let go of the messages that it still had to send.
  call_.reset();
  {
    std::lock_guard lock(mu_);
    context_.reset();
  }
  if (!Settled() && MayRepeat(status)) {
    auto pause = kFirstPause * (1 << (attempts_ - 1));
    if (std::chrono::system_clock::now() + pause < deadline_) {
      transport_->ForgetLimits();
      return WakeAfter(pause);
    }
  }
  if (status.ok() && !Settled())
    status = firn::InternalError("the daemon ended {} without an answer for every block", method_);
  Settle(status);
  over_ = true;
  AwaitRelease();
}

void DataStream::WakeAfter(milliseconds pause) {
  alarm_.Set(queue_, std::chrono::system_clock::now() + pause, &events_[kWoken]);
}

void DataStream::AwaitRelease() {
  if (hold_.released()) {
    done_ = true;
  } else {
    WakeAfter(kReleasePause);
  }
}

}  // namespace firnkv
