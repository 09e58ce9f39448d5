// Calls about lists of keys: requests are built once, for the waiting and the asynchronous form alike.

#include "base/status.h"
#include "client/cpp/api/client_impl.h"
#include "client/cpp/api/convert.h"
#include "client/cpp/transport/unary.h"

namespace firnkv {
namespace {

using firn::v1::KvStore;
using Async = KvStore::StubInterface::async_interface;

firn::v1::LookupRequest LookupRequestFor(const Namespace& ns, std::span<const BlockKey> keys, PrecisionPair least) {
  firn::v1::LookupRequest request;
  request.set_namespace_fingerprint(Bytes(ns.fingerprint));
  ToProto(keys, request.mutable_keys()->mutable_keys());
  ToProto(least, request.mutable_least());
  return request;
}

firn::v1::LookupRequest LookupRequestFor(const Namespace& ns, const Client::TokenQuery& query, PrecisionPair least) {
  firn::v1::LookupRequest request;
  request.set_namespace_fingerprint(Bytes(ns.fingerprint));
  firn::v1::TokenChain* chain = request.mutable_tokens();
  chain->mutable_tokens()->Add(query.tokens.begin(), query.tokens.end());
  for (std::string_view extra : query.extras) chain->add_extras(std::string(extra));
  if (query.parent.has_value()) ToProto(*query.parent, chain->mutable_parent());
  chain->set_with_tail(query.with_tail);
  ToProto(least, request.mutable_least());
  return request;
}

// Requests that name a namespace, keys and the least class, or the first two.
template <typename Request>
Request KeysRequest(const Namespace& ns, std::span<const BlockKey> keys) {
  Request request;
  request.set_namespace_fingerprint(Bytes(ns.fingerprint));
  ToProto(keys, request.mutable_keys());
  return request;
}

template <typename Request>
Request KeysRequest(const Namespace& ns, std::span<const BlockKey> keys, PrecisionPair least) {
  auto request = KeysRequest<Request>(ns, keys);
  ToProto(least, request.mutable_least());
  return request;
}

firn::v1::TouchRequest TouchRequestFor(const Namespace& ns, std::span<const TouchHint> hints) {
  firn::v1::TouchRequest request;
  request.set_namespace_fingerprint(Bytes(ns.fingerprint));
  for (const TouchHint& hint : hints) {
    auto* out = request.add_hints();
    ToProto(hint.key, out->mutable_key());
    out->set_importance(hint.importance);
    out->set_live_sequence(hint.live_sequence);
    out->mutable_token_importance()->Add(hint.token_importance.begin(), hint.token_importance.end());
  }
  return request;
}

// One answer a key, or the call has failed: a shorter list would shift what belongs to whom.
template <typename T>
absl::StatusOr<std::vector<T>> OneEach(std::vector<T> answers, size_t keys) {
  if (answers.size() == keys) return answers;
  return firn::InternalError("the daemon gave {} answers to {} keys", answers.size(), keys);
}

absl::StatusOr<std::vector<Located>> ReadExists(const firn::v1::ExistsResponse& response, size_t keys) {
  std::vector<Located> out;
  for (const auto& located : response.blocks()) out.push_back(FromProto(located));
  return OneEach(std::move(out), keys);
}

absl::StatusOr<std::vector<absl::Status>> ReadBatch(const firn::v1::BatchResponse& response, size_t keys) {
  return OneEach(FromProto(response.statuses()), keys);
}

// Makes a batch call and waits.
template <typename Request>
absl::StatusOr<std::vector<absl::Status>> Batch(
    Transport* transport,
    grpc::Status (KvStore::Stub::*method)(grpc::ClientContext*, const Request&, firn::v1::BatchResponse*),
    const Request& request, size_t keys, std::chrono::system_clock::time_point deadline) {
  if (keys == 0) return std::vector<absl::Status>();
  firn::v1::BatchResponse response;
  FIRN_RETURN_IF_ERROR(CallUntil(transport, transport->kv(), method, request, deadline, &response));
  return ReadBatch(response, keys);
}

// The completion of an asynchronous call, from the response's reader and the caller's callback.
template <typename Response, typename T, typename Read>
std::function<void(absl::Status, const Response&)> Finish(Callback<T> done, Read read) {
  return [done = std::move(done), read](const absl::Status& status, const Response& response) {
    if (!status.ok()) return done(status);
    done(read(response));
  };
}

template <typename Request>
using BatchAsync = void (Async::*)(grpc::ClientContext*, const Request*, firn::v1::BatchResponse*,
                                   std::function<void(grpc::Status)>);

template <typename Request>
void BatchLater(Transport* transport, BatchAsync<Request> method, const Request& request, size_t keys,
                std::chrono::system_clock::time_point deadline, Callback<std::vector<absl::Status>> done) {
  auto read = [keys](const firn::v1::BatchResponse& response) { return ReadBatch(response, keys); };
  CallAsync<Async, Request, firn::v1::BatchResponse>(
      transport, transport->kv()->async(), method, request, deadline,
      Finish<firn::v1::BatchResponse, std::vector<absl::Status>>(std::move(done), read));
}

}  // namespace

absl::StatusOr<Prefix> Client::Lookup(const Namespace& ns, std::span<const BlockKey> keys, PrecisionPair least,
                                      const CallOptions& options) {
  firn::v1::LookupResponse response;
  FIRN_RETURN_IF_ERROR(CallUntil(impl_->transport.get(), impl_->transport->kv(), &KvStore::Stub::Lookup,
                                 LookupRequestFor(ns, keys, least), impl_->Deadline(options), &response));
  return FromProto(response);
}

absl::StatusOr<Prefix> Client::LookupTokens(const Namespace& ns, const TokenQuery& query, PrecisionPair least,
                                            const CallOptions& options) {
  firn::v1::LookupResponse response;
  FIRN_RETURN_IF_ERROR(CallUntil(impl_->transport.get(), impl_->transport->kv(), &KvStore::Stub::Lookup,
                                 LookupRequestFor(ns, query, least), impl_->Deadline(options), &response));
  return FromProto(response);
}

absl::StatusOr<std::vector<Located>> Client::Exists(const Namespace& ns, std::span<const BlockKey> keys,
                                                    PrecisionPair least, const CallOptions& options) {
  if (keys.empty()) return std::vector<Located>();
  firn::v1::ExistsResponse response;
  FIRN_RETURN_IF_ERROR(CallUntil(impl_->transport.get(), impl_->transport->kv(), &KvStore::Stub::Exists,
                                 KeysRequest<firn::v1::ExistsRequest>(ns, keys, least), impl_->Deadline(options),
                                 &response));
  return ReadExists(response, keys.size());
}

absl::StatusOr<std::vector<BlockInfo>> Client::List(const Namespace& ns, const std::optional<Digest>& after,
                                                    uint32_t limit, const CallOptions& options) {
  firn::v1::ListRequest request;
  request.set_namespace_fingerprint(Bytes(ns.fingerprint));
  if (after.has_value()) request.set_after(Bytes(*after));
  request.set_limit(limit);
  firn::v1::ListResponse response;
  FIRN_RETURN_IF_ERROR(CallUntil(impl_->transport.get(), impl_->transport->kv(), &KvStore::Stub::List, request,
                                 impl_->Deadline(options), &response));
  std::vector<BlockInfo> out;
  for (const auto& info : response.blocks()) out.push_back(FromProto(info));
  return out;
}

absl::StatusOr<std::vector<DescribeAnswer>> Client::Describe(const Namespace& ns, std::span<const BlockKey> keys,
                                                             const CallOptions& options) {
  if (keys.empty()) return std::vector<DescribeAnswer>();
  firn::v1::DescribeResponse response;
  FIRN_RETURN_IF_ERROR(CallUntil(impl_->transport.get(), impl_->transport->kv(), &KvStore::Stub::Describe,
                                 KeysRequest<firn::v1::DescribeRequest>(ns, keys), impl_->Deadline(options),
                                 &response));
  std::vector<DescribeAnswer> out;
  for (const auto& answer : response.answers()) {
    DescribeAnswer& row = out.emplace_back();
    row.status = FromProto(answer.status());
    for (const auto& info : answer.shards()) row.shards.push_back(FromProto(info));
  }
  return OneEach(std::move(out), keys.size());
}

absl::StatusOr<std::vector<absl::Status>> Client::Prefetch(const Namespace& ns, std::span<const BlockKey> keys,
                                                           PrecisionPair least, const CallOptions& options) {
  return Batch(impl_->transport.get(), &KvStore::Stub::Prefetch,
               KeysRequest<firn::v1::PrefetchRequest>(ns, keys, least), keys.size(),
               impl_->DataDeadline(options.deadline_ms));
}

absl::StatusOr<std::vector<absl::Status>> Client::Touch(const Namespace& ns, std::span<const TouchHint> hints,
                                                        const CallOptions& options) {
  return Batch(impl_->transport.get(), &KvStore::Stub::Touch, TouchRequestFor(ns, hints), hints.size(),
               impl_->Deadline(options));
}

absl::StatusOr<std::vector<absl::Status>> Client::Pin(const Namespace& ns, std::span<const BlockKey> keys,
                                                      const Session& session, const CallOptions& options) {
  auto request = KeysRequest<firn::v1::PinRequest>(ns, keys);
  request.set_session(SessionId(&session));
  return Batch(impl_->transport.get(), &KvStore::Stub::Pin, request, keys.size(), impl_->Deadline(options));
}

absl::StatusOr<std::vector<absl::Status>> Client::Unpin(const Namespace& ns, std::span<const BlockKey> keys,
                                                        const Session& session, const CallOptions& options) {
  auto request = KeysRequest<firn::v1::PinRequest>(ns, keys);
  request.set_session(SessionId(&session));
  return Batch(impl_->transport.get(), &KvStore::Stub::Unpin, request, keys.size(), impl_->Deadline(options));
}

absl::StatusOr<std::vector<absl::Status>> Client::Delete(const Namespace& ns, std::span<const BlockKey> keys,
                                                         const CallOptions& options) {
  return Batch(impl_->transport.get(), &KvStore::Stub::Delete, KeysRequest<firn::v1::DeleteRequest>(ns, keys),
               keys.size(), impl_->Deadline(options));
}

absl::Status Client::Flush(const Namespace& ns, const CallOptions& options) {
  firn::v1::FlushRequest request;
  request.set_namespace_fingerprint(Bytes(ns.fingerprint));
  firn::v1::FlushResponse response;
  return CallUntil(impl_->transport.get(), impl_->transport->kv(), &KvStore::Stub::Flush, request,
                   impl_->DataDeadline(options.deadline_ms), &response);
}

void Client::LookupAsync(const Namespace& ns, std::span<const BlockKey> keys, PrecisionPair least,
                         const CallOptions& options, Callback<Prefix> done) {
  auto read = [](const firn::v1::LookupResponse& response) -> absl::StatusOr<Prefix> { return FromProto(response); };
  CallAsync<Async, firn::v1::LookupRequest, firn::v1::LookupResponse>(
      impl_->transport.get(), impl_->transport->kv()->async(), &Async::Lookup, LookupRequestFor(ns, keys, least),
      impl_->Deadline(options), Finish<firn::v1::LookupResponse, Prefix>(std::move(done), read));
}

void Client::ExistsAsync(const Namespace& ns, std::span<const BlockKey> keys, PrecisionPair least,
                         const CallOptions& options, Callback<std::vector<Located>> done) {
  auto read = [count = keys.size()](const firn::v1::ExistsResponse& response) { return ReadExists(response, count); };
  CallAsync<Async, firn::v1::ExistsRequest, firn::v1::ExistsResponse>(
      impl_->transport.get(), impl_->transport->kv()->async(), &Async::Exists,
      KeysRequest<firn::v1::ExistsRequest>(ns, keys, least), impl_->Deadline(options),
      Finish<firn::v1::ExistsResponse, std::vector<Located>>(std::move(done), read));
}

void Client::PrefetchAsync(const Namespace& ns, std::span<const BlockKey> keys, PrecisionPair least,
                           const CallOptions& options, Callback<std::vector<absl::Status>> done) {
  BatchLater<firn::v1::PrefetchRequest>(impl_->transport.get(), &Async::Prefetch,
                                        KeysRequest<firn::v1::PrefetchRequest>(ns, keys, least), keys.size(),
                                        impl_->DataDeadline(options.deadline_ms), std::move(done));
}

void Client::TouchAsync(const Namespace& ns, std::span<const TouchHint> hints, const CallOptions& options,
                        Callback<std::vector<absl::Status>> done) {
  BatchLater<firn::v1::TouchRequest>(impl_->transport.get(), &Async::Touch, TouchRequestFor(ns, hints), hints.size(),
                                     impl_->Deadline(options), std::move(done));
}

void Client::DeleteAsync(const Namespace& ns, std::span<const BlockKey> keys, const CallOptions& options,
                         Callback<std::vector<absl::Status>> done) {
  BatchLater<firn::v1::DeleteRequest>(impl_->transport.get(), &Async::Delete,
                                      KeysRequest<firn::v1::DeleteRequest>(ns, keys), keys.size(),
                                      impl_->Deadline(options), std::move(done));
}

void Client::FlushAsync(const Namespace& ns, const CallOptions& options, std::function<void(absl::Status)> done) {
  firn::v1::FlushRequest request;
  request.set_namespace_fingerprint(Bytes(ns.fingerprint));
  CallAsync<Async, firn::v1::FlushRequest, firn::v1::FlushResponse>(
      impl_->transport.get(), impl_->transport->kv()->async(), &Async::Flush, request,
      impl_->DataDeadline(options.deadline_ms),
      [done = std::move(done)](const absl::Status& status, const firn::v1::FlushResponse&) { done(status); });
}

}  // namespace firnkv
