// The store: blocks, where they are, how precise they are, and how they move. Everything a service or a tool may ask
// for.
//
// A put is begun (space in the hot tier, a place in line for its key), filled by the caller and committed; only then is
// the block visible. A get pins nothing by time: what it returns keeps its bytes alive by reference. Blocks move down
// as tiers fill, re-quantized on the way, lose planes before they are lost, and come up again when asked for. A miss is
// a normal answer.
//
// Threads: every call is safe from any thread. Completions run on the executor given in the options or inside the call,
// never under a lock of the store, and must not block. Nothing here waits for I/O. Ownership: the store owns its tiers.
// Shutdown() must complete before destruction. Errors: NotFound is a miss; InvalidArgument names value and limit;
// ResourceExhausted when no room can be made now; FailedPrecondition for calls out of order; Unavailable while starting
// or stopping.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/executor.h"
#include "codecs/artifact.h"
#include "codecs/encoded_block.h"
#include "tiers/cold_events.h"
#include "tiers/store/namespace.h"
#include "tiers/store/store_stats.h"
#include "tiers/tier.h"

namespace firn {

// A registered namespace, by a number that is valid in this process only.
using NamespaceId = uint32_t;
// A client's session; 0 is "no session" (nothing to clean up after it).
using SessionId = uint64_t;

// One level of the chain as configured.
struct TierConfig {
  std::string name;
  std::unique_ptr<Tier> tier;
  ClassPair precision{PrecisionClass::kExact, PrecisionClass::kExact};  // What enters the tier.
  ClassPair least{PrecisionClass::kNone,
                  PrecisionClass::kNone};  // Degrading in place stops here; kNone: as the lowest code.
  bool use_fp8 = false;                    // Its 8-bit class is FP8 rather than nested INT8.
  double high_watermark = 0.90;            // Above this share of capacity, work to get down to `low_watermark` starts.
  double low_watermark = 0.80;
};

struct StoreOptions {
  std::vector<TierConfig> tiers;                            // Hot to cold; at least one, at most 8.
  Executor* executor = nullptr;                             // Not owned; outlives the store.
  Executor* demotion_executor = nullptr;                    // Runs what demotions re-code; null: `executor`.
  const Clock* clock = nullptr;                             // Not owned.
  uint32_t moves_in_flight_max = 8;                         // Demotions and promotions at a time.
  uint64_t held_bytes_per_session_max = uint64_t{1} << 30;  // Bytes of removed blocks that one client may keep alive.
  uint64_t puts_in_flight_bytes_max = uint64_t{1} << 30;
  uint32_t pins_per_session_max = 1 << 20;
  uint64_t artifacts_bytes_max = uint64_t{64} << 20;  // Of all, and 1/16 of the persistent tier's capacity.
  uint32_t namespaces_max = 1024;                     // Of all tenants; each takes about 9 KiB of a persistent tier.
  uint32_t events_kept = 1 << 16;                     // Length of the Watch ring.
  uint64_t scrub_bytes_per_second = 0;                // What scrubbing reads; 0: none but what Scrub asks for.
  int64_t scrub_interval_ms = 3'600'000;              // From the start of one pass to the start of the next, at least.
  bool promote_on_get = true;                         // A get from below the hot tier schedules a promotion.
};

struct BlockAddress {
  NamespaceId ns = 0;
  Digest key;
  uint16_t shard = 0;
};

enum class AckLevel : uint8_t { kMemory = 0, kDurable = 1 };

struct PutSpec {
  BlockAddress address;
  std::optional<Digest> parent;
  uint32_t first_token = 0;
  uint32_t tokens = 0;
  int64_t ttl_ms = 0;  // 0: none.
  AckLevel ack = AckLevel::kMemory;
  SessionId session = 0;
  // Of each token, finite and not negative, or empty; the plan's important_fraction says what it is for. Only the order
  // counts. A block that is there already keeps what it has.
  std::vector<float> token_importance = {};
  // InFlightPut::FillFromDevice fills it, and nothing else: it takes no host memory, runs() are empty. BeginPut gives
  // FailedPrecondition where no tier can reach such memory now and store the values as they are.
  bool from_device = false;
  // Null: values as they are fill the put. Else its runs are those of a record that was coded elsewhere, and this is
  // the header: of the namespace's shape and values and this spec's shard and first token, `encoded` naming the runs.
  // Whatever its identity, parent and expiry, the block has those of this spec. BeginPut refuses what CheckRecord does
  // (InvalidArgument), and what is below the namespace's floor, past its error limit, or coded with an artifact that is
  // not here (FailedPrecondition). CommitPut verifies the runs by the header's checks (DataLoss) and makes them anew.
  std::shared_ptr<const RecordHeader> packed = nullptr;
  // Puts that wait for room get it by turns, lowest first. Those of one call have the same one, so that a call that has
  // begun some of its puts is not kept from the rest by what came later, which waits for the room that they hold.
  uint64_t turn = 0;  // From Store::NewTurn(); 0: one of its own.
};

struct PutResult {
  bool stored = false;  // False: an equal or finer block was there already (also success).
  uint64_t generation = 0;
  ClassPair stored_class;
  ClassPair durable_class;  // kNone unless a durable acknowledgement was asked for.
  uint64_t bytes = 0;
};

// A put in flight. Fill runs(), then Store::CommitPut. Destroying it aborts the put. Not thread-safe; may outlive its
// session (a commit after the session died is refused).
class InFlightPut {
 public:
  virtual ~InFlightPut() = default;
  virtual const PutSpec& spec() const = 0;
  virtual const BlockShape& shape() const = 0;
  // Canonical source bytes to be filled: kWhole of K and V, and for FP8 values kMeta: FP32 scales [layer][head].
  virtual const MutableRuns& runs() const = 0;
  virtual const RecordLayout& layout() const = 0;
  // Instead of filling runs(): takes the values from a worker's device memory. `done` may come after this was
  // destroyed. FailedPrecondition where the block enters a tier that cannot reach such memory.
  virtual void FillFromDevice(const DeviceRows& rows, absl::AnyInvocable<void(absl::Status)> done) = 0;
};

struct GetSpec {
  BlockAddress address;
  ClassPair least;                                                 // kNone: whatever is there.
  ClassPair most{PrecisionClass::kExact, PrecisionClass::kExact};  // Planes above are not read.
  SessionId session = 0;
  int64_t deadline_ns = 0;  // On the options' clock; 0: none.
  // Copies in a tier with a device mover are not read: the result names them, its block has no bytes.
  bool by_reference = false;
};

struct GetResult {
  EncodedBlock block;  // Verified; holds its bytes while it lives. `present` are the runs to decode from.
  ClassPair served;
  uint8_t tier = 0;
  CopyPtr copy = nullptr;  // Of a get by reference.
};

enum class BlockState : uint8_t { kAbsent = 0, kPresent = 1 };

struct LocatedBlock {
  BlockState state = BlockState::kAbsent;  // Present only if every shard is.
  ClassPair served;                        // Minimum over shards of the best copy.
  uint8_t tier = 0;                        // Coldest over shards of the hottest copy.
  uint32_t tokens = 0;
};

struct TouchHint {
  float importance = 0;        // Adds to or takes from a block's worth; 0: none. In [-1, 1]; < 0: its sequence ended.
  bool live_sequence = false;  // Its sequence is decoding now: keep it as it is for a while.
  // As in PutSpec, in all shards, in place of what was given before; empty changes nothing. It has no effect on copies
  // that are coded already: their own set of exact tokens is what counts.
  std::vector<float> token_importance = {};
};

enum class EventKind : uint8_t { kStored = 1, kDemoted = 2, kDegraded = 3, kPromoted = 4, kRemoved = 5 };
struct BlockEvent {
  uint64_t sequence = 0;
  EventKind kind = EventKind::kStored;
  NamespaceId ns = 0;
  Digest key;
  uint16_t shard = 0;
  uint8_t tier = 0;
  ClassPair now;  // Class after the event; kNone when removed.
};

struct BlockInfo {
  Digest key;
  std::optional<Digest> parent;
  uint16_t shard = 0;
  uint32_t first_token = 0;
  uint32_t tokens = 0;
  uint64_t generation = 0;
  int64_t expires_unix_ms = 0;
  uint32_t pins = 0;
  struct CopyInfo {
    uint8_t tier = 0;
    ClassPair served;
    uint64_t bytes = 0;
  };
  std::vector<CopyInfo> copies;       // Hot to cold.
  std::array<ClassErrors, 2> errors;  // Of the finest encode done; NaN where none was.
};

// At most what a description takes in a message. In memory it takes a few times that.
inline uint64_t DescribedBytes(const BlockInfo& info) { return 160 + 24 * info.copies.size(); }

struct AuditReport {
  bool consistent = true;
  std::vector<std::string> findings;  // One line each: what was counted and what was recounted.
};

class Store : public ColdEvents {
 public:
  // Takes the tiers. Recovered copies and facts of persistent tiers are handed to Recover before serving.
  static absl::StatusOr<std::unique_ptr<Store>> Create(StoreOptions options);

