#include "firnkv/session.h"

#include <unistd.h>

#include <condition_variable>
#include <mutex>

#include "base/status.h"
#include "client/cpp/api/checks.h"
#include "client/cpp/api/client_impl.h"
#include "client/cpp/api/convert.h"
#include "client/cpp/api/device.h"
#include "client/cpp/api/jobs.h"
#include "client/cpp/transport/unary.h"

namespace firnkv {

using firn::v1::KvStore;

// Keeps the Session stream open: its one answer names the session, its end is the session's end.
class Session::Impl final : public grpc::ClientBidiReactor<firn::v1::SessionRequest, firn::v1::SessionResponse> {
 public:
  explicit Impl(std::shared_ptr<Transport> transport_in) : transport(std::move(transport_in)), pid_(getpid()) {}
  // Only after over_, or in a process where nobody runs the reactor any more.
  ~Impl() override = default;

  absl::Status Open(std::string_view name, std::chrono::system_clock::time_point deadline) {
    request_.set_client(std::string(name));
    transport->kv()->async()->Session(&context_, this);
    StartWrite(&request_);
    StartRead(&response_);
    StartCall();
    std::unique_lock lock(mu_);
    bool answered = changed_.wait_until(lock, deadline, [this] { return over_ || !id_.empty(); });
    if (answered && !over_) return absl::OkStatus();
    if (over_) return status_.ok() ? firn::Unavailable("the daemon ended the session at once") : status_;
    return absl::DeadlineExceededError("no session within the deadline (daemon at " + transport->options().address +
                                       ")");
  }

  // False where the reactor must be leaked: after a fork.
  bool Close() {
    if (getpid() != pid_) return false;
    context_.TryCancel();
    std::unique_lock lock(mu_);
    changed_.wait(lock, [this] { return over_; });
    return true;
  }

  bool alive() const {
    std::lock_guard lock(mu_);
    return !over_ && getpid() == pid_;
  }
  const std::string& id() const { return id_; }  // Set before Open returns, constant since.

  void OnReadDone(bool ok) override {
    if (!ok) return;
    {
      std::lock_guard lock(mu_);
      if (id_.empty()) id_ = response_.session();
      changed_.notify_all();
    }
    StartRead(&ignored_);  // Ends when the stream does.
  }
  void OnDone(const grpc::Status& status) override {
    std::lock_guard lock(mu_);
    status_ = FromGrpc(status, transport->options().address);
    over_ = true;
    changed_.notify_all();
  }

  const std::shared_ptr<Transport> transport;

