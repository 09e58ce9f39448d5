#include "daemon/payload/begun_put.h"

#include <utility>

namespace firn {

void BeginOrder(Store* store, ByteBudget* budget, PutOrder order, int64_t now_ns, int64_t deadline_ns, BeginDone done) {
  PutSpec spec = order.spec;
  auto begun = [=, plan = std::move(order.plan),
                done = std::move(done)](absl::StatusOr<std::unique_ptr<InFlightPut>> put) mutable {
    if (put.status().code() == absl::StatusCode::kAlreadyExists && spec.ack == AckLevel::kDurable) {
      auto ensured = [=, plan = std::move(plan), done = std::move(done)](absl::StatusOr<PutResult> result) mutable {
        // It went in the meantime: now it is a put like any other.
        if (absl::IsNotFound(result.status())) {
          return BeginOrder(store, budget, {spec, std::move(plan)}, now_ns, deadline_ns, std::move(done));
        }
        if (!result.ok()) return done(result.status());
        BegunPut out;
        out.existing = *result;
        done(std::move(out));
      };
      return store->EnsureDurable(spec.address, std::move(ensured));
    }
    if (!put.ok()) return done(put.status());
    if (plan.StagingBytes() == 0) {
      BegunPut out;
      out.put = *std::move(put);
      out.sink = std::make_unique<PayloadSink>(std::move(plan), out.put->runs());
      return done(std::move(out));
    }
    uint64_t bytes = plan.StagingBytes();
    budget->Acquire(bytes, [plan = std::move(plan), put = *std::move(put),
                            done = std::move(done)](absl::StatusOr<std::unique_ptr<ByteBudget::Grant>> grant) mutable {
      if (!grant.ok()) return done(grant.status());
      BegunPut out;
      out.staging = *std::move(grant);
      out.put = std::move(put);
      out.sink = std::make_unique<PayloadSink>(std::move(plan), out.put->runs());
      done(std::move(out));
    });
  };
  if (deadline_ns <= now_ns) return begun(store->BeginPut(spec));
  store->BeginPutWhenRoom(spec, deadline_ns, std::move(begun));
}

void CommitBegun(Store* store, BegunPut begun, absl::AnyInvocable<void(absl::StatusOr<PutResult>)> done) {
  absl::Status placed = begun.sink->Finish();
  if (!placed.ok()) return done(placed);
  begun.sink.reset();
  begun.staging.reset();
  store->CommitPut(std::move(begun.put), std::move(done));
}

}  // namespace firn
