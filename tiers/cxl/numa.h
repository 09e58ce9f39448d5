// NUMA placement; the project's one user of libnuma.
//
// Threads: any. On a machine or in a container without NUMA calls every function answers with an error that says so.
// Errors: NotFound for a node that is not there (the message lists those that are), FailedPrecondition for memory that
// lies elsewhere, errno kept for refused calls.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace firn {

// The nodes that have memory.
absl::StatusOr<std::vector<int>> MemoryNodes();

// OK when `node` has memory.
absl::Status CheckMemoryNode(int node);

// Binds the pages of a mapping to `node`: those not there yet will be taken from it, and from nowhere else.
// Page-aligned.
absl::Status BindToNode(void* address, uint64_t bytes, int node);

// OK when populated memory lies on `node`: looks at one page in every `stride_bytes`, and at the last.
absl::Status VerifyOnNode(const void* address, uint64_t bytes, int node, uint64_t stride_bytes);

}  // namespace firn