  // --- Start and stop
  // ------------------------------------------------------------------------------------------------- Facts first
  // (namespaces, artifacts), then copies of tier `tier`. Unknown namespaces' copies are forgotten.
  virtual void RecoverFacts(const std::vector<RecoveredFact>& facts) = 0;
  virtual void RecoverCopies(uint8_t tier, std::vector<RecoveredCopy> copies) = 0;
  // Where namespaces, plans and artifacts are kept from now on; null: nowhere. Called with (kind, name, value, done);
  // an empty value removes what was kept.
  using FactWriter = std::function<void(std::string kind, std::string name, std::vector<uint8_t> value,
                                        absl::AnyInvocable<void(absl::Status)> done)>;
  virtual void SetFactWriter(FactWriter writer) = 0;
  // A tier lost everything that it held: its copies with no runs left go, and blocks that had no other. May be called
  // whenever that happens, from anywhere.
  virtual void OnTierLost(uint8_t tier) = 0;
  // Runs periodic work: watermarks, expiry, session time-outs. Call it about every 50 ms, from anywhere.
  virtual void Tick() = 0;
  // Stops new work, moves what can still reach a persistent tier within `budget_ms`, then completes. What did not fit
  // is dropped and counted: it is a cache.
  virtual void Shutdown(int64_t budget_ms, absl::AnyInvocable<void(absl::Status)> done) = 0;

