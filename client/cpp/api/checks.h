// What the client refuses by itself, before a byte is sent: it knows the shapes and the daemon's limits. Messages name
// the value and the limit. Threads: pure functions.
#pragma once

#include "absl/status/status.h"
#include "firnkv/blocks.h"
#include "firnkv/types.h"

namespace firnkv {

absl::Status CheckKey(const BlockKey& key);
absl::Status CheckPut(const Namespace& ns, const Limits& limits, const PutItem& item);
// Without looking at parts: for leases, which are filled later.
absl::Status CheckBlock(const Namespace& ns, const Limits& limits, const PutItem& item);
absl::Status CheckGet(const Namespace& ns, const GetItem& item);
// The payload that a put of this block has.
uint64_t PayloadBytes(const Namespace& ns, const PutItem& item);

}  // namespace firnkv
