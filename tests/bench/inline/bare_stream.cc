#include "tests/bench/inline/bare_stream.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>

#include <cstring>
#include <mutex>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "client/cpp/transport/tuning.h"

namespace firn::bench {
namespace {

struct Order {  // The first message of both calls.
  uint64_t unit_bytes = 0;
  uint64_t units = 0;
  uint64_t chunk_bytes = 0;
  uint64_t into_memory = 0;
};

// One unit's memory, filled over and over.
class Target {
 public:
  void Take(const grpc::ByteBuffer& buffer, uint64_t unit_bytes) {
    memory_.resize(unit_bytes);
    std::vector<grpc::Slice> slices;
    if (!buffer.Dump(&slices).ok()) return;
    for (const grpc::Slice& slice : slices) {
      size_t count = std::min<size_t>(slice.size(), memory_.size() - at_);
      std::memcpy(memory_.data() + at_, slice.begin(), count);
      at_ = (at_ + slice.size()) % unit_bytes;
    }
  }

 private:
  std::vector<uint8_t> memory_;
  size_t at_ = 0;
};

grpc::ByteBuffer BufferOf(const void* bytes, size_t count) {
  grpc::Slice slice(bytes, count);
  return grpc::ByteBuffer(&slice, 1);
}

Order ReadOrder(const grpc::ByteBuffer& buffer) {
  grpc::Slice slice;
  Order order;
  if (buffer.DumpToSingleSlice(&slice).ok() && slice.size() == sizeof(order))
    std::memcpy(&order, slice.begin(), sizeof(order));
  return order;
}

// Counts what comes and acknowledges every whole unit. Reads and writes complete on different threads.
class Acceptor final : public grpc::ServerGenericBidiReactor {
 public:
  Acceptor() { StartRead(&in_); }
  void OnReadDone(bool ok) override {
    std::lock_guard lock(mu_);
    if (ok && !ordered_) {
      order_ = ReadOrder(in_);
      ordered_ = true;
    } else if (ok) {
      if (order_.into_memory != 0) target_.Take(in_, order_.unit_bytes);
      received_ += in_.Length();
    }
    in_.Clear();
    ended_ = !ok;
    if (ok) StartRead(&in_);
    GoOn();
  }
  void OnWriteDone(bool ok) override {
    std::lock_guard lock(mu_);
    writing_ = false;
    broken_ = !ok;
    GoOn();
  }
  void OnDone() override { delete this; }

 private:
  void GoOn() {
    if (writing_) return;
    if (!broken_ && ordered_ && received_ / order_.unit_bytes > acknowledged_) {
      ++acknowledged_;
      writing_ = true;
      out_ = BufferOf("k", 1);
      StartWrite(&out_);
    } else if (ended_) {
      Finish(grpc::Status::OK);
    }
  }
  std::mutex mu_;
  grpc::ByteBuffer in_, out_;
  Order order_;
  Target target_;
  bool ordered_ = false, writing_ = false, ended_ = false, broken_ = false;
  uint64_t received_ = 0, acknowledged_ = 0;
};

class Sender final : public grpc::ServerGenericBidiReactor {
 public:
  Sender() { StartRead(&in_); }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    Order order = ReadOrder(in_);
    source_.assign(order.chunk_bytes, 7);
    left_ = order.unit_bytes * order.units;
    Send();
  }
  void OnWriteDone(bool ok) override { ok ? Send() : Finish(grpc::Status::OK); }
  void OnDone() override { delete this; }

