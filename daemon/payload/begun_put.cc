#include "daemon/payload/begun_put.h"

#include <utility>

namespace firn {

void BeginOrder(Store* store, PutOrder order, int64_t now_ns, int64_t deadline_ns, BeginDone done) {
  PutSpec spec = order.spec;
  auto begun = [=, plan = std::move(order.plan),
                done = std::move(done)](absl::StatusOr<std::unique_ptr<InFlightPut>> put) mutable {
    if (put.status().code() == absl::StatusCode::kAlreadyExists && spec.ack == AckLevel::kDurable) {
      auto ensured = [=, plan = std::move(plan), done = std::move(done)](absl::StatusOr<PutResult> result) mutable {
        // It went in the meantime: now it is a put like any other.
        if (absl::IsNotFound(result.status())) {
          return BeginOrder(store, {spec, std::move(plan)}, now_ns, deadline_ns, std::move(done));
        }
        if (!result.ok()) return done(result.status());
        BegunPut out;
        out.existing = *result;
        done(std::move(out));
      };
      return store->EnsureDurable(spec.address, std::move(ensured));
    }
    if (!put.ok()) return done(put.status());
    BegunPut out;
    out.plan = std::move(plan);
    out.put = *std::move(put);
    done(std::move(out));
  };
  if (deadline_ns <= now_ns) return begun(store->BeginPut(spec));
  store->BeginPutWhenRoom(spec, deadline_ns, std::move(begun));
}

void PrepareSink(ByteBudget* budget, BegunPut begun, BeginDone done) {
  auto prepare = [](BegunPut* out) {
    out->sink = std::make_unique<PayloadSink>(std::move(out->plan), out->put->runs());
  };
  uint64_t bytes = begun.plan.StagingBytes();
  if (bytes == 0) {
    prepare(&begun);
    return done(std::move(begun));
  }
  budget->Acquire(bytes, [prepare, begun = std::move(begun),
                          done = std::move(done)](absl::StatusOr<std::unique_ptr<ByteBudget::Grant>> grant) mutable {
    if (!grant.ok()) return done(grant.status());
    begun.staging = *std::move(grant);
    prepare(&begun);
    done(std::move(begun));
  });
}

absl::Status PlacePayload(BegunPut* begun) {
  absl::Status placed = begun->sink->Finish();
  begun->sink.reset();
  begun->staging.reset();
  begun->filled = placed.ok();
  return placed;
}

void CommitBegun(Store* store, BegunPut begun, absl::AnyInvocable<void(absl::StatusOr<PutResult>)> done) {
  if (!begun.filled) {
    absl::Status placed = PlacePayload(&begun);
    if (!placed.ok()) return done(placed);
  }
  store->CommitPut(std::move(begun.put), std::move(done));
}

}  // namespace firn