  // --- Namespaces and artifacts
  // ---------------------------------------------------------------------------------------- The same facts give the
  // same id, however often. A different plan replaces the old one for new demotions.
  virtual void RegisterNamespace(const NamespaceFacts& facts, const PrecisionPlan& plan,
                                 absl::AnyInvocable<void(absl::StatusOr<NamespaceId>)> done) = 0;
  virtual absl::StatusOr<NamespaceId> FindNamespace(const Digest& fingerprint) const = 0;
  virtual absl::StatusOr<NamespaceFacts> Facts(NamespaceId ns) const = 0;
  virtual absl::StatusOr<PrecisionPlan> Plan(NamespaceId ns) const = 0;
  virtual std::vector<NamespaceId> ListNamespaces(std::string_view tenant) const = 0;
  virtual void PutArtifact(std::shared_ptr<const Artifact> artifact, absl::AnyInvocable<void(absl::Status)> done) = 0;
  virtual const ArtifactSource& artifacts() const = 0;

  // --- Sessions
  virtual SessionId OpenSession(std::string_view tenant) = 0;
  // Frees its pins and refuses its unfinished puts.
  virtual void CloseSession(SessionId session) = 0;

  // --- Blocks
  // AlreadyExists when an equal or finer block is there (a success for callers; see EnsureDurable); Aborted when a put
  // of the same block is in flight (they may wait for it with Lookup, or count it as success); ResourceExhausted when
  // no room can be made at once; FailedPrecondition when the block there has another number of tokens.
  virtual absl::StatusOr<std::unique_ptr<InFlightPut>> BeginPut(const PutSpec& spec) = 0;
  // Higher than all before.
  virtual uint64_t NewTurn() = 0;
  // As BeginPut, but where there is no room, waits for it until `deadline_ns`: for demotion to make it, or for other
  // puts to give it back.
  virtual void BeginPutWhenRoom(const PutSpec& spec, int64_t deadline_ns,
                                absl::AnyInvocable<void(absl::StatusOr<std::unique_ptr<InFlightPut>>)> done) = 0;
  virtual void CommitPut(std::unique_ptr<InFlightPut> put,
                         absl::AnyInvocable<void(absl::StatusOr<PutResult>)> done) = 0;
  // For a block that is there already: `done` gets what CommitPut of a durable put gives, with `stored` false. NotFound
  // when it is not there (any more).
  virtual void EnsureDurable(const BlockAddress& address, absl::AnyInvocable<void(absl::StatusOr<PutResult>)> done) = 0;
  virtual void Get(const GetSpec& spec, absl::AnyInvocable<void(absl::StatusOr<GetResult>)> done) = 0;
  // Decodes a block to a worker's device memory; the result's block has no bytes. FailedPrecondition where no tier can
  // reach such memory.
  virtual void GetToDevice(const GetSpec& spec, const DeviceRows& rows,
                           absl::AnyInvocable<void(absl::StatusOr<GetResult>)> done) = 0;
  // One answer a key, in order. Takes no hold and does not count as use.
  virtual std::vector<LocatedBlock> Locate(NamespaceId ns, const std::vector<Digest>& keys, ClassPair least) = 0;
  // Starts bringing blocks into the hot tier; completes when each has arrived or cannot.
  virtual void Prefetch(NamespaceId ns, const std::vector<Digest>& keys, ClassPair least,
                        absl::AnyInvocable<void(std::vector<absl::Status>)> done) = 0;
  virtual absl::Status Pin(NamespaceId ns, const Digest& key, SessionId session) = 0;
  virtual absl::Status Unpin(NamespaceId ns, const Digest& key, SessionId session) = 0;
  virtual absl::Status Touch(NamespaceId ns, const Digest& key, const TouchHint& hint) = 0;
  // All shards. NotFound when there was nothing. Durable after SyncRemovals. Readers that hold the block finish
  // undisturbed.
  virtual absl::Status Delete(NamespaceId ns, const Digest& key) = 0;
  // Completes when everything removed before (Delete, Clear) stays removed after a crash; at once without a persistent
  // tier.
  virtual void SyncRemovals(absl::AnyInvocable<void(absl::Status)> done) = 0;
  // Completes when every block committed before is on a persistent tier and durable; FailedPrecondition without such a
  // tier.
  virtual void Flush(NamespaceId ns, absl::AnyInvocable<void(absl::Status)> done) = 0;