 private:
  void Send() {
    if (left_ == 0) return Finish(grpc::Status::OK);
    size_t count = std::min<uint64_t>(left_, source_.size());
    left_ -= count;
    grpc::Slice slice(source_.data(), count, grpc::Slice::STATIC_SLICE);
    out_ = grpc::ByteBuffer(&slice, 1);
    StartWrite(&out_);
  }
  grpc::ByteBuffer in_, out_;
  std::vector<uint8_t> source_;
  uint64_t left_ = 0;
};

std::unique_ptr<grpc::GenericClientAsyncReaderWriter> StartCall(const std::shared_ptr<grpc::Channel>& channel,
                                                                grpc::ClientContext* context, const char* method,
                                                                grpc::CompletionQueue* queue) {
  return grpc::GenericStub(channel).PrepareCall(context, method, queue);
}

enum Tag : intptr_t { kStarted = 1, kWritten, kEnded, kRead, kFinished };
void* TagOf(Tag tag) { return reinterpret_cast<void*>(tag); }

// Runs one call: `next` gives the next message or nothing, `received` sees every message that comes.
template <typename Next, typename Received>
absl::Status Drive(const std::shared_ptr<grpc::Channel>& channel, const char* method, Next next, Received received) {
  grpc::ClientContext context;
  context.set_wait_for_ready(true);  // The server may be starting.
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  grpc::CompletionQueue queue;
  auto call = StartCall(channel, &context, method, &queue);
  call->StartCall(TagOf(kStarted));
  grpc::ByteBuffer in, out;
  grpc::Status status;
  void* tag = nullptr;
  bool ok = false;
  auto write = [&] { next(&out) ? call->Write(out, TagOf(kWritten)) : call->WritesDone(TagOf(kEnded)); };
  bool finished = false;
  while (!finished && queue.Next(&tag, &ok)) {
    switch (static_cast<Tag>(reinterpret_cast<intptr_t>(tag))) {
      case kStarted:
        call->Read(&in, TagOf(kRead));
        write();
        break;
      case kWritten:
        if (ok) write();
        break;
      case kEnded:
        break;
      case kRead:
        if (ok) {
          received(in);
          in.Clear();
          call->Read(&in, TagOf(kRead));
        } else {
          call->Finish(&status, TagOf(kFinished));
        }
        break;
      case kFinished:
        finished = true;
        break;
    }
  }
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  if (status.ok()) return absl::OkStatus();
  return Unavailable("bare stream {}: {}", method, status.error_message());
}

}  // namespace

class BareServer::Service final : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    if (context->method() == "/bare/Upload") return new Acceptor();
    return new Sender();
  }
};

BareServer::BareServer(const std::string& address, bool tuned) : service_(std::make_unique<Service>()) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  builder.RegisterCallbackGenericService(service_.get());
  builder.SetMaxReceiveMessageSize(-1);
  if (tuned) {
    grpc::ChannelArguments arguments;
    firnkv::TuneForPayloads(&arguments);
    grpc_channel_args raw = arguments.c_channel_args();
    for (size_t i = 0; i < raw.num_args; ++i) {
      if (raw.args[i].type == GRPC_ARG_INTEGER) builder.AddChannelArgument(raw.args[i].key, raw.args[i].value.integer);
    }
  }
  server_ = builder.BuildAndStart();
}

BareServer::~BareServer() {
  if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
}

BareClient::BareClient(const std::string& address, bool tuned) {
  grpc::ChannelArguments arguments;
  if (tuned) firnkv::TuneForPayloads(&arguments);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 50);
  arguments.SetMaxReceiveMessageSize(-1);
  channel_ = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

absl::Status BareClient::Upload(const BareUnits& units, std::span<const uint8_t> source) {
  Order order{units.unit_bytes, units.units, units.chunk_bytes, units.into_memory};
  uint64_t total = units.unit_bytes * units.units, sent = 0, acknowledged = 0;
  bool ordered = false;
  auto next = [&](grpc::ByteBuffer* out) {
    if (!std::exchange(ordered, true)) {
      *out = BufferOf(&order, sizeof(order));
      return true;
    }
    if (sent == total) return false;
    uint64_t at = sent % units.unit_bytes;
    size_t count = std::min<uint64_t>(units.chunk_bytes, units.unit_bytes - at);
    grpc::Slice slice(source.data() + at, count, grpc::Slice::STATIC_SLICE);
    *out = grpc::ByteBuffer(&slice, 1);
    sent += count;
    return true;
  };
  FIRN_RETURN_IF_ERROR(Drive(channel_, "/bare/Upload", next, [&](const grpc::ByteBuffer&) { ++acknowledged; }));
  if (acknowledged == units.units) return absl::OkStatus();
  return InternalError("{} of {} units were acknowledged", acknowledged, units.units);
}

absl::Status BareClient::Download(const BareUnits& units) {
  Order order{units.unit_bytes, units.units, units.chunk_bytes, units.into_memory};
  uint64_t received = 0;
  bool ordered = false;
  auto next = [&](grpc::ByteBuffer* out) {
    if (std::exchange(ordered, true)) return false;
    *out = BufferOf(&order, sizeof(order));
    return true;
  };
  Target target;
  auto take = [&](const grpc::ByteBuffer& in) {
    if (units.into_memory) target.Take(in, units.unit_bytes);
    received += in.Length();
  };
  FIRN_RETURN_IF_ERROR(Drive(channel_, "/bare/Download", next, take));
  if (received == units.unit_bytes * units.units) return absl::OkStatus();
  return InternalError("{} of {} bytes came", received, units.unit_bytes * units.units);
}

}  // namespace firn::bench
