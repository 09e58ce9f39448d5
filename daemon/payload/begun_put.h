// A put that has its space and waits for its payload: in a Put stream, or as a lease of a session. Or one that needs no
// payload, since a durable acknowledgement was asked for and the block is there: then it only has `existing`.
//
// Staging memory, which a layout needs beside the runs, is held from the first byte of the payload to the last and no
// longer: a lease that nobody fills, or that is filled and waits for its commit, has none. So what holds it is always a
// stream, which StreamWatchdog can end.
//
// Threads: not safe. Ownership: the sink borrows the put's runs; destroying a BegunPut aborts the put.
#pragma once

#include <memory>
#include <optional>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "daemon/core/byte_budget.h"
#include "daemon/payload/payload_sink.h"
#include "tiers/store/store.h"

namespace firn {

struct BegunPut {
  std::optional<PutResult> existing;
  PayloadPlan plan;                            // Until the sink has it.
  std::unique_ptr<ByteBudget::Grant> staging;  // With the sink, where a layout needs memory beside the runs.
  std::unique_ptr<InFlightPut> put;
  std::unique_ptr<PayloadSink> sink;  // From PrepareSink to PlacePayload.
  bool filled = false;                // The payload is in place.
};

// What a client asked for, checked: nothing in it breaks a limit.
struct PutOrder {
  PutSpec spec;
  PayloadPlan plan;
};

using BeginDone = absl::AnyInvocable<void(absl::StatusOr<BegunPut>)>;

// Reserves space, waiting for it until `deadline_ns`. A block that is there already is AlreadyExists, or is made
// durable first where that was asked for.
void BeginOrder(Store* store, PutOrder order, int64_t now_ns, int64_t deadline_ns, BeginDone done);

// Makes ready for the payload: staging memory where the plan needs it, waited for, and the sink.
void PrepareSink(ByteBudget* budget, BegunPut begun, BeginDone done);

// The payload is complete: staged bytes go to their place, and the staging memory back.
absl::Status PlacePayload(BegunPut* begun);

// Commits. The payload must be complete; it is put in place where that has not been done.
void CommitBegun(Store* store, BegunPut begun, absl::AnyInvocable<void(absl::StatusOr<PutResult>)> done);

}  // namespace firn