 private:
  const pid_t pid_;
  grpc::ClientContext context_;
  firn::v1::SessionRequest request_;
  firn::v1::SessionResponse response_, ignored_;
  mutable std::mutex mu_;
  std::condition_variable changed_;
  std::string id_;       // Guarded by mu_ until set.
  bool over_ = false;    // Guarded by mu_.
  absl::Status status_;  // Guarded by mu_.
};

std::string SessionId(const Session* session) { return session == nullptr ? std::string() : session->id(); }

absl::StatusOr<std::unique_ptr<Session>> Client::OpenSession(std::string_view name, const CallOptions& options) {
  FIRN_RETURN_IF_ERROR(impl_->transport->Usable());
  // The destructor closes the stream, also where opening it failed.
  std::unique_ptr<Session> session(new Session(std::make_shared<Session::Impl>(impl_->transport)));
  FIRN_RETURN_IF_ERROR(session->impl_->Open(name, impl_->Deadline(options)));
  return session;
}

Session::Session(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Session::~Session() {
  if (!impl_->Close()) static_cast<void>(new std::shared_ptr<Impl>(std::move(impl_)));
}

bool Session::alive() const { return impl_->alive(); }
const std::string& Session::id() const { return impl_->id(); }

absl::StatusOr<std::vector<Lease>> Session::BeginPut(const Namespace& ns, std::span<const PutItem> items,
                                                     const PutOptions& options, uint64_t wait_ms) {
  return Begin(ns, items, options, wait_ms, false);
}

absl::StatusOr<std::vector<Lease>> Session::BeginPutFromDevice(const Namespace& ns, std::span<const PutItem> items,
                                                               const PutOptions& options, uint64_t wait_ms) {
  return Begin(ns, items, options, wait_ms, true);
}

absl::StatusOr<std::vector<Lease>> Session::Begin(const Namespace& ns, std::span<const PutItem> items,
                                                  const PutOptions& options, uint64_t wait_ms, bool from_device) {
  if (items.empty()) return std::vector<Lease>();
  Transport* transport = impl_->transport.get();
  auto deadline = DeadlineAfter(options.deadline_ms, transport->options().data_deadline_ms);
  FIRN_ASSIGN_OR_RETURN(Limits limits, transport->GetLimits(deadline));
  firn::v1::BeginPutRequest request;
  request.set_namespace_fingerprint(Bytes(ns.fingerprint));
  request.set_session(id());
  request.set_wait_ms(wait_ms);
  if (from_device) request.mutable_extent()->mutable_gpu_handle();
  std::vector<Lease> leases(items.size());
  std::vector<size_t> asked;
  for (size_t i = 0; i < items.size(); ++i) {
    leases[i].status = CheckBlock(ns, limits, items[i]);
    if (!leases[i].status.ok()) continue;
    FillPutBlock(ns, items[i], options, request.add_blocks());
    asked.push_back(i);
  }
  if (asked.empty()) return leases;
  firn::v1::BeginPutResponse response;
  FIRN_RETURN_IF_ERROR(CallUntil(transport, transport->kv(), &KvStore::Stub::BeginPut, request, deadline, &response));
  if (static_cast<size_t>(response.leases_size()) != asked.size()) {
    return firn::InternalError("the daemon gave {} leases for {} blocks", response.leases_size(), asked.size());
  }
  for (size_t i = 0; i < asked.size(); ++i) {
    const auto& lease = response.leases(static_cast<int>(i));
    leases[asked[i]] = {FromProto(lease.status()), lease.lease(), lease.payload_bytes()};
  }
  return leases;
}

absl::StatusOr<std::vector<absl::Status>> Session::Fill(const Namespace& ns, std::span<const uint64_t> leases,
                                                        std::span<const SourceParts> parts, const PutOptions& options) {
  if (leases.size() != parts.size()) {
    return firn::InvalidArgument("{} leases and {} payloads; one each expected", leases.size(), parts.size());
  }
  if (leases.empty()) return std::vector<absl::Status>();
  Transport* transport = impl_->transport.get();
  FIRN_RETURN_IF_ERROR(transport->Usable());
  auto deadline = DeadlineAfter(options.deadline_ms, transport->options().data_deadline_ms);
  FIRN_ASSIGN_OR_RETURN(Limits limits, transport->GetLimits(deadline));
  FIRN_ASSIGN_OR_RETURN(PutStreamOptions stream_options, MakePutOptions(ns, options, limits));
  stream_options.start.set_session(id());
  std::vector<PutJob> jobs(leases.size());
  for (size_t i = 0; i < jobs.size(); ++i) {
    jobs[i].lease = leases[i];
    AddPayload(parts[i], &jobs[i]);
  }
  PutStream stream(transport, deadline, std::move(stream_options), std::move(jobs));
  transport->Run(&stream);
  std::vector<absl::Status> statuses;
  for (PutResult& result : stream.TakeResults()) statuses.push_back(std::move(result.status));
  return statuses;
}

absl::StatusOr<std::vector<absl::Status>> Session::FillFromDevice(std::span<const uint64_t> leases,
                                                                  std::span<const DeviceRows> rows,
                                                                  const CallOptions& options) {
  if (leases.size() != rows.size()) {
    return firn::InvalidArgument("{} leases and {} rows; one each expected", leases.size(), rows.size());
  }
  if (leases.empty()) return std::vector<absl::Status>();
  Transport* transport = impl_->transport.get();
  firn::v1::FillFromDeviceRequest request;
  request.set_session(id());
  request.mutable_leases()->Add(leases.begin(), leases.end());
  for (const DeviceRows& of_block : rows) ToProto(of_block, request.add_rows());
  firn::v1::FillFromDeviceResponse response;
  FIRN_RETURN_IF_ERROR(CallUntil(transport, transport->kv(), &KvStore::Stub::FillFromDevice, request,
                                 DeadlineAfter(options.deadline_ms, transport->options().data_deadline_ms), &response));
  if (static_cast<size_t>(response.statuses_size()) != leases.size()) {
    return firn::InternalError("the daemon gave {} answers to {} leases", response.statuses_size(), leases.size());
  }
  return FromProto(response.statuses());
}

absl::StatusOr<std::vector<PutResult>> Session::CommitPut(std::span<const uint64_t> leases,
                                                          const CallOptions& options) {
  if (leases.empty()) return std::vector<PutResult>();
  Transport* transport = impl_->transport.get();
  firn::v1::CommitPutRequest request;
  request.set_session(id());
  request.mutable_leases()->Add(leases.begin(), leases.end());
  firn::v1::CommitPutResponse response;
  FIRN_RETURN_IF_ERROR(CallUntil(transport, transport->kv(), &KvStore::Stub::CommitPut, request,
                                 DeadlineAfter(options.deadline_ms, transport->options().data_deadline_ms), &response));
  if (static_cast<size_t>(response.results_size()) != leases.size()) {
    return firn::InternalError("the daemon gave {} answers to {} leases", response.results_size(), leases.size());
  }
  std::vector<PutResult> out(leases.size(),
                             PutResult{.status = firn::InternalError("the daemon did not answer this lease")});
  for (const auto& result : response.results()) {
    if (result.index() < out.size()) out[result.index()] = FromProto(result);
  }
  return out;
}

absl::StatusOr<std::vector<absl::Status>> Session::AbortPut(std::span<const uint64_t> leases,
                                                            const CallOptions& options) {
  if (leases.empty()) return std::vector<absl::Status>();
  Transport* transport = impl_->transport.get();
  firn::v1::AbortPutRequest request;
  request.set_session(id());
  request.mutable_leases()->Add(leases.begin(), leases.end());
  firn::v1::AbortPutResponse response;
  FIRN_RETURN_IF_ERROR(CallUntil(transport, transport->kv(), &KvStore::Stub::AbortPut, request,
                                 DeadlineAfter(options.deadline_ms, transport->options().deadline_ms), &response));
  return FromProto(response.statuses());
}

}  // namespace firnkv
