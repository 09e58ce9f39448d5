#include "daemon/rpc/admin_service.h"

#include <atomic>
#include <memory>
#include <utility>

#include "base/status.h"
#include "base/units.h"
#include "daemon/core/convert.h"

namespace firn {
namespace {

using MoveDone = absl::AnyInvocable<void(absl::StatusOr<ClassPair>)>;

// The keys of one request, moved one after the other: a demotion of many blocks takes no more memory than one.
template <typename Move>
class MoveBatch : public std::enable_shared_from_this<MoveBatch<Move>> {
 public:
  MoveBatch(KeyBatch keys, v1::MoveResponse* response, Executor* executor, Move move, UnaryDone done)
      : keys_(std::move(keys)),
        response_(response),
        executor_(executor),
        move_(std::move(move)),
        done_(std::move(done)) {}

  void Next() {
    if (at_ == keys_.keys.size()) return done_(absl::OkStatus());
    size_t index = at_++;
    if (!keys_.statuses[index].ok()) return Answer(keys_.statuses[index]);
    move_(keys_.keys[index], [self = this->shared_from_this()](absl::StatusOr<ClassPair> now) { self->Answer(now); });
  }

 private:
  void Answer(const absl::StatusOr<ClassPair>& now) {
    auto* answer = response_->add_answers();
    FromStatus(now.status(), answer->mutable_status());
    if (now.ok()) FromClassPair(*now, answer->mutable_now());
    // Through the executor, so that a long batch does not become a deep stack.
    executor_->Post([self = this->shared_from_this()] { self->Next(); });
  }

