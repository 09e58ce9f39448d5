// The client of a FirnKV daemon.
//
// Threads: a Client is safe from any thread; calls run concurrently. Completions of *Async calls run on a thread of the
// client: they must not block and must not destroy the client. Ownership: copies nothing of a payload; see blocks.h.
// Destroying the client cancels what is in flight and waits for it. Errors: absl::Status with the daemon's words. A
// call fails as a whole only when it could not be made; batches answer with one status a key. NOT_FOUND is a miss.
// UNAVAILABLE: no daemon there, or it is starting or stopping. DEADLINE_EXCEEDED: every call has a deadline
// (ClientOptions, CallOptions). FAILED_PRECONDITION after fork(): gRPC does not survive a fork, so a child makes its
// own client, and only where the parent had none; it never hangs.
// Retries: calls that change nothing, or change the same thing twice, are tried again on UNAVAILABLE with growing
// pauses, at most ClientOptions::attempts_max times and never past the deadline. Put is one of them, since blocks are
// immutable under their key.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "firnkv/blocks.h"
#include "firnkv/device.h"
#include "firnkv/types.h"

namespace firnkv {

class Session;
class WatchStream;

struct ClientOptions {
  // "unix:/path", an absolute path, or "host:port". Empty: $FIRN_SOCKET, or else the user's own
  // daemon ($XDG_RUNTIME_DIR/firnkv/firnd.sock) where there is one, or else the machine's, /run/firnkv/firnd.sock.
  std::string address = {};
  int64_t deadline_ms = 10'000;       // Of calls that carry no payload.
  int64_t data_deadline_ms = 60'000;  // Of Put, Get, Prefetch and Flush.
  int attempts_max = 4;               // 1: no retries. At most 5.
};

struct CallOptions {
  int64_t deadline_ms = 0;  // 0: as in ClientOptions.
};

struct PutOptions {
  int64_t deadline_ms = 0;  // 0: ClientOptions::data_deadline_ms.
  uint64_t ttl_ms = 0;      // 0: no expiry.
  AckLevel ack = AckLevel::kMemory;
  // Ask first whether a block is wanted, and send its payload only then: one round trip a block for less traffic where
  // blocks are often there already. Without it, an upload stops as soon as the daemon says that it needs no more.
  bool announce = false;
  uint32_t chunk_bytes = 0;  // Largest message; 0: what the daemon prefers.
  const Session* session = nullptr;
};

struct GetOptions {
  int64_t deadline_ms = 0;  // 0: ClientOptions::data_deadline_ms.
  Representation representation = Representation::kSource;
  PrecisionPair least = {};  // kNone: any.
  PrecisionPair most{Precision::kExact, Precision::kExact};
  uint32_t layer_first = 0;  // Relative to the namespace's first layer.
  uint32_t layer_count = 0;  // 0: to the last.
  std::optional<Layout> layout = {};
  uint32_t chunk_bytes = 0;
  const Session* session = nullptr;
};

struct MoveAnswer {
  absl::Status status = {};
  PrecisionPair now = {};  // The class of the copy in that tier.
};

struct VerifyReport {
  bool consistent = false;
  std::vector<std::string> findings = {};
};

struct ScrubReport {
  uint64_t copies = 0, bytes = 0;  // Read and verified.
  uint64_t mended = 0;             // Damaged, and written anew whole: by error correction or from another tier's copy.
  uint64_t degraded = 0;           // Lost planes that nothing gave back.
  uint64_t withdrawn = 0;          // Let go, because nothing gave them back.
  uint64_t unread = 0;             // The medium did not give them, or did not take them anew; left as they are.
  int64_t milliseconds = 0;
};

template <typename T>
using Callback = std::function<void(absl::StatusOr<T>)>;

class Client {
 public:
  // Never waits for the daemon: the first call connects. InvalidArgument for an address that cannot be one.
  static absl::StatusOr<std::unique_ptr<Client>> Create(const ClientOptions& options = {});
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  const std::string& address() const;
  // Returns when the daemon answers as ready, or DEADLINE_EXCEEDED with what it said last.
  absl::Status WaitUntilReady(int64_t timeout_ms);

  // --- Namespaces and artifacts
  // Without a plan: the default, or the one in force.
  absl::StatusOr<Namespace> RegisterNamespace(const NamespaceFacts& facts,
                                              const std::optional<PrecisionPlan>& plan = {},
                                              const CallOptions& options = {});
  absl::StatusOr<Namespace> DescribeNamespace(const Digest& fingerprint, const CallOptions& options = {});
  absl::StatusOr<std::vector<Namespace>> ListNamespaces(const CallOptions& options = {});
  absl::StatusOr<Digest> PutArtifact(std::string_view serialized, const CallOptions& options = {});

  // --- Blocks: one result an item, in order
  absl::StatusOr<std::vector<PutResult>> Put(const Namespace& ns, std::span<const PutItem> items,
                                             const PutOptions& options = {});
  absl::StatusOr<std::vector<GetResult>> Get(const Namespace& ns, std::span<const GetItem> items,
                                             const GetOptions& options = {});
  void PutAsync(const Namespace& ns, std::vector<PutItem> items, const PutOptions& options,
                Callback<std::vector<PutResult>> done);
  void GetAsync(const Namespace& ns, std::vector<GetItem> items, const GetOptions& options,
                Callback<std::vector<GetResult>> done);

  // Decodes blocks to this process's device memory; when it returns, the values are there. One result an item.
  absl::StatusOr<std::vector<DeviceResult>> GetToDevice(const Namespace& ns, std::span<const GetItem> items,
                                                        std::span<const DeviceRows> rows,
                                                        const DeviceGetOptions& options = {});

