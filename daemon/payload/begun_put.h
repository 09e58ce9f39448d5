// A put that has its space and waits for its payload: in a Put stream, or as a lease of a session. Or one that needs no
// payload, since a durable acknowledgement was asked for and the block is there: then it only has `existing`.
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
  std::unique_ptr<ByteBudget::Grant> staging;  // Where a layout needs memory beside the runs.
  std::unique_ptr<InFlightPut> put;
  std::unique_ptr<PayloadSink> sink;
};

// What a client asked for, checked: nothing in it breaks a limit.
struct PutOrder {
  PutSpec spec;
  PayloadPlan plan;
};

using BeginDone = absl::AnyInvocable<void(absl::StatusOr<BegunPut>)>;

// Reserves space, waiting for it until `deadline_ns`; then staging memory where the plan needs it. A block that is
// there already is AlreadyExists, or is made durable first where that was asked for.
void BeginOrder(Store* store, ByteBudget* budget, PutOrder order, int64_t now_ns, int64_t deadline_ns, BeginDone done);

// Puts staged bytes in place and commits. The payload must be complete.
void CommitBegun(Store* store, BegunPut begun, absl::AnyInvocable<void(absl::StatusOr<PutResult>)> done);

}  // namespace firn
