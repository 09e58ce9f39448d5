// Puts in three steps: space is leased, filled through a byte path, and committed.
#include <memory>

#include "base/status.h"
#include "daemon/core/convert.h"
#include "daemon/rpc/countdown.h"
#include "daemon/rpc/kv_service.h"

namespace firn {
namespace {

absl::Status CheckExtent(const v1::Extent& extent, const CallerIdentity& caller) {
  switch (extent.place_case()) {
    case v1::Extent::kSharedRegion:
      return FailedPrecondition("extent shared_region is not offered by this daemon; offered: inline, gpu_handle");
    case v1::Extent::kGpuHandle:
      return CheckLocal(caller);
    default:
      return absl::OkStatus();
  }
}

}  // namespace

KvService::Unary* KvService::BeginPut(Context* context, const v1::BeginPutRequest* request,
                                      v1::BeginPutResponse* response) {
  int64_t wait_ms = std::min<int64_t>(core_->limits().put_idle_ms,
                                      static_cast<int64_t>(std::min<uint64_t>(request->wait_ms(), 1u << 30)));
  int64_t deadline_ns = DeadlineNs(*context, *core_->clock(), wait_ms);
  return AnswerLater(core_, context, Method::kBeginPut, [=, this](Store* store, UnaryDone done) mutable {
    auto ns = Namespace(store, request->namespace_fingerprint());
    if (!ns.ok()) return done(ns.status());
    auto session = core_->sessions().Find(request->session(), caller_.tenant);
    if (!session.ok()) return done(session.status());
    absl::Status fits = CheckBatch(request->blocks_size());
    if (fits.ok()) fits = CheckExtent(request->extent(), caller_);
    if (!fits.ok()) return done(fits);
    const bool from_device = request->extent().has_gpu_handle();
    const uint64_t turn = store->NewTurn();
    v1::Extent extent;
    if (from_device) {
      extent.mutable_gpu_handle();
    } else {
      extent.mutable_inline_();
    }
    // All answers have their place before the first one is given: they may come from any thread.
    for (int i = 0; i < request->blocks_size(); ++i) response->add_leases();
    auto countdown = std::make_shared<Countdown>(static_cast<size_t>(request->blocks_size()) + 1, std::move(done));
    for (int i = 0; i < request->blocks_size(); ++i) {
      v1::Lease* lease = response->mutable_leases(i);
      auto order = CheckPut(request->blocks(i), **ns, (*session)->id(), core_->limits());
      if (order.ok() && order->plan.StagingBytes() > core_->transport().capacity_bytes()) {
        order = ResourceExhausted("layout.payload_bytes = {}; half of limits.transport_budget, {} bytes, is for them",
                                  order->plan.StagingBytes(), core_->transport().capacity_bytes());
      }
      if (!order.ok()) {
        FromStatus(order.status(), lease->mutable_status());
        countdown->Part();
        continue;
      }
      lease->set_payload_bytes(order->plan.TotalBytes());
      order->spec.from_device = from_device;
      order->spec.turn = turn;
      int64_t now_ns = core_->clock()->NowNs();
      BeginOrder(store, *std::move(order), now_ns, wait_ms == 0 ? 0 : deadline_ns,
                 [this, lease, extent, session = *session, countdown](absl::StatusOr<BegunPut> begun) {
                   if (begun.ok() && begun->existing.has_value()) begun = AlreadyExists("the block is there, durable");
                   absl::StatusOr<uint64_t> number =
                       begun.ok() ? session->AddLease({*std::move(begun)}, core_->clock()->NowNs())
                                  : absl::StatusOr<uint64_t>(begun.status());
                   FromStatus(number.status(), lease->mutable_status());
                   if (number.ok()) {
                     lease->set_lease(*number);
                     *lease->mutable_extent() = extent;
                   }
                   countdown->Part();
                 });
    }
    countdown->Part();
  });
}

KvService::Unary* KvService::CommitPut(Context* context, const v1::CommitPutRequest* request,
                                       v1::CommitPutResponse* response) {
  return AnswerLater(core_, context, Method::kCommitPut, [=, this](Store* store, UnaryDone done) mutable {
    auto session = core_->sessions().Find(request->session(), caller_.tenant);
    if (!session.ok()) return done(session.status());
    absl::Status fits = CheckBatch(request->leases_size());
    if (!fits.ok()) return done(fits);
    for (int i = 0; i < request->leases_size(); ++i) response->add_results()->set_index(static_cast<uint32_t>(i));
    auto countdown = std::make_shared<Countdown>(static_cast<size_t>(request->leases_size()) + 1, std::move(done));
    for (int i = 0; i < request->leases_size(); ++i) {
      v1::PutResponse* result = response->mutable_results(i);
      auto lease = (*session)->TakeLease(request->leases(i));
      if (lease.ok() && !lease->begun.filled) {
        (*session)->PutBack(request->leases(i), *std::move(lease), core_->clock()->NowNs());
        lease = FailedPrecondition("lease {} lacks payload; fill it through a Put stream first", request->leases(i));
      }
      if (!lease.ok()) {
        FromPutResult(lease.status(), result);
        countdown->Part();
        continue;
      }
      (*session)->PutBack(request->leases(i), {}, 0);  // It is no lease any more.
      CommitBegun(store, std::move(lease->begun), [result, countdown](absl::StatusOr<PutResult> committed) {
        FromPutResult(committed, result);
        countdown->Part();
      });
    }
    countdown->Part();
  });
}

KvService::Unary* KvService::AbortPut(Context* context, const v1::AbortPutRequest* request,
                                      v1::AbortPutResponse* response) {
  return Answer(core_, context, Method::kAbortPut, [=, this](Store*) -> absl::Status {
    FIRN_ASSIGN_OR_RETURN(auto session, core_->sessions().Find(request->session(), caller_.tenant));
    FIRN_RETURN_IF_ERROR(CheckBatch(request->leases_size()));
    for (uint64_t number : request->leases()) {
      auto lease = session->TakeLease(number);
      FromStatus(lease.status(), response->add_statuses());
      if (lease.ok()) session->PutBack(number, {}, 0);
    }
    return absl::OkStatus();
  });
}

}  // namespace firn