  // --- Asking
  absl::StatusOr<Prefix> Lookup(const Namespace& ns, std::span<const BlockKey> keys, PrecisionPair least = {},
                                const CallOptions& options = {});
  // The daemon computes the keys, from `tokens` on after `parent`.
  struct TokenQuery {
    std::span<const uint32_t> tokens = {};
    std::span<const std::string_view> extras = {};
    std::optional<BlockKey> parent = {};
    bool with_tail = false;
  };
  absl::StatusOr<Prefix> LookupTokens(const Namespace& ns, const TokenQuery& query, PrecisionPair least = {},
                                      const CallOptions& options = {});
  absl::StatusOr<std::vector<Located>> Exists(const Namespace& ns, std::span<const BlockKey> keys,
                                              PrecisionPair least = {}, const CallOptions& options = {});
  // In key order after `after`; empty at the end. `limit` 0: 1,000.
  absl::StatusOr<std::vector<BlockInfo>> List(const Namespace& ns, const std::optional<Digest>& after = {},
                                              uint32_t limit = 0, const CallOptions& options = {});
  absl::StatusOr<std::vector<DescribeAnswer>> Describe(const Namespace& ns, std::span<const BlockKey> keys,
                                                       const CallOptions& options = {});

  // --- Hints, holds and removal: one status a key, in order
  absl::StatusOr<std::vector<absl::Status>> Prefetch(const Namespace& ns, std::span<const BlockKey> keys,
                                                     PrecisionPair least = {}, const CallOptions& options = {});
  absl::StatusOr<std::vector<absl::Status>> Touch(const Namespace& ns, std::span<const TouchHint> hints,
                                                  const CallOptions& options = {});
  absl::StatusOr<std::vector<absl::Status>> Pin(const Namespace& ns, std::span<const BlockKey> keys,
                                                const Session& session, const CallOptions& options = {});
  absl::StatusOr<std::vector<absl::Status>> Unpin(const Namespace& ns, std::span<const BlockKey> keys,
                                                  const Session& session, const CallOptions& options = {});
  absl::StatusOr<std::vector<absl::Status>> Delete(const Namespace& ns, std::span<const BlockKey> keys,
                                                   const CallOptions& options = {});
  // Returns when everything committed before is durable.
  absl::Status Flush(const Namespace& ns, const CallOptions& options = {});

  // The same without waiting.
  void LookupAsync(const Namespace& ns, std::span<const BlockKey> keys, PrecisionPair least, const CallOptions& options,
                   Callback<Prefix> done);
  void ExistsAsync(const Namespace& ns, std::span<const BlockKey> keys, PrecisionPair least, const CallOptions& options,
                   Callback<std::vector<Located>> done);
  void PrefetchAsync(const Namespace& ns, std::span<const BlockKey> keys, PrecisionPair least,
                     const CallOptions& options, Callback<std::vector<absl::Status>> done);
  void TouchAsync(const Namespace& ns, std::span<const TouchHint> hints, const CallOptions& options,
                  Callback<std::vector<absl::Status>> done);
  void DeleteAsync(const Namespace& ns, std::span<const BlockKey> keys, const CallOptions& options,
                   Callback<std::vector<absl::Status>> done);
  void FlushAsync(const Namespace& ns, const CallOptions& options, std::function<void(absl::Status)> done);

  // --- Sessions and observation
  // `name` is for the daemon's logs. The session ends with the object, or with this process.
  absl::StatusOr<std::unique_ptr<Session>> OpenSession(std::string_view name, const CallOptions& options = {});
  // Events of one namespace, or of all; later than `after`, or from now on. See watch.h.
  absl::StatusOr<std::unique_ptr<WatchStream>> Watch(const std::optional<Digest>& ns = {},
                                                     std::optional<uint64_t> after = {});
  absl::StatusOr<Stats> GetStats(const CallOptions& options = {});
  absl::StatusOr<Capabilities> GetCapabilities(const CallOptions& options = {});

  // --- Administration: UNIMPLEMENTED on listeners that do not offer it
  // Nothing set: everything, of every tenant. Returns how many copies were removed.
  struct ClearScope {
    std::optional<Digest> ns = {};
    std::string tier = {};
  };
  absl::StatusOr<uint64_t> Clear(const ClearScope& scope, const CallOptions& options = {});
  absl::StatusOr<std::vector<MoveAnswer>> Demote(const Namespace& ns, std::span<const BlockKey> keys,
                                                 const std::string& tier, const CallOptions& options = {});
  absl::StatusOr<std::vector<MoveAnswer>> Promote(const Namespace& ns, std::span<const BlockKey> keys,
                                                  const std::string& tier, const CallOptions& options = {});
  absl::StatusOr<std::vector<MoveAnswer>> Degrade(const Namespace& ns, std::span<const BlockKey> keys,
                                                  const std::string& tier, PrecisionPair target,
                                                  const CallOptions& options = {});
  // Removes a namespace's blocks and the namespace itself; returns how many copies went.
  absl::StatusOr<uint64_t> RemoveNamespace(const Namespace& ns, const CallOptions& options = {});
  // Returns the capacity in force.
  absl::StatusOr<uint64_t> SetCapacity(const std::string& tier, uint64_t capacity_bytes,
                                       const CallOptions& options = {});
  absl::StatusOr<VerifyReport> Verify(const CallOptions& options = {});
  // Has every copy of the tiers below the GPUs read, verified and healed, and returns when that is done. 0 bytes a
  // second: as fast as it goes. With no deadline given it waits for a day; the pass goes on when nobody waits any more.
  absl::StatusOr<ScrubReport> Scrub(uint64_t bytes_per_second, const CallOptions& options = {});

  class Impl;

 private:
  explicit Client(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace firnkv
