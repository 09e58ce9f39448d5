#include "client/cpp/transport/transport.h"

#include <grpc/grpc.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

#include "base/status.h"
#include "client/cpp/api/convert.h"
#include "client/cpp/transport/data_stream.h"
#include "client/cpp/transport/tuning.h"
#include "client/cpp/transport/unary.h"

namespace firnkv {
namespace {

constexpr char kDefaultSocket[] = "/run/firnkv/firnd.sock";
constexpr int kAttemptsMax = 5;  // gRPC's own bound.
constexpr int kMessageBytesMax = 256 << 20;

// Never balanced by grpc_shutdown: when the last gRPC object goes, version 1.51 may wait 10 s for its backup poller.
void KeepGrpcAlive() {
  static const bool initialized = (grpc_init(), true);
  static_cast<void>(initialized);
}

// The process in which gRPC was first used; 0 before.
std::atomic<pid_t> grpc_process{0};

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Where a daemon is looked for when nobody says: the user's own, if there is one, before the machine's.
std::string DefaultAddress() {
  if (std::string socket = Environment("FIRN_SOCKET"); !socket.empty()) return socket;
  if (std::string folder = Environment("XDG_RUNTIME_DIR"); geteuid() != 0 && !folder.empty()) {
    std::string own = folder + "/firnkv/firnd.sock";
    if (access(own.c_str(), F_OK) == 0) return own;
  }
  return kDefaultSocket;
}

absl::StatusOr<std::string> ResolveAddress(std::string address) {
  if (address.empty()) address = DefaultAddress();
  if (address.front() == '/') address = "unix:" + address;
  if (address.starts_with("unix:")) {
    size_t path_bytes = address.size() - 5;
    constexpr size_t kPathBytesMax = sizeof(sockaddr_un{}.sun_path) - 1;
    if (path_bytes == 0 || path_bytes > kPathBytesMax) {
      return firn::InvalidArgument("socket path '{}' has {} bytes; a Unix socket's path has 1 to {}", address.substr(5),
                                   path_bytes, kPathBytesMax);
    }
    return address;
  }
  size_t colon = address.rfind(':');
  char* end = nullptr;
  long port = colon == std::string::npos ? 0 : std::strtol(address.c_str() + colon + 1, &end, 10);
  if (colon == std::string::npos || colon == 0 || *end != '\0' || port < 1 || port > 65535) {
    return firn::InvalidArgument(
        "address '{}' is neither a path, nor unix:PATH, nor HOST:PORT with a port of 1 to 65535", address);
  }
  return address;
}

// Retries by gRPC for calls that are safe to repeat. Pin, Unpin, Delete, Clear, the moves and the lease calls are not
// among them: a repeat after a lost answer would count twice or report the opposite of what happened.
std::string ServiceConfig(int attempts) {
  std::string names;
  for (const char* method : {"RegisterNamespace", "DescribeNamespace", "ListNamespaces", "PutArtifact", "Lookup",
                             "Exists", "List", "Describe", "Prefetch", "Touch", "Flush", "Stats", "Capabilities"}) {
    names += fmt::format(R"({}{{"service":"firn.v1.KvStore","method":"{}"}})", names.empty() ? "" : ",", method);
  }
  names += R"(,{"service":"firn.v1.Admin","method":"Verify"},{"service":"firn.v1.Admin","method":"SetCapacity"})";
  return fmt::format(
      R"({{"methodConfig":[{{"name":[{}],"retryPolicy":{{"maxAttempts":{},"initialBackoff":"0.05s","maxBackoff":"1s",)"
      R"("backoffMultiplier":2,"retryableStatusCodes":["UNAVAILABLE"]}}}}]}})",
      names, attempts);
}

grpc::ChannelArguments CommonArguments() {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // A proxy for the web is not meant for a cache next door.
  // A restarted daemon should be found at once, not after gRPC's default of 20 s.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // How long an attempt to connect may take, whatever its name says: a busy daemon, or a busy machine, is not a dead
  // one.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);
  arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
  arguments.SetMaxSendMessageSize(kMessageBytesMax);
  // Otherwise two clients of one process would share a connection, and one that is being closed.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return arguments;
}

}  // namespace

absl::Status FromGrpc(const grpc::Status& status, const std::string& address) {
  if (status.ok()) return absl::OkStatus();
  std::string message = status.error_message();
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE ||
      status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    message += " (daemon at " + address + ")";
  }
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED && message.empty()) {
    message = "the listener at " + address +
              " does not offer this call; administration needs `admin = true` in its [[listener]]";
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), message);
}

absl::StatusOr<std::shared_ptr<Transport>> Transport::Create(const ClientOptions& options) {
  pid_t none = 0, self = getpid();
  if (!grpc_process.compare_exchange_strong(none, self) && none != self) {
    return firn::FailedPrecondition(
        "process {} was forked from process {} after it had used FirnKV: gRPC does not survive a fork. Start workers "
        "with exec "
        "(spawn), or fork before making the first client",
        self, none);
  }
  ClientOptions resolved = options;
  FIRN_ASSIGN_OR_RETURN(resolved.address, ResolveAddress(options.address));
  if (options.attempts_max < 1 || options.attempts_max > kAttemptsMax) {
    return firn::InvalidArgument("attempts_max is {}; 1 to {} expected", options.attempts_max, kAttemptsMax);
  }
  if (options.deadline_ms <= 0 || options.data_deadline_ms <= 0) {
    return firn::InvalidArgument("deadlines are {} ms and {} ms; both must be positive", options.deadline_ms,
                                 options.data_deadline_ms);
  }
  KeepGrpcAlive();
  return std::shared_ptr<Transport>(new Transport(resolved));
}