  // --- Administration
  struct ClearScope {
    std::optional<NamespaceId> ns;  // Nothing: all.
    std::optional<uint8_t> tier;    // Nothing: all tiers, and then deletions are durable.
  };
  // Returns the number of copies removed. After it no earlier key hits there, and after SyncRemovals not after a crash
  // either. Pinned blocks go too.
  virtual uint64_t Clear(const ClearScope& scope) = 0;
  // Removes a namespace's blocks and then itself; `done` gets the copies removed, once neither comes back after a
  // crash.
  virtual void RemoveNamespace(NamespaceId ns, absl::AnyInvocable<void(absl::StatusOr<uint64_t>)> done) = 0;
  // From now on a tier uses no more than `bytes`; what is beyond moves down, or goes, soon. Holds until the process
  // ends.
  virtual absl::Status SetCapacity(uint8_t tier, uint64_t bytes) = 0;
  // Moves a block down to `tier` now, re-quantized to that tier's class; `done` gets the class it has there.
  virtual void Demote(NamespaceId ns, const Digest& key, uint8_t tier,
                      absl::AnyInvocable<void(absl::StatusOr<ClassPair>)> done) = 0;
  // Lowers the precision of its copy in `tier`: in place where the tier can, by rewriting it with fewer planes where
  // not. A copy that is as coarse already is a success. FailedPrecondition, with the reason and the limit, where it
  // cannot be: coarser than the tier's `least` or the namespace's floor, past its error limit, bytes that no codec may
  // touch, NaN or Inf, a pin, or in memory a copy that has no planes to drop.
  virtual void Degrade(NamespaceId ns, const Digest& key, uint8_t tier, ClassPair target,
                       absl::AnyInvocable<void(absl::StatusOr<ClassPair>)> done) = 0;
  // Brings a copy of its codes up to `tier`; the copies below stay.
  virtual void Promote(NamespaceId ns, const Digest& key, uint8_t tier,
                       absl::AnyInvocable<void(absl::StatusOr<ClassPair>)> done) = 0;

  // --- Observation
  using Description = absl::StatusOr<std::vector<BlockInfo>>;  // One a shard.
  using DescribeDone = absl::AnyInvocable<void(std::vector<Description>)>;
  // Errors as far as memory knows them: NaN where only a persistent tier has the block's codes.
  virtual Description Describe(NamespaceId ns, const Digest& key) const = 0;
  // One answer a key, in order, with the errors that persistent tiers remember: their headers are read, which counts as
  // reads of the tier and not as use of the block. Errors that have not been read at `deadline_ns` stay NaN. Keys
  // behind the one that brings the answer to `bytes_max` (DescribedBytes) get ResourceExhausted.
  virtual void DescribeWithErrors(NamespaceId ns, const std::vector<Digest>& keys, int64_t deadline_ns,
                                  uint64_t bytes_max, DescribeDone done) = 0;
  // Up to `limit` blocks in key order after `after`, all shards of the last one; empty at the end. No further block
  // once it has `bytes_max` (DescribedBytes).
  virtual std::vector<BlockInfo> List(NamespaceId ns, const std::optional<Digest>& after, size_t limit,
                                      uint64_t bytes_max) const = 0;
  virtual StoreStats Stats() const = 0;
  // Events with sequence > `after`, at most `limit`. `*gap` says that older ones were lost: resynchronize with List.
  virtual std::vector<BlockEvent> Events(uint64_t after, size_t limit, bool* gap) const = 0;
  // Calls `wake` once, from any thread, when an event later than `after` exists (at once if it already does).
  virtual void WhenEvents(uint64_t after, Task wake) = 0;
  // Recounts everything that has a counter. Expensive: for `firn verify` and tests.
  virtual AuditReport Audit() const = 0;
  // Verifies every copy of the tiers below the GPUs, from the front, and heals what is damaged; `done` hears what was
  // found. 0 bytes a second: as fast as it goes. Calls that come while a pass runs begin it again and share its answer.
  virtual void Scrub(uint64_t bytes_per_second, absl::AnyInvocable<void(absl::StatusOr<ScrubReport>)> done) = 0;
  virtual size_t tier_count() const = 0;
  virtual const TierConfig& tier(uint8_t index) const = 0;
};

}  // namespace firn
