// Asking about blocks, hints and holds: batches with one answer a key.
#include <algorithm>
#include <cmath>

#include "base/block_key.h"
#include "base/status.h"
#include "base/units.h"
#include "daemon/core/convert.h"
#include "daemon/rpc/grpc_server.h"
#include "daemon/rpc/kv_service.h"

namespace firn {
namespace {

constexpr uint32_t kListDefault = 1000;
// Keys asked about at a time when looking for the end of a prefix: long chains mostly miss early or not at all.
constexpr size_t kLookupStep = 256;
// Descriptions in one answer: a message takes them, and the statuses of all keys of a batch beside them.
constexpr uint64_t kDescribedBytesMax = 8 * kMiB;
constexpr uint64_t kStatusBytes = 96;
static_assert(kKeysLimitMax * kStatusBytes + kMiB < kMessageBytesMax);

uint64_t DescribedBytesMax(uint64_t keys) {
  return std::min(kDescribedBytesMax, kMessageBytesMax - kMiB - std::min(keys, kKeysLimitMax) * kStatusBytes);
}

// The keys of a token chain: every full block after `parent`, and the tail if asked for.
absl::StatusOr<std::vector<Digest>> ChainOf(const v1::TokenChain& chain, const NamespaceRef& ns) {
  std::vector<std::string_view> extras(chain.extras().begin(), chain.extras().end());
  std::optional<Digest> parent;
  if (chain.has_parent()) {
    FIRN_ASSIGN_OR_RETURN(parent, ToKey(chain.parent(), "tokens.parent"));
  }
  std::span<const uint32_t> tokens(chain.tokens().data(), static_cast<size_t>(chain.tokens().size()));
  std::vector<Digest> keys;
  while (!tokens.empty()) {
    size_t take = std::min<size_t>(tokens.size(), ns.facts.block_tokens);
    if (take < ns.facts.block_tokens && !chain.with_tail()) break;
    parent = ChainedBlockKey({ns.model_fingerprint.span(), parent, tokens.first(take), extras});
    keys.push_back(*parent);
    tokens = tokens.subspan(take);
  }
  return keys;
}

// The keys of a batch that are keys, in order.
std::vector<Digest> Readable(const KeyBatch& batch) {
  std::vector<Digest> readable;
  for (size_t i = 0; i < batch.keys.size(); ++i) {
    if (batch.statuses[i].ok()) readable.push_back(batch.keys[i]);
  }
  return readable;
}

// One status a key from `fn(index, digest)`; keys that cannot be read have their own.
template <typename Fn>
void EachKey(const google::protobuf::RepeatedPtrField<v1::BlockKey>& keys, v1::BatchResponse* response, Fn fn) {
  for (const v1::BlockKey& key : keys) {
    auto digest = ToKey(key, "key");
    FromStatus(digest.ok() ? fn(*digest) : digest.status(), response->add_statuses());
  }
}

}  // namespace

absl::Status KvService::CheckBatch(int size) const {
  if (static_cast<uint32_t>(size) <= core_->limits().keys_max) return absl::OkStatus();
  return InvalidArgument("{} keys in a batch; limits.keys is {}", size, core_->limits().keys_max);
}

KvService::Unary* KvService::Lookup(Context* context, const v1::LookupRequest* request, v1::LookupResponse* response) {
  return Answer(core_, context, Method::kLookup, [=, this](Store* store) -> absl::Status {
    FIRN_ASSIGN_OR_RETURN(NamespacePtr ns, Namespace(store, request->namespace_fingerprint()));
    FIRN_ASSIGN_OR_RETURN(ClassPair least, ToClassPair(request->least(), "least"));
    std::vector<Digest> keys;
    absl::Status unreadable;
    if (request->has_tokens()) {
      FIRN_RETURN_IF_ERROR(CheckBatch(request->tokens().tokens_size() / static_cast<int>(ns->facts.block_tokens)));
      FIRN_ASSIGN_OR_RETURN(keys, ChainOf(request->tokens(), *ns));
    } else {
      FIRN_RETURN_IF_ERROR(CheckBatch(request->keys().keys_size()));
      for (const v1::BlockKey& key : request->keys().keys()) {
        auto digest = ToKey(key, "keys");
        unreadable = digest.status();
        if (!digest.ok()) break;  // No prefix goes past it.
        keys.push_back(*digest);
      }
    }
    bool whole = true;
    for (size_t at = 0; at < keys.size() && whole; at += kLookupStep) {
      std::vector<Digest> step(keys.begin() + static_cast<ptrdiff_t>(at),
                               keys.begin() + static_cast<ptrdiff_t>(std::min(keys.size(), at + kLookupStep)));
      for (const LocatedBlock& located : store->Locate(ns->id, step, least)) {
        whole = located.state == BlockState::kPresent;
        if (!whole) break;
        FromLocated(located, response->add_blocks());
        response->set_prefix_tokens(response->prefix_tokens() + located.tokens);
      }
    }
    if (whole && !unreadable.ok()) FromStatus(unreadable, response->mutable_stopped());
    response->set_prefix_blocks(static_cast<uint32_t>(response->blocks_size()));
    if (request->has_tokens()) {
      for (int i = 0; i < response->blocks_size(); ++i) response->add_keys(BytesOf(keys[static_cast<size_t>(i)]));
    }
    return absl::OkStatus();
  });
}

KvService::Unary* KvService::Exists(Context* context, const v1::ExistsRequest* request, v1::ExistsResponse* response) {
  return Answer(core_, context, Method::kExists, [=, this](Store* store) -> absl::Status {
    FIRN_ASSIGN_OR_RETURN(NamespacePtr ns, Namespace(store, request->namespace_fingerprint()));
    FIRN_ASSIGN_OR_RETURN(ClassPair least, ToClassPair(request->least(), "least"));
    FIRN_RETURN_IF_ERROR(CheckBatch(request->keys_size()));
    KeyBatch batch = ToKeys(request->keys());
    std::vector<LocatedBlock> located = store->Locate(ns->id, Readable(batch), least);
    size_t next = 0;
    for (const absl::Status& status : batch.statuses) {
      v1::Located* out = response->add_blocks();
      if (status.ok()) {
        FromLocated(located[next++], out);
      } else {
        FromStatus(status, out->mutable_status());
      }
    }
    return absl::OkStatus();
  });
}

KvService::Unary* KvService::List(Context* context, const v1::ListRequest* request, v1::ListResponse* response) {
  return Answer(core_, context, Method::kList, [=, this](Store* store) -> absl::Status {
    FIRN_ASSIGN_OR_RETURN(NamespacePtr ns, Namespace(store, request->namespace_fingerprint()));
    uint32_t limit = request->limit() == 0 ? std::min(kListDefault, core_->limits().keys_max) : request->limit();
    if (limit > core_->limits().keys_max) {
      return InvalidArgument("limit = {}; limits.keys is {}", limit, core_->limits().keys_max);
    }
    std::optional<Digest> after;
    if (!request->after().empty()) {
      after = Digest::FromBytes(AsBytes(request->after()));
      if (!after.has_value()) return InvalidArgument("after has {} bytes; a digest has 32", request->after().size());
    }
    for (const BlockInfo& info : store->List(ns->id, after, limit, kDescribedBytesMax)) {
      FromBlockInfo(info, response->add_blocks());
    }
    return absl::OkStatus();
  });
}

KvService::Unary* KvService::Describe(Context* context, const v1::DescribeRequest* request,
                                      v1::DescribeResponse* response) {
  // Half of the time that the caller waits is for reading headers: the answer is to arrive without them otherwise.
  int64_t now_ns = core_->clock()->NowNs();
  int64_t patience_ns = DeadlineNs(*context, *core_->clock(), core_->limits().read_deadline_ms) - now_ns;
  return AnswerLater(core_, context, Method::kDescribe, [=, this](Store* store, UnaryDone done) mutable {
    auto ns = Namespace(store, request->namespace_fingerprint());
    if (!ns.ok()) return done(ns.status());
    absl::Status fits = CheckBatch(request->keys_size());
    if (!fits.ok()) return done(fits);
    KeyBatch batch = ToKeys(request->keys());
    const uint64_t batch_size = batch.statuses.size();
    std::vector<Digest> readable = Readable(batch);
    auto answer = [response, statuses = std::move(batch.statuses),
                   done = std::move(done)](std::vector<Store::Description> described) mutable {
      size_t next = 0;
      for (const absl::Status& status : statuses) {
        Store::Description shards = status.ok() ? std::move(described[next++]) : Store::Description(status);
        auto* out = response->add_answers();
        FromStatus(shards.status(), out->mutable_status());
        if (!shards.ok()) continue;
        for (const BlockInfo& info : *shards) FromBlockInfo(info, out->add_shards());
      }
      done(absl::OkStatus());
    };
    store->DescribeWithErrors((*ns)->id, readable, now_ns + patience_ns / 2, DescribedBytesMax(batch_size),
                              std::move(answer));
  });
}

KvService::Unary* KvService::Prefetch(Context* context, const v1::PrefetchRequest* request,
                                      v1::BatchResponse* response) {
  return AnswerLater(core_, context, Method::kPrefetch, [=, this](Store* store, UnaryDone done) mutable {
    auto ns = Namespace(store, request->namespace_fingerprint());
    if (!ns.ok()) return done(ns.status());
    auto least = ToClassPair(request->least(), "least");
    if (!least.ok()) return done(least.status());
    absl::Status fits = CheckBatch(request->keys_size());
    if (!fits.ok()) return done(fits);
    KeyBatch batch = ToKeys(request->keys());
    std::vector<Digest> readable = Readable(batch);
    store->Prefetch((*ns)->id, readable, *least,
                    [response, statuses = std::move(batch.statuses),
                     done = std::move(done)](std::vector<absl::Status> arrived) mutable {
                      size_t next = 0;
                      for (const absl::Status& status : statuses) {
                        FromStatus(status.ok() && next < arrived.size() ? arrived[next++] : status,
                                   response->add_statuses());
                      }
                      done(absl::OkStatus());
                    });
  });
}

KvService::Unary* KvService::Pin(Context* context, const v1::PinRequest* request, v1::BatchResponse* response) {
  return Answer(core_, context, Method::kPin, [=, this](Store* store) -> absl::Status {
    FIRN_ASSIGN_OR_RETURN(NamespacePtr ns, Namespace(store, request->namespace_fingerprint()));
    FIRN_ASSIGN_OR_RETURN(auto session, core_->sessions().Find(request->session(), caller_.tenant));
    FIRN_RETURN_IF_ERROR(CheckBatch(request->keys_size()));
    EachKey(request->keys(), response, [&](const Digest& key) { return store->Pin(ns->id, key, session->id()); });
    return absl::OkStatus();
  });
}

KvService::Unary* KvService::Unpin(Context* context, const v1::PinRequest* request, v1::BatchResponse* response) {
  return Answer(core_, context, Method::kUnpin, [=, this](Store* store) -> absl::Status {
    FIRN_ASSIGN_OR_RETURN(NamespacePtr ns, Namespace(store, request->namespace_fingerprint()));
    FIRN_ASSIGN_OR_RETURN(auto session, core_->sessions().Find(request->session(), caller_.tenant));
    FIRN_RETURN_IF_ERROR(CheckBatch(request->keys_size()));
    EachKey(request->keys(), response, [&](const Digest& key) { return store->Unpin(ns->id, key, session->id()); });
    return absl::OkStatus();
  });
}

KvService::Unary* KvService::Touch(Context* context, const v1::TouchRequest* request, v1::BatchResponse* response) {
  return Answer(core_, context, Method::kTouch, [=, this](Store* store) -> absl::Status {
    FIRN_ASSIGN_OR_RETURN(NamespacePtr ns, Namespace(store, request->namespace_fingerprint()));
    FIRN_RETURN_IF_ERROR(CheckBatch(request->hints_size()));
    for (const auto& hint : request->hints()) {
      auto key = ToKey(hint.key(), "key");
      absl::Status status = key.status();
      if (status.ok() && !(std::abs(hint.importance()) <= 1)) {
        status = InvalidArgument("importance = {}; allowed: -1 to 1", hint.importance());
      }
      if (status.ok()) {
        status = store->Touch(ns->id, *key,
                              {.importance = hint.importance(),
                               .live_sequence = hint.live_sequence(),
                               .token_importance = {hint.token_importance().begin(), hint.token_importance().end()}});
      }
      FromStatus(status, response->add_statuses());
    }
    return absl::OkStatus();
  });
}

KvService::Unary* KvService::Delete(Context* context, const v1::DeleteRequest* request, v1::BatchResponse* response) {
  return AnswerLater(core_, context, Method::kDelete, [=, this](Store* store, UnaryDone done) mutable {
    auto ns = Namespace(store, request->namespace_fingerprint());
    absl::Status refused = ns.ok() ? CheckBatch(request->keys_size()) : ns.status();
    if (!refused.ok()) return done(refused);
    EachKey(request->keys(), response, [&](const Digest& key) { return store->Delete((*ns)->id, key); });
    store->SyncRemovals(std::move(done));
  });
}

KvService::Unary* KvService::Flush(Context* context, const v1::FlushRequest* request, v1::FlushResponse*) {
  return AnswerLater(core_, context, Method::kFlush, [=, this](Store* store, UnaryDone done) mutable {
    auto ns = Namespace(store, request->namespace_fingerprint());
    if (!ns.ok()) return done(ns.status());
    store->Flush((*ns)->id, std::move(done));
  });
}

}  // namespace firn