  const KeyBatch keys_;
  v1::MoveResponse* const response_;
  Executor* const executor_;
  Move move_;
  UnaryDone done_;
  size_t at_ = 0;
};

}  // namespace

AdminService::AdminService(ServiceCore* core, CallerIdentity caller) : core_(core), caller_(std::move(caller)) {
  Check(core, Method::kClear, &AdminService::Clear);
  Check(core, Method::kDemote, &AdminService::Demote);
  Check(core, Method::kPromote, &AdminService::Promote);
  Check(core, Method::kDegrade, &AdminService::Degrade);
  Check(core, Method::kSetCapacity, &AdminService::SetCapacity);
  Check(core, Method::kRemoveNamespace, &AdminService::RemoveNamespace);
  Check(core, Method::kVerify, &AdminService::Verify);
  Check(core, Method::kScrub, &AdminService::Scrub);
}

absl::StatusOr<uint8_t> AdminService::TierByName(const std::string& name) const {
  std::string names;
  for (size_t i = 0; i < core_->tiers().size(); ++i) {
    if (core_->tiers()[i].name == name) return static_cast<uint8_t>(i);
    names += (i == 0 ? "" : ", ") + core_->tiers()[i].name;
  }
  return InvalidArgument("tier = \"{}\"; allowed: {}", name, names);
}

AdminService::Unary* AdminService::Clear(Context* context, const v1::ClearRequest* request,
                                         v1::ClearResponse* response) {
  return AnswerLater(core_, context, Method::kClear, [=, this](Store* store, UnaryDone done) mutable {
    Store::ClearScope scope;
    if (!request->namespace_fingerprint().empty()) {
      auto ns = core_->FindNamespace(store, request->namespace_fingerprint(), caller_.tenant);
      if (!ns.ok()) return done(ns.status());
      scope.ns = (*ns)->id;
    }
    if (!request->tier().empty()) {
      auto tier = TierByName(request->tier());
      if (!tier.ok()) return done(tier.status());
      scope.tier = *tier;
    }
    response->set_copies_removed(store->Clear(scope));
    store->SyncRemovals(std::move(done));
  });
}

template <typename Request, typename Move>
AdminService::Unary* AdminService::MoveEach(Context* context, Method method, const Request* request,
                                            v1::MoveResponse* response, Move move) {
  return AnswerLater(
      core_, context, method, [this, request, response, move = std::move(move)](Store* store, UnaryDone done) mutable {
        auto ns = core_->FindNamespace(store, request->namespace_fingerprint(), caller_.tenant);
        if (!ns.ok()) return done(ns.status());
        auto tier = TierByName(request->tier());
        if (!tier.ok()) return done(tier.status());
        if (static_cast<uint32_t>(request->keys_size()) > core_->limits().keys_max) {
          return done(
              InvalidArgument("{} keys in a batch; limits.keys is {}", request->keys_size(), core_->limits().keys_max));
        }
        auto one = [store, ns = (*ns)->id, tier = *tier, move = std::move(move)](const Digest& key, MoveDone moved) {
          move(store, ns, key, tier, std::move(moved));
        };
        auto batch = std::make_shared<MoveBatch<decltype(one)>>(ToKeys(request->keys()), response, core_->executor(),
                                                                std::move(one), std::move(done));
        batch->Next();
      });
}

AdminService::Unary* AdminService::Demote(Context* context, const v1::MoveRequest* request,
                                          v1::MoveResponse* response) {
  return MoveEach(context, Method::kDemote, request, response,
                  [](Store* store, NamespaceId ns, const Digest& key, uint8_t tier, MoveDone done) {
                    store->Demote(ns, key, tier, std::move(done));
                  });
}

AdminService::Unary* AdminService::Promote(Context* context, const v1::MoveRequest* request,
                                           v1::MoveResponse* response) {
  return MoveEach(context, Method::kPromote, request, response,
                  [](Store* store, NamespaceId ns, const Digest& key, uint8_t tier, MoveDone done) {
                    store->Promote(ns, key, tier, std::move(done));
                  });
}

AdminService::Unary* AdminService::Degrade(Context* context, const v1::DegradeRequest* request,
                                           v1::MoveResponse* response) {
  return MoveEach(context, Method::kDegrade, request, response,
                  [request](Store* store, NamespaceId ns, const Digest& key, uint8_t tier, MoveDone done) {
                    auto target = ToClassPair(request->target(), "target");
                    if (!target.ok()) return done(target.status());
                    store->Degrade(ns, key, tier, *target, std::move(done));
                  });
}

AdminService::Unary* AdminService::RemoveNamespace(Context* context, const v1::RemoveNamespaceRequest* request,
                                                   v1::RemoveNamespaceResponse* response) {
  return AnswerLater(core_, context, Method::kRemoveNamespace, [=, this](Store* store, UnaryDone done) mutable {
    auto ns = core_->FindNamespace(store, request->namespace_fingerprint(), caller_.tenant);
    if (!ns.ok()) return done(ns.status());
    store->RemoveNamespace((*ns)->id, [response, done = std::move(done)](absl::StatusOr<uint64_t> copies) mutable {
      if (copies.ok()) response->set_copies_removed(*copies);
      done(copies.status());
    });
    core_->ForgetNamespace(**ns);
  });
}

AdminService::Unary* AdminService::SetCapacity(Context* context, const v1::SetCapacityRequest* request,
                                               v1::SetCapacityResponse* response) {
  return Answer(core_, context, Method::kSetCapacity, [=, this](Store* store) -> absl::Status {
    FIRN_ASSIGN_OR_RETURN(uint8_t tier, TierByName(request->tier()));
    FIRN_RETURN_IF_ERROR(store->SetCapacity(tier, request->capacity_bytes()));
    response->set_capacity_bytes(store->tier(tier).tier->Usage().capacity_bytes);
    return absl::OkStatus();
  });
}

AdminService::Unary* AdminService::Verify(Context* context, const v1::VerifyRequest*, v1::VerifyResponse* response) {
  return Answer(core_, context, Method::kVerify, [=](Store* store) {
    AuditReport report = store->Audit();
    response->set_consistent(report.consistent);
    for (const std::string& finding : report.findings) response->add_findings(finding);
    return absl::OkStatus();
  });
}

AdminService::Unary* AdminService::Scrub(Context* context, const v1::ScrubRequest* request,
                                         v1::ScrubResponse* response) {
  return AnswerLater(core_, context, Method::kScrub, [=](Store* store, UnaryDone done) mutable {
    store->Scrub(request->bytes_per_second(),
                 [response, done = std::move(done)](absl::StatusOr<ScrubReport> report) mutable {
                   if (!report.ok()) return done(report.status());
                   response->set_copies(report->copies);
                   response->set_bytes(report->bytes);
                   response->set_mended(report->mended);
                   response->set_degraded(report->degraded);
                   response->set_withdrawn(report->withdrawn);
                   response->set_unread(report->unread);
                   response->set_milliseconds(report->milliseconds);
                   done(absl::OkStatus());
                 });
  });
}

}  // namespace firn
