#include "daemon/tests/raw_client_test_util.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>

namespace firn {
namespace {

grpc::ByteBuffer BufferOf(const std::string& bytes) {
  grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

std::string BytesOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string out;
  if (buffer.Valid() && buffer.Dump(&slices).ok()) {
    for (const grpc::Slice& slice : slices) out.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return out;
}

absl::Status StatusOf(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

class StreamImpl final : public RawStream {
 public:
  StreamImpl(grpc::GenericStub* stub, const std::string& path, int64_t deadline_ms) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(deadline_ms));
    call_ = stub->PrepareCall(&context_, path, &queue_);
    call_->StartCall(Tag());
    started_ = Wait();
  }
  ~StreamImpl() override {
    if (!finished_) {
      context_.TryCancel();
      (void)Finish();
    }
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  bool Write(const std::string& message) override {
    if (!started_) return false;
    call_->Write(BufferOf(message), Tag());
    return Wait();
  }
  bool Read(std::string* message) override {
    if (!started_) return false;
    grpc::ByteBuffer buffer;
    call_->Read(&buffer, Tag());
    if (!Wait()) return false;
    *message = BytesOf(buffer);
    return true;
  }
  void HalfClose() override {
    if (!started_) return;
    call_->WritesDone(Tag());
    (void)Wait();
  }
  void Cancel() override { context_.TryCancel(); }
  absl::Status Finish() override {
    grpc::Status status;
    call_->Finish(&status, Tag());
    (void)Wait();
    finished_ = true;
    return StatusOf(status);
  }

 private:
  void* Tag() { return this; }
  bool Wait() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  grpc::CompletionQueue queue_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>> call_;
  bool started_ = false, finished_ = false;
};

std::string PathOf(const std::string& method) { return method[0] == '/' ? method : "/firn.v1." + method; }

}  // namespace

struct RawClient::State {
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<grpc::GenericStub> stub;
};

RawClient::RawClient(const std::string& address, int window_bytes) : state_(std::make_unique<State>()) {
  static std::atomic<int> number{0};
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt("firn.test.number", ++number);
  if (window_bytes > 0) {
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, window_bytes);
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  }
  state_->channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  state_->stub = std::make_unique<grpc::GenericStub>(state_->channel);
}

RawClient::~RawClient() = default;

absl::Status RawClient::Call(const std::string& method, const std::string& request, std::string* response,
                             int64_t deadline_ms) {
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(deadline_ms));
  auto call = state_->stub->PrepareUnaryCall(&context, PathOf(method), BufferOf(request), &queue);
  call->StartCall();
  grpc::ByteBuffer buffer;
  grpc::Status status;
  call->Finish(&buffer, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  if (status.ok()) *response = BytesOf(buffer);
  return StatusOf(status);
}

std::unique_ptr<RawStream> RawClient::Open(const std::string& method, int64_t deadline_ms) {
  return std::make_unique<StreamImpl>(state_->stub.get(), PathOf(method), deadline_ms);
}

}  // namespace firn