Transport::Transport(const ClientOptions& options) : options_(options), pid_(getpid()) {
  grpc::ChannelArguments control = CommonArguments();
  if (options_.attempts_max > 1) control.SetServiceConfigJSON(ServiceConfig(options_.attempts_max));
  control_channel_ = grpc::CreateCustomChannel(options_.address, grpc::InsecureChannelCredentials(), control);
  kv_ = firn::v1::KvStore::NewStub(control_channel_);
  admin_ = firn::v1::Admin::NewStub(control_channel_);

  grpc::ChannelArguments data = CommonArguments();
  data.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);  // Streams are repeated block by block (data_stream.h), not replayed.
  data.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  data.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  TuneForPayloads(&data);
  data_channel_ = grpc::CreateCustomChannel(options_.address, grpc::InsecureChannelCredentials(), data);
}

Transport::~Transport() {
  if (getpid() != pid_) {
    if (driver_.joinable()) driver_.detach();  // Not running here; std::thread would otherwise end the process.
    static_cast<void>(queue_.release());
    static_cast<void>(copier_.release());
    static_cast<void>(kv_.release());
    static_cast<void>(admin_.release());
    // One reference each that nobody drops.
    static_cast<void>(new std::shared_ptr<grpc::Channel>(std::move(control_channel_)));
    static_cast<void>(new std::shared_ptr<grpc::Channel>(std::move(data_channel_)));
    return;
  }
  Stop();
}

void Transport::Stop() {
  if (getpid() != pid_) return;
  std::unique_lock lock(mu_);
  for (const auto& [raw, stream] : running_) raw->Cancel();
  for (grpc::ClientContext* context : calls_) context->TryCancel();
  idle_.wait(lock, [this] { return running_.empty() && calls_.empty(); });
  std::thread driver = std::move(driver_);
  lock.unlock();
  if (!driver.joinable()) return;
  queue_->Shutdown();
  driver.join();
}

firn::Executor* Transport::copier() {
  std::lock_guard lock(mu_);
  if (copier_ == nullptr) copier_ = std::make_unique<firn::ThreadPoolExecutor>(1);
  return copier_.get();
}

void Transport::AddCall(grpc::ClientContext* context) {
  std::lock_guard lock(mu_);
  calls_.insert(context);
}

void Transport::RemoveCall(grpc::ClientContext* context) {
  std::lock_guard lock(mu_);
  calls_.erase(context);
  if (running_.empty() && calls_.empty()) idle_.notify_all();
}

absl::Status Transport::Usable() const {
  if (getpid() == pid_) return absl::OkStatus();
  return firn::FailedPrecondition(
      "this FirnKV client belongs to process {}, and process {} was forked from it: gRPC does not survive a fork. "
      "Start workers with "
      "exec (spawn), or fork before making the first client",
      pid_, getpid());
}

absl::StatusOr<Limits> Transport::GetLimits(std::chrono::system_clock::time_point deadline) {
  {
    std::lock_guard lock(mu_);
    if (limits_.has_value()) return *limits_;
  }
  firn::v1::CapabilitiesResponse response;
  FIRN_RETURN_IF_ERROR(CallUntil(this, kv(), &firn::v1::KvStore::Stub::Capabilities, {}, deadline, &response));
  Limits limits = FromProto(response.limits());
  if (limits.block_bytes_max == 0 || limits.chunk_bytes_max == 0 || limits.keys_max == 0) {
    return firn::InternalError(
        "the daemon at {} states a limit of 0: block_bytes_max {}, chunk_bytes_max {}, keys_max {}", options_.address,
        limits.block_bytes_max, limits.chunk_bytes_max, limits.keys_max);
  }
  std::lock_guard lock(mu_);
  limits_ = limits;
  return limits;
}

void Transport::ForgetLimits() {
  std::lock_guard lock(mu_);
  limits_.reset();
}

void Transport::Run(DataStream* stream) {
  grpc::CompletionQueue queue;
  stream->Start(&queue);
  void* tag = nullptr;
  bool ok = false;
  while (!stream->done() && queue.Next(&tag, &ok)) DataStream::Dispatch(tag, ok);
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
}

void Transport::Post(std::shared_ptr<DataStream> stream) {
  std::lock_guard lock(mu_);
  if (queue_ == nullptr) {
    queue_ = std::make_unique<grpc::CompletionQueue>();
    driver_ = std::thread([this] { DriveAsync(); });
  }
  DataStream* raw = stream.get();
  running_.emplace(raw, std::move(stream));
  raw->Start(queue_.get());
}

void Transport::DriveAsync() {
  void* tag = nullptr;
  bool ok = false;
  while (queue_->Next(&tag, &ok)) {
    DataStream* stream = DataStream::Dispatch(tag, ok);
    if (!stream->done()) continue;
    std::shared_ptr<DataStream> finished;
    {
      std::lock_guard lock(mu_);
      auto at = running_.find(stream);
      finished = std::move(at->second);
      running_.erase(at);
      if (running_.empty() && calls_.empty()) idle_.notify_all();
    }
    finished->Complete();
  }
}

}  // namespace firnkv
