#include "base/status.h"
#include "client/cpp/api/client_impl.h"
#include "client/cpp/api/convert.h"
#include "client/cpp/transport/unary.h"

namespace firnkv {
namespace {

using firn::v1::Admin;

absl::StatusOr<std::vector<MoveAnswer>> ReadMoves(const firn::v1::MoveResponse& response, size_t keys) {
  std::vector<MoveAnswer> answers = FromProto(response);
  if (answers.size() == keys) return answers;
  return firn::InternalError("the daemon gave {} answers to {} keys", answers.size(), keys);
}

firn::v1::MoveRequest MoveRequestFor(const Namespace& ns, std::span<const BlockKey> keys, const std::string& tier) {
  firn::v1::MoveRequest request;
  request.set_namespace_fingerprint(Bytes(ns.fingerprint));
  ToProto(keys, request.mutable_keys());
  request.set_tier(tier);
  return request;
}

}  // namespace

absl::StatusOr<uint64_t> Client::Clear(const ClearScope& scope, const CallOptions& options) {
  firn::v1::ClearRequest request;
  if (scope.ns.has_value()) request.set_namespace_fingerprint(Bytes(*scope.ns));
  request.set_tier(scope.tier);
  firn::v1::ClearResponse response;
  FIRN_RETURN_IF_ERROR(CallUntil(impl_->transport.get(), impl_->transport->admin(), &Admin::Stub::Clear, request,
                                 impl_->DataDeadline(options.deadline_ms), &response));
  return response.copies_removed();
}

absl::StatusOr<std::vector<MoveAnswer>> Client::Demote(const Namespace& ns, std::span<const BlockKey> keys,
                                                       const std::string& tier, const CallOptions& options) {
  firn::v1::MoveResponse response;
  FIRN_RETURN_IF_ERROR(CallUntil(impl_->transport.get(), impl_->transport->admin(), &Admin::Stub::Demote,
                                 MoveRequestFor(ns, keys, tier), impl_->DataDeadline(options.deadline_ms), &response));
  return ReadMoves(response, keys.size());
}

absl::StatusOr<std::vector<MoveAnswer>> Client::Promote(const Namespace& ns, std::span<const BlockKey> keys,
                                                        const std::string& tier, const CallOptions& options) {
  firn::v1::MoveResponse response;
  FIRN_RETURN_IF_ERROR(CallUntil(impl_->transport.get(), impl_->transport->admin(), &Admin::Stub::Promote,
                                 MoveRequestFor(ns, keys, tier), impl_->DataDeadline(options.deadline_ms), &response));
  return ReadMoves(response, keys.size());
}

absl::StatusOr<std::vector<MoveAnswer>> Client::Degrade(const Namespace& ns, std::span<const BlockKey> keys,
                                                        const std::string& tier, PrecisionPair target,
                                                        const CallOptions& options) {
  firn::v1::DegradeRequest request;
  request.set_namespace_fingerprint(Bytes(ns.fingerprint));
  ToProto(keys, request.mutable_keys());
  request.set_tier(tier);
  ToProto(target, request.mutable_target());
  firn::v1::MoveResponse response;
  FIRN_RETURN_IF_ERROR(CallUntil(impl_->transport.get(), impl_->transport->admin(), &Admin::Stub::Degrade, request,
                                 impl_->DataDeadline(options.deadline_ms), &response));
  return ReadMoves(response, keys.size());
}

absl::StatusOr<uint64_t> Client::RemoveNamespace(const Namespace& ns, const CallOptions& options) {
  firn::v1::RemoveNamespaceRequest request;
  request.set_namespace_fingerprint(Bytes(ns.fingerprint));
  firn::v1::RemoveNamespaceResponse response;
  FIRN_RETURN_IF_ERROR(CallUntil(impl_->transport.get(), impl_->transport->admin(), &Admin::Stub::RemoveNamespace,
                                 request, impl_->DataDeadline(options.deadline_ms), &response));
  return response.copies_removed();
}

absl::StatusOr<uint64_t> Client::SetCapacity(const std::string& tier, uint64_t capacity_bytes,
                                             const CallOptions& options) {
  firn::v1::SetCapacityRequest request;
  request.set_tier(tier);
  request.set_capacity_bytes(capacity_bytes);
  firn::v1::SetCapacityResponse response;
  FIRN_RETURN_IF_ERROR(CallUntil(impl_->transport.get(), impl_->transport->admin(), &Admin::Stub::SetCapacity, request,
                                 impl_->Deadline(options), &response));
  return response.capacity_bytes();
}

absl::StatusOr<VerifyReport> Client::Verify(const CallOptions& options) {
  firn::v1::VerifyResponse response;
  FIRN_RETURN_IF_ERROR(CallUntil(impl_->transport.get(), impl_->transport->admin(), &Admin::Stub::Verify, {},
                                 impl_->DataDeadline(options.deadline_ms), &response));
  return VerifyReport{response.consistent(), {response.findings().begin(), response.findings().end()}};
}

absl::StatusOr<ScrubReport> Client::Scrub(uint64_t bytes_per_second, const CallOptions& options) {
  constexpr int64_t kDayMs = 24 * 3'600'000;
  firn::v1::ScrubRequest request;
  request.set_bytes_per_second(bytes_per_second);
  firn::v1::ScrubResponse response;
  const auto deadline = impl_->DataDeadline(options.deadline_ms > 0 ? options.deadline_ms : kDayMs);
  FIRN_RETURN_IF_ERROR(
      CallUntil(impl_->transport.get(), impl_->transport->admin(), &Admin::Stub::Scrub, request, deadline, &response));
  return ScrubReport{.copies = response.copies(),
                     .bytes = response.bytes(),
                     .mended = response.mended(),
                     .degraded = response.degraded(),
                     .withdrawn = response.withdrawn(),
                     .unread = response.unread(),
                     .milliseconds = response.milliseconds()};
}

}  // namespace firnkv
