#include "firnkv/client.h"

#include <thread>

#include "base/status.h"
#include "client/cpp/api/client_impl.h"
#include "client/cpp/api/convert.h"
#include "client/cpp/transport/unary.h"

namespace firnkv {

using firn::v1::KvStore;

std::chrono::system_clock::time_point Client::Impl::Deadline(const CallOptions& options) const {
  return DeadlineAfter(options.deadline_ms, transport->options().deadline_ms);
}

std::chrono::system_clock::time_point Client::Impl::DataDeadline(int64_t deadline_ms) const {
  return DeadlineAfter(deadline_ms, transport->options().data_deadline_ms);
}

absl::StatusOr<std::unique_ptr<Client>> Client::Create(const ClientOptions& options) {
  FIRN_ASSIGN_OR_RETURN(std::shared_ptr<Transport> transport, Transport::Create(options));
  return std::unique_ptr<Client>(new Client(std::make_shared<Impl>(std::move(transport))));
}

Client::Client(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Client::~Client() { impl_->transport->Stop(); }

const std::string& Client::address() const { return impl_->transport->options().address; }

absl::Status Client::WaitUntilReady(int64_t timeout_ms) {
  constexpr std::chrono::milliseconds kPause(50);
  auto deadline = DeadlineAfter(timeout_ms, impl_->transport->options().deadline_ms);
  absl::Status last;
  while (std::chrono::system_clock::now() < deadline) {
    // A daemon that is starting answers Capabilities, and refuses what needs its store: Stats is the cheapest of that.
    firn::v1::StatsResponse response;
    last = CallUntil(impl_->transport.get(), impl_->transport->kv(), &KvStore::Stub::Stats, {}, deadline, &response);
    if (last.ok() || last.code() != absl::StatusCode::kUnavailable) return last;
    std::this_thread::sleep_for(kPause);
  }
  return absl::DeadlineExceededError(
      fmt::format("the daemon at {} was not ready within {} ms: {}", address(), timeout_ms, firn::Message(last)));
}

absl::StatusOr<Namespace> Client::RegisterNamespace(const NamespaceFacts& facts,
                                                    const std::optional<PrecisionPlan>& plan,
                                                    const CallOptions& options) {
  firn::v1::RegisterNamespaceRequest request;
  ToProto(facts, request.mutable_facts());
  if (plan.has_value()) ToProto(*plan, request.mutable_plan());
  firn::v1::NamespaceInfo response;
  FIRN_RETURN_IF_ERROR(CallUntil(impl_->transport.get(), impl_->transport->kv(), &KvStore::Stub::RegisterNamespace,
                                 request, impl_->Deadline(options), &response));
  return FromProto(response);
}

absl::StatusOr<Namespace> Client::DescribeNamespace(const Digest& fingerprint, const CallOptions& options) {
  firn::v1::DescribeNamespaceRequest request;
  request.set_namespace_fingerprint(Bytes(fingerprint));
  firn::v1::NamespaceInfo response;
  FIRN_RETURN_IF_ERROR(CallUntil(impl_->transport.get(), impl_->transport->kv(), &KvStore::Stub::DescribeNamespace,
                                 request, impl_->Deadline(options), &response));
  return FromProto(response);
}

absl::StatusOr<std::vector<Namespace>> Client::ListNamespaces(const CallOptions& options) {
  firn::v1::ListNamespacesResponse response;
  FIRN_RETURN_IF_ERROR(CallUntil(impl_->transport.get(), impl_->transport->kv(), &KvStore::Stub::ListNamespaces, {},
                                 impl_->Deadline(options), &response));
  std::vector<Namespace> namespaces;
  for (const auto& info : response.namespaces()) {
    FIRN_ASSIGN_OR_RETURN(Namespace ns, FromProto(info));
    namespaces.push_back(std::move(ns));
  }
  return namespaces;
}

absl::StatusOr<Digest> Client::PutArtifact(std::string_view serialized, const CallOptions& options) {
  firn::v1::PutArtifactRequest request;
  request.set_serialized(std::string(serialized));
  firn::v1::PutArtifactResponse response;
  FIRN_RETURN_IF_ERROR(CallUntil(impl_->transport.get(), impl_->transport->kv(), &KvStore::Stub::PutArtifact, request,
                                 impl_->Deadline(options), &response));
  auto digest = Digest::FromBytes(response.artifact());
  if (!digest.has_value()) {
    return firn::DataLoss("the daemon named an artifact by {} bytes; 32 expected", response.artifact().size());
  }
  return *digest;
}

absl::StatusOr<Stats> Client::GetStats(const CallOptions& options) {
  firn::v1::StatsResponse response;
  FIRN_RETURN_IF_ERROR(CallUntil(impl_->transport.get(), impl_->transport->kv(), &KvStore::Stub::Stats, {},
                                 impl_->Deadline(options), &response));
  return FromProto(response);
}

absl::StatusOr<Capabilities> Client::GetCapabilities(const CallOptions& options) {
  firn::v1::CapabilitiesResponse response;
  FIRN_RETURN_IF_ERROR(CallUntil(impl_->transport.get(), impl_->transport->kv(), &KvStore::Stub::Capabilities, {},
                                 impl_->Deadline(options), &response));
  return FromProto(response);
}

}  // namespace firnkv
