// Calls by method: counted when they arrive and when they end without success, and timed.
//
// Threads: any.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

#include "base/latency.h"

namespace firn {

enum class Method : uint8_t {
  kRegisterNamespace,
  kDescribeNamespace,
  kListNamespaces,
  kPutArtifact,
  kPut,
  kBeginPut,
  kCommitPut,
  kAbortPut,
  kFillFromDevice,
  kGetToDevice,
  kGet,
  kLookup,
  kExists,
  kList,
  kDescribe,
  kPrefetch,
  kPin,
  kUnpin,
  kTouch,
  kDelete,
  kFlush,
  kSession,
  kWatch,
  kStats,
  kCapabilities,
  kClear,
  kDemote,
  kPromote,
  kDegrade,
  kRemoveNamespace,
  kSetCapacity,
  kVerify,
  kScrub,
};
inline constexpr size_t kMethods = static_cast<size_t>(Method::kScrub) + 1;
inline constexpr std::array<std::string_view, kMethods> kMethodNames = {"RegisterNamespace",
                                                                        "DescribeNamespace",
                                                                        "ListNamespaces",
                                                                        "PutArtifact",
                                                                        "Put",
                                                                        "BeginPut",
                                                                        "CommitPut",
                                                                        "AbortPut",
                                                                        "FillFromDevice",
                                                                        "GetToDevice",
                                                                        "Get",
                                                                        "Lookup",
                                                                        "Exists",
                                                                        "List",
                                                                        "Describe",
                                                                        "Prefetch",
                                                                        "Pin",
                                                                        "Unpin",
                                                                        "Touch",
                                                                        "Delete",
                                                                        "Flush",
                                                                        "Session",
                                                                        "Watch",
                                                                        "Stats",
                                                                        "Capabilities",
                                                                        "Clear",
                                                                        "Demote",
                                                                        "Promote",
                                                                        "Degrade",
                                                                        "RemoveNamespace",
                                                                        "SetCapacity",
                                                                        "Verify",
                                                                        "Scrub"};

// Streams that clients keep open: how long says nothing.
inline constexpr bool IsTimed(Method method) { return method != Method::kSession && method != Method::kWatch; }

struct RpcCounters {
  std::array<std::atomic<uint64_t>, kMethods> calls{};
  std::array<std::atomic<uint64_t>, kMethods> failures{};  // Ended with a status that is not OK.
  std::atomic<uint64_t> stalled_streams{0};                // Ended because the client had stopped.
  std::atomic<uint64_t> expired_leases{0};                 // Half-made puts ended by put_idle.
  std::atomic<uint64_t> received_payload_bytes{0};
  std::atomic<uint64_t> sent_payload_bytes{0};

  // From arrival to answer. Put: a block or a lease, from the message that begins it to its outcome. Get: a block, from
  // the request that asks for it to its last byte's being handed to the transport, those before it in the batch
  // included.
  std::array<LatencyHistogram, kMethods> latency;

  void Took(Method method, int64_t elapsed_ns) { latency[static_cast<size_t>(method)].Add(elapsed_ns); }
  void Count(Method method) { calls[static_cast<size_t>(method)].fetch_add(1, std::memory_order_relaxed); }
  void Failed(Method method) { failures[static_cast<size_t>(method)].fetch_add(1, std::memory_order_relaxed); }
};

}  // namespace firn
