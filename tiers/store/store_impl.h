// The store's inside: one lock over the index, sessions, puts in flight and the policy; everything slow happens outside
// it.
//
// Lock order: the store's lock, then a tier's own (Usage, Narrow). Tiers call the store back with no lock of theirs
// held. Functions named ...Locked need mu_. What must happen after the lock is released (dropping references,
// forgetting copies, waking watchers, completions) is collected in an Aftermath and run when the lock is gone.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "tiers/policy/policy.h"
#include "tiers/store/entry_table.h"
#include "tiers/store/event_log.h"
#include "tiers/store/recent_windows.h"
#include "tiers/store/store.h"

namespace firn {

class StoreImpl;

inline bool operator==(const EntryName& a, const EntryName& b) {
  return a.ns == b.ns && a.shard == b.shard && a.key == b.key;
}
template <typename H>
H AbslHashValue(H h, const EntryName& n) {
  return H::combine(std::move(h), n.ns, n.shard, n.key);
}

// The class of bytes as callers give them.
ClassPair SourceClass(DType dtype, const BlockShape& shape);
ClassPair Coarser(const ClassPair& a, const ClassPair& b);
ClassPair Finer(const ClassPair& a, const ClassPair& b);
// Runs that decoding at `target` may need, whatever the coding.
RunMask WantedRuns(const ClassPair& target);
// The finest class that any head of a copy can have; its class where heads are alike.
ClassPair FinestHeld(const HeldCopy& held);

class ArtifactTable final : public ArtifactSource {
 public:
  std::shared_ptr<const Artifact> Find(const Digest& digest) const override;
  void Add(std::shared_ptr<const Artifact> artifact);
  uint64_t bytes() const;  // Serialized, of all.

 private:
  mutable std::mutex mu_;
  std::map<Digest, std::shared_ptr<const Artifact>> artifacts_;  // Guarded by mu_, as is the next.
  uint64_t bytes_ = 0;
};

// What is left to do once the lock is released.
class Aftermath {
 public:
  explicit Aftermath(StoreImpl* store) : store_(store) {}
  Aftermath(const Aftermath&) = delete;
  Aftermath& operator=(const Aftermath&) = delete;
  ~Aftermath();
  void Forget(uint8_t tier, CopyPtr copy, const Identity& identity) {
    forgotten_.push_back({tier, std::move(copy), identity});
  }
  void Release(std::shared_ptr<const void> reference) { released_.push_back(std::move(reference)); }
  void Then(Task task) { tasks_.push_back(std::move(task)); }

 private:
  struct Forgotten {
    uint8_t tier;
    CopyPtr copy;
    Identity identity;
  };
  StoreImpl* const store_;
  std::vector<Forgotten> forgotten_;
  std::vector<std::shared_ptr<const void>> released_;
  std::vector<Task> tasks_;
};

// How long a filled put, and a move that somebody waits for, wait for room.
constexpr int64_t kRoomPatienceNs = 10'000'000'000;
// Moves that somebody waits for under way at a time, for each of moves_in_flight_max.
constexpr uint32_t kPatientMovesPerSlot = 4;

// One copy on its way to another tier.
struct Move {
  using Done = absl::AnyInvocable<void(absl::StatusOr<ClassPair>)>;
  EntryId entry = kNoEntry;
  Identity identity;
  uint32_t ns = 0;
  uint8_t from = 0;
  uint8_t to = 0;
  ClassPair target;
  bool keep_source = false;  // A durable or promoted copy: the source stays.
  bool gated = false;        // An error limit changed its target.
  bool drop_hotter = false;  // A forced demotion: no hotter copy stays.
  EventKind event = EventKind::kDemoted;
  int64_t since_ns = 0;            // When it was started.
  uint64_t leaving_bytes = 0;      // What the source gives back when this is done.
  uint64_t exact_token_bytes = 0;  // Of what arrives, the tokens kept exact.
  CopyPtr source;
  EncodedBlock block;  // The source's bytes, once read; its header alone where its tier re-codes.
  std::optional<TierRecoder::Recoded> recoded;
  bool by_hand = false;    // Its tier cannot re-code it.
  bool repair = false;     // Writes `block` anew where it is.
  bool corrected = false;  // Read again with error correction.
  EncodeSpec spec;
  Done done;
};

// A cold read that several gets may share.
struct ReadFlight;
struct GetContext;
struct Measuring;

// Why a block is not demoted or degraded.
absl::Status PinnedError(const Digest& key, uint32_t pins);

class StoreImpl final : public Store, public PolicyView {
 public:
  explicit StoreImpl(StoreOptions options);
  ~StoreImpl() override;

  void RecoverFacts(const std::vector<RecoveredFact>& facts) override;
  void RecoverCopies(uint8_t tier, std::vector<RecoveredCopy> copies) override;
  void SetFactWriter(FactWriter writer) override;
  void Tick() override;
  void Shutdown(int64_t budget_ms, absl::AnyInvocable<void(absl::Status)> done) override;

  void RegisterNamespace(const NamespaceFacts& facts, const PrecisionPlan& plan,
                         absl::AnyInvocable<void(absl::StatusOr<NamespaceId>)> done) override;
  absl::StatusOr<NamespaceId> FindNamespace(const Digest& fingerprint) const override;
  absl::StatusOr<NamespaceFacts> Facts(NamespaceId ns) const override;
  absl::StatusOr<PrecisionPlan> Plan(NamespaceId ns) const override;
  std::vector<NamespaceId> ListNamespaces(std::string_view tenant) const override;
  void PutArtifact(std::shared_ptr<const Artifact> artifact, absl::AnyInvocable<void(absl::Status)> done) override;
  const ArtifactSource& artifacts() const override { return artifacts_; }

  SessionId OpenSession(std::string_view tenant) override;
  void CloseSession(SessionId session) override;

  absl::StatusOr<std::unique_ptr<InFlightPut>> BeginPut(const PutSpec& spec) override;
  uint64_t NewTurn() override { return ++last_turn_; }
  void BeginPutWhenRoom(const PutSpec& spec, int64_t deadline_ns,
                        absl::AnyInvocable<void(absl::StatusOr<std::unique_ptr<InFlightPut>>)> done) override;
  void EnsureDurable(const BlockAddress& address, absl::AnyInvocable<void(absl::StatusOr<PutResult>)> done) override;
  void CommitPut(std::unique_ptr<InFlightPut> put, absl::AnyInvocable<void(absl::StatusOr<PutResult>)> done) override;
  void Get(const GetSpec& spec, absl::AnyInvocable<void(absl::StatusOr<GetResult>)> done) override;
  void GetToDevice(const GetSpec& spec, const DeviceRows& rows,
                   absl::AnyInvocable<void(absl::StatusOr<GetResult>)> done) override;
  std::vector<LocatedBlock> Locate(NamespaceId ns, const std::vector<Digest>& keys, ClassPair least) override;
  void Prefetch(NamespaceId ns, const std::vector<Digest>& keys, ClassPair least,
                absl::AnyInvocable<void(std::vector<absl::Status>)> done) override;
  absl::Status Pin(NamespaceId ns, const Digest& key, SessionId session) override;
  absl::Status Unpin(NamespaceId ns, const Digest& key, SessionId session) override;
  absl::Status Touch(NamespaceId ns, const Digest& key, const TouchHint& hint) override;
  absl::Status Delete(NamespaceId ns, const Digest& key) override;
  void SyncRemovals(absl::AnyInvocable<void(absl::Status)> done) override;
  void Flush(NamespaceId ns, absl::AnyInvocable<void(absl::Status)> done) override;

  uint64_t Clear(const ClearScope& scope) override;
  uint64_t ClearLocked(const ClearScope& scope, Aftermath* after);
  void RemoveNamespace(NamespaceId ns, absl::AnyInvocable<void(absl::StatusOr<uint64_t>)> done) override;
  absl::Status SetCapacity(uint8_t tier, uint64_t bytes) override;
  void Demote(NamespaceId ns, const Digest& key, uint8_t tier,
              absl::AnyInvocable<void(absl::StatusOr<ClassPair>)> done) override;
  void Degrade(NamespaceId ns, const Digest& key, uint8_t tier, ClassPair target,
               absl::AnyInvocable<void(absl::StatusOr<ClassPair>)> done) override;
  void Promote(NamespaceId ns, const Digest& key, uint8_t tier,
               absl::AnyInvocable<void(absl::StatusOr<ClassPair>)> done) override;

  Description Describe(NamespaceId ns, const Digest& key) const override;
  void DescribeWithErrors(NamespaceId ns, const std::vector<Digest>& keys, int64_t deadline_ns, uint64_t bytes_max,
                          DescribeDone done) override;
  std::vector<BlockInfo> List(NamespaceId ns, const std::optional<Digest>& after, size_t limit,
                              uint64_t bytes_max) const override;
  StoreStats Stats() const override;
  std::vector<BlockEvent> Events(uint64_t after, size_t limit, bool* gap) const override;
  void WhenEvents(uint64_t after, Task wake) override;
  AuditReport Audit() const override;
  void Scrub(uint64_t bytes_per_second, absl::AnyInvocable<void(absl::StatusOr<ScrubReport>)> done) override;
  size_t tier_count() const override { return options_.tiers.size(); }
  const TierConfig& tier(uint8_t index) const override { return options_.tiers[index]; }

  ReclaimVerdict JudgeReclaim(const Identity& identity, RunMask leaving) override;
  bool LetGo(const Identity& identity, RunMask leaving, bool whole) override;
  void OnRunsLost(const Identity& identity, RunMask lost, bool whole) override;
  void OnRelocated(const Identity& identity, const CopyPtr& copy) override;
  void OnTierLost(uint8_t tier) override;

 private:
  friend class Aftermath;
  friend class InFlightPutImpl;
  friend class ReaderHold;

  // What a plan's rules come to in one tier, by Part, ready for encoding.
  struct TierCodings {
    std::array<std::vector<CodingRule>, 2> rules;
    std::array<std::shared_ptr<const ClassMap>, 2> classes;
    std::array<PrecisionClass, 2> target{};  // kNone: the tier's own.
  };
  struct NamespaceState {
    NamespaceFacts facts;
    PrecisionPlan plan;
    Digest fingerprint;
    std::shared_ptr<const Artifact> balance;
    std::vector<TierCodings> codings;  // By tier.
    bool saved = false;                // Where facts are written at all: this plan is.
    // Its number is not given again while the process lives: puts, moves and answers on their way may still have it.
    // What that takes, about 1 KiB and its plan, grows with removals alone, which are for administrators.
    bool removed = false;
  };
  struct Session {
    std::string tenant;
    absl::flat_hash_map<EntryName, uint32_t> pins;  // How often this session pinned it.
    uint64_t held_bytes = 0;
  };
  // A put in flight, by name: who owns it, and whether something made its outcome void (delete, clear, a dead session).
  struct PutInFlight {
    SessionId session = 0;
    uint64_t bytes = 0;
    uint64_t turn = 0;
    bool cancelled = false;
    std::vector<EntryName> followers = {};  // Blocks that name it as their parent and were committed before it.
  };
  struct RoomWaiter {
    PutSpec spec;  // With its turn.
    uint64_t bytes = 0;
    int64_t deadline_ns = 0;
    absl::AnyInvocable<void(absl::StatusOr<std::unique_ptr<InFlightPut>>)> done;
  };
  struct Expiry {
    int64_t at_unix_ms;
    EntryName name;
    uint64_t generation;
    bool operator>(const Expiry& o) const { return at_unix_ms > o.at_unix_ms; }
  };
  // One move of one shard that somebody asked for and waits for.
  struct AskedMove {
    EntryName name;
    uint8_t to = 0;
    EventKind event = EventKind::kDemoted;
    ClassPair target;
    int64_t patience_until_ns = 0;  // Where there is no room, it is tried again until then.
  };
  struct TierState {
    uint64_t hits = 0, demotions_in = 0, demotion_failures = 0, promotions_in = 0, degrades = 0, degraded_bytes = 0,
             evictions = 0, found_nothing = 0, recent_broken = 0, damaged_reads = 0, mended = 0, damage_degraded = 0,
             damage_withdrawn = 0, scrubbed_copies = 0, scrubbed_bytes = 0, scrub_findings = 0;
    LatencyHistogram demotion_latency;
    std::array<uint64_t, 17> by_class{};
    uint64_t recent_bytes = 0;    // WindowBytes of copies that recent windows hold.
    uint64_t demand_bytes = 0;    // Asked for by a put or a move that found no room.
    uint64_t leaving_bytes = 0;   // Of moves in flight out of this tier.
    uint64_t outgrown_bytes = 0;  // What was used when its capacity was set lower, until it is kept.
    int64_t retry_at_ns = 0;      // Demotions into it are held back until then after a failure.
    uint32_t full_in_a_row = 0;   // Moves into it that found no room since one did.
    uint32_t patient_moves = 0;   // Into it, under way for somebody who waits.
    std::deque<std::pair<AskedMove, Move::Done>> waiting_moves;  // Into it, in order.
  };

  // --- store.cc
  absl::Status CheckNamespaceLocked(NamespaceId ns) const;
  Identity IdentityOfLocked(const Entry& e) const;
  EntryName NameOf(const Entry& e) const { return {e.ns, e.shard, e.key}; }
  NodeId ParentNode(NodeId node) const override;
  // What a recent copy counts for its tier's share. Windows share tiers of memory; a log changes what its copies take
  // by itself, and keeps them by its own rules.
  uint64_t WindowBytes(uint8_t tier, const Copy& copy) const;
  void AddNamespaceLocked(const NamespaceFacts& facts, const PrecisionPlan& plan, NamespaceId* id);
  // That a coding's artifact is known, has the namespace's shape and what the coding reads.
  absl::Status CheckArtifact(const NamespaceFacts& facts, Part part, const PartCoding& coding) const;
  absl::Status CheckPlanLocked(const NamespaceFacts& facts, const PrecisionPlan& plan) const;
  // What a new plan names and gives, beyond what serves: a plan that survived a change of the chain need not pass.
  absl::Status CheckPlanNames(const PrecisionPlan& plan) const;
  absl::Status CheckArtifactRoomLocked(uint64_t bytes) const;

  // --- store_facts.cc
  // Facts are written in the order in which the store decided them: queue under the lock, then WriteQueuedFacts.
  struct QueuedFact {
    std::string kind, name;
    std::vector<uint8_t> value;
    absl::AnyInvocable<void(absl::Status)> done;
  };
  void QueueFactLocked(std::string kind, std::string name, std::vector<uint8_t> value,
                       absl::AnyInvocable<void(absl::Status)> done);
  void WriteQueuedFacts();
  void SaveNamespaceLocked(NamespaceId id, absl::AnyInvocable<void(absl::StatusOr<NamespaceId>)> done);
  void SaveArtifactLocked(std::shared_ptr<const Artifact> artifact, bool arriving,
                          absl::AnyInvocable<void(absl::Status)> done);

  // --- store_index.cc: the only places that change copies and entries
  void HoldCopyLocked(EntryId id, uint8_t tier, CopyPtr copy, ClassPair served);
  // Takes a copy out of the index; whoever calls this sees to it that its tier forgets it.
  CopyPtr TakeCopyLocked(EntryId id, uint8_t tier);
  void DropCopyLocked(EntryId id, uint8_t tier, Aftermath* after);
  void ReplaceCopyLocked(EntryId id, uint8_t tier, CopyPtr copy, ClassPair served, Aftermath* after);
  // What a persistent tier gave up of a block; the block goes where nothing else is left of it.
  void LoseRunsLocked(EntryId id, RunMask lost, bool whole, Aftermath* after);
  // Removes an entry with all its copies. The block's other shards are left alone.
  void EraseEntryLocked(EntryId id, Aftermath* after);
  // Keeps the ranks of a block's tokens as long as a copy is there that they matter for.
  void SetRanksLocked(EntryId id, TokenRanks ranks);
  bool RanksMatterLocked(EntryId id) const;
  // Removes all shards of a block, emits the events. Returns copies removed.
  uint64_t RemoveBlockLocked(NamespaceId ns, const Digest& key, Aftermath* after);
  void LinkParentLocked(EntryId id, const std::optional<Digest>& parent);
  // As a put does: a parent whose put is still in flight gets the block as its child when it is committed, and a block
  // gets those of `followers` that are still there.
  void LinkFamilyLocked(EntryId id, const std::optional<Digest>& parent, const std::vector<EntryName>& followers);
  NodeKind KindOfLocked(const Entry& e, uint8_t tier, const CopyPtr& copy) const;
  bool ExpiredLocked(const Entry& e) const {
    return e.expires_unix_ms != 0 && e.expires_unix_ms <= options_.clock->UnixMs();
  }
  ClassPair BestClassLocked(EntryId id) const;
  // Whether some copy serves `least`: no one copy need be the finest in both parts.
  bool ServesLocked(EntryId id, ClassPair least) const;
  void EmitLocked(EventKind kind, const Entry& e, uint8_t tier, ClassPair now, Aftermath* after);
  LocatedBlock LocateLocked(NamespaceId ns, const Digest& key, ClassPair least) const;
  EntryId FindByIdentityLocked(const Identity& identity) const;

  // --- store_put.cc
  absl::Status CheckPutLocked(const PutSpec& spec) const;
  // All shards of a block have as many tokens.
  absl::Status CheckTokensLocked(const PutSpec& spec) const;
  void AbortPut(const EntryName& name);
  // The first tier from `first` on that can take a block of so many bytes, whether or not it has room now.
  std::optional<uint8_t> EntryTier(uint64_t bytes, size_t first) const;
  // Room in that tier for what the caller will fill, or memory where the tier stores another form.
  absl::Status TakeEntryRoom(class InFlightPutImpl* put);
  void EncodeForEntry(std::shared_ptr<class InFlightPutImpl> put, std::shared_ptr<RecordHeader> header,
                      int64_t retry_until_ns, absl::AnyInvocable<void(absl::StatusOr<PutResult>)> done);
  // A put that refines a block which left meanwhile gets a generation of its own; says whether it was so.
  bool RenewIfAloneLocked(class InFlightPutImpl& put);
  // Writes what was committed under another generation once more, under the put's own.
  void CommitRenewed(std::shared_ptr<class InFlightPutImpl> put, std::shared_ptr<const RecordHeader> header,
                     CopyPtr copy, absl::AnyInvocable<void(absl::StatusOr<PutResult>)> done);
  // `in_place`: a device mover filled the draft.
  void CommitEntry(std::shared_ptr<class InFlightPutImpl> put, std::unique_ptr<Draft> draft,
                   std::shared_ptr<const RecordHeader> header, bool in_place,
                   absl::AnyInvocable<void(absl::StatusOr<PutResult>)> done);
  // The tier that a put was to enter went away with it: the next one takes what was filled.
  void EnterElsewhere(std::shared_ptr<class InFlightPutImpl> put, std::unique_ptr<Draft> draft,
                      std::shared_ptr<const RecordHeader> header,
                      absl::AnyInvocable<void(absl::StatusOr<PutResult>)> done);
  // Gives back what the put holds before it answers: whoever hears of it may want the room at once.
  void FailPut(std::shared_ptr<class InFlightPutImpl>&& put, absl::Status status,
               absl::AnyInvocable<void(absl::StatusOr<PutResult>)> done);
  // `filled`: what the copy was made from, where its tier gave that back.
  void PublishPut(std::shared_ptr<class InFlightPutImpl> put, std::shared_ptr<const RecordHeader> header, CopyPtr copy,
                  std::unique_ptr<Draft> filled, absl::AnyInvocable<void(absl::StatusOr<PutResult>)> done);
  void MakeDurable(const EntryName& name, uint64_t generation, PutResult result,
                   absl::AnyInvocable<void(absl::StatusOr<PutResult>)> done);
  // What of a packed record is for no lock: the header in itself, and its artifacts.
  absl::Status CheckPackedRecord(const RecordHeader& header) const;
  absl::Status CheckPackedLocked(const PutSpec& spec) const;
  // What a put will be served as, where nothing codes it anew.
  ClassPair OfferedLocked(const PutSpec& spec) const;
  absl::StatusOr<EncodePlan> PlanPut(const PutSpec& spec, const Identity& identity, const NamespaceFacts& facts) const;
  void WithdrawPutLocked(const EntryName& name);

  // --- store_room.cc
  // Whether BeginPut would take room for it.
  bool WantsPlaceLocked(const PutSpec& spec) const;
  // Tries the puts that wait for room, in order, on the executor: never inside the call that made the room.
  void ScheduleRoomWaitersLocked();
  void ServeRoomWaiters();
  void WaitForRoomLocked(RoomWaiter waiter, bool before_its_equals);
  void RefuseLateWaitersLocked();
  // Whether all puts in flight are of this turn and nothing else is where puts enter: more of it would wait for itself.
  bool HoldsAllLocked(uint64_t turn) const;

  // --- store_device.cc
  void ImportPut(class InFlightPutImpl* put, const DeviceRows& rows, absl::AnyInvocable<void(absl::Status)> done);

  // --- store_get.cc
  void StartGet(std::shared_ptr<GetContext> context);
  void OnBlockRead(std::shared_ptr<ReadFlight> flight, absl::StatusOr<EncodedBlock> block);
  // Gets whose deadline passed while a medium has not answered: the read goes on for whoever still waits.
  void EndLateGets();
  void ServeGet(const std::shared_ptr<GetContext>& context, const ReadFlight& flight, const EncodedBlock& block,
                RunMask intact);
  void FinishMiss(const std::shared_ptr<GetContext>& context, MissReason reason, std::string detail);
  // Reads again, with error correction, what did not check; then what is right of it is taken.
  void CorrectRead(std::shared_ptr<ReadFlight> flight, absl::StatusOr<EncodedBlock> block);
  // Lets go of what is not intact, now.
  void HandleDamage(EntryId id, const Identity& identity, uint8_t tier, const CopyPtr& copy, RunMask intact);
  void MaybePromote(const ReadFlight& flight, const EncodedBlock& block);
  void ReleaseReader(SessionId session, uint64_t bytes);
  std::optional<uint8_t> PromotionTargetLocked(uint8_t from) const;

  // --- store_heal.cc
  enum class HealOutcome : uint8_t {
    kClean,      // Nothing was wrong.
    kMended,     // All of it is there again, written anew.
    kDegraded,   // It lost planes.
    kWithdrawn,  // It was let go.
    kUnread,     // The medium would not give it or take it; left as it is.
    kBusy,       // It is no longer held, or being healed already.
  };
  using HealDone = absl::AnyInvocable<void(HealOutcome)>;
  struct Heal;
  // A copy gave bytes that do not check, of which those in `intact` do.
  void OnDamage(EntryId id, const Identity& identity, uint8_t tier, const CopyPtr& copy, RunMask intact);
  // Reads and verifies all of a copy, and heals it where something is wrong.
  void HealCopy(EntryId id, const Identity& identity, uint8_t tier, const CopyPtr& copy, HealDone done);
  Executor* HealExecutor() const;
  bool HeldStillLocked(const Heal& heal);
  void OnHealRead(const std::shared_ptr<Heal>& heal, absl::StatusOr<EncodedBlock> block);
  void BorrowRuns(const std::shared_ptr<Heal>& heal);
  void SettleHeal(const std::shared_ptr<Heal>& heal);
  void WriteAnew(const std::shared_ptr<Heal>& heal, HealOutcome outcome);
  void Withdraw(const std::shared_ptr<Heal>& heal, RunMask intact);
  void EndHeal(const std::shared_ptr<Heal>& heal, HealOutcome outcome);

  // --- store_scrub.cc
  struct ScrubTarget {
    EntryId entry = kNoEntry;
    Identity identity;
    uint8_t tier = 0;
    CopyPtr copy;
  };
  using ScrubDone = absl::AnyInvocable<void(absl::StatusOr<ScrubReport>)>;
  struct ScrubState {
    bool running = false;
    bool asked = false;  // By a call of Scrub, at its pace.
    uint64_t asked_bytes_per_second = 0;
    EntryId next = 0;
    uint32_t in_flight = 0;
    double credit_bytes = 0;
    int64_t refilled_ns = 0, begun_ns = 0;
    uint64_t number = 0, passes_ended = 0;
    ScrubReport pass;
    std::vector<ScrubDone> waiting;  // For the end of this pass.
    // Those who asked while it ran: what it had passed by then may have been damaged since.
    std::vector<ScrubDone> for_next;
    uint64_t next_bytes_per_second = 0;
  };
  bool Scrubbed(uint8_t tier) const;
  void BeginPassLocked();
  // Ends the pass, and begins the one that was asked for meanwhile. Returns who waited for it.
  std::vector<ScrubDone> EndPassLocked(const absl::Status& ended);
  double ScrubRateLocked() const;
  void TakeScrubsLocked(std::vector<ScrubTarget>* out);
  // Starts what is due, and ends the pass after the last.
  void ScrubOn();
  void CountScrub(uint64_t number, uint8_t tier, uint64_t bytes, HealOutcome outcome);
  void AddScrubStatsLocked(StoreStats* out) const;

  // --- store_move.cc
  TierCodings CodingsFor(const PrecisionPlan& plan, const TierConfig& tier) const;
  EncodeSpec SpecForLocked(NamespaceId id, uint8_t tier, TokenRanks ranks) const;
  ClassPair TargetForLocked(const Entry& e, uint8_t tier, ClassPair current) const;
  // Needs the entry to be idle (not moving). Takes it over until EndMove.
  void StartMoveLocked(std::unique_ptr<Move> move, Aftermath* after);
  void ReadForMove(std::shared_ptr<Move> move);
  void OnMoveRead(std::shared_ptr<Move> move, absl::StatusOr<EncodedBlock> block);
  // Whether the source may still be read with error correction.
  bool MayCorrect(const Move& move) const;
  // Has the source's tier re-code the copy, where it can; false: it is to be read.
  bool RecodeInPlace(const std::shared_ptr<Move>& move);
  // Where a move's bytes are worked on: demotions stay out of the way of what a client waits for.
  Executor* ExecutorOf(const Move& move) const;
  void TransferForMove(std::shared_ptr<Move> move);
  absl::StatusOr<std::unique_ptr<Draft>> RecodeForMove(Move& move, std::shared_ptr<const RecordHeader>* header);
  // Reserves in `tier` and encodes there, in one pass over the source where its values allow.
  absl::StatusOr<std::unique_ptr<Draft>> EncodeIntoTier(const EncodedBlock& source, const EncodeSpec& spec, Tier* tier,
                                                        std::shared_ptr<const RecordHeader>* header) const;
  // What becomes of a move whose copy is there: another class than `stored`, or an error, where that copy is not
  // wanted.
  // `arrived` are the runs that the copy has.
  absl::StatusOr<ClassPair> OutcomeLocked(const Move& move, EntryId id, RunMask arrived, ClassPair stored) const;
  void SettleMoveLocked(EntryId id, Move& move, CopyPtr copy, ClassPair stored, Aftermath* after);
  void EndMoveLocked(Move& move, Aftermath* after);
  void FinishMove(std::shared_ptr<Move> move, CopyPtr copy, ClassPair stored);
  void FailMove(std::shared_ptr<Move> move, absl::Status status);
  // `damaged`: what goes is of no use any more, whatever limits say.
  absl::StatusOr<ClassPair> NarrowLocked(EntryId id, uint8_t tier, RunMask keep, Aftermath* after,
                                         bool damaged = false);
  std::shared_ptr<const RecordHeader> HeaderInMemory(uint8_t tier, const CopyPtr& copy, const Identity& identity) const;

  // --- store_pressure.cc
  void Pump();
  void PumpTierLocked(uint8_t tier, Aftermath* after);
  // What must go to get a tier that is above its high watermark down to `mark`, and for what was asked for.
  uint64_t WantedBytesLocked(uint8_t tier, double mark) const;
  // What a search for bytes came to.
  struct Taken {
    uint64_t bytes = 0;
    bool spent = false;  // There is nothing else to take, and nothing on its way out.
  };
  Taken TakeColdestLocked(uint8_t tier, uint64_t wanted, Aftermath* after);
  uint64_t DegradeColdestLocked(uint8_t tier, uint64_t wanted, Aftermath* after);
  Taken DemoteColdestLocked(uint8_t tier, uint64_t wanted, Aftermath* after);
  // A parent is never colder than its child: a block stays while a child is here or hotter. Which children count:
  enum class Children : uint8_t {
    kAll,      // All, where the block would be lost: without it none of them can be hit by prefix.
    kStaying,  // Not those in a recent window, which need the block somewhere, nor those on their way.
    kNone,     // Where there is nothing else to move.
  };
  // The first in order that `judge` takes, of copies in no recent window; those without spare planes before others.
  NodeId ColdestLocked(uint8_t tier, absl::FunctionRef<Verdict(NodeId)> judge) const;
  // The coldest that may go; `spared` says that an importance hint kept one.
  NodeId ColdestToMoveLocked(uint8_t tier, Children children, bool* spared);
  Taken EvictColdestLocked(uint8_t tier, uint64_t wanted, Aftermath* after);
  // Lets go of a copy, and of the block where it was the only one.
  void EvictLocked(EntryId id, uint8_t tier, Aftermath* after);
  // Where all that is left in the last tier has children that are hotter: lets go of the last of the coldest's, in
  // every tier. Returns the bytes.
  uint64_t EvictBelowColdestLocked(uint8_t tier, Aftermath* after);
  // Asks for room that a reservation of `bytes` did not find.
  void RaiseDemandLocked(uint8_t tier, uint64_t bytes);
  // Held where it is by a pin, a move or a live sequence.
  bool HeldHereLocked(EntryId id) const;
  // The same, or by a child.
  bool ProtectedLocked(EntryId id, uint8_t tier, Children children) const;
  std::optional<RunMask> DegradeStepLocked(const Entry& e, uint8_t tier, const CopyPtr& copy) const;
  std::optional<uint8_t> DemotionTargetLocked(uint8_t from, uint64_t bytes) const;
  void ExpireLocked(Aftermath* after);

  // --- store_windows.cc
  enum class Use : uint8_t { kMore, kLast };
  // A block was put, read or touched: the recent window of its sequence goes by that, and ends with the last use.
  void UseInWindowLocked(EntryId id, Use use = Use::kMore);
  // Files the copies of blocks that entered or left a window where they belong now.
  void RefileLocked(const RecentWindows::Changed& changed);
  uint32_t NowSeconds() const { return static_cast<uint32_t>(options_.clock->NowNs() / 1'000'000'000); }
  // After a plan's recent_tokens changed. Takes the lock now and again.
  void FitWindows(NamespaceId id);
  // Takes about `wanted` bytes of a tier out of recent windows, those of the sequences unused longest first; `next` has
  // them go before all else. False where no window has anything here that may go.
  bool BreakWindowsLocked(uint8_t tier, uint64_t wanted, bool next);
  // Windows have at most half of a tier: ends the protection of those beyond it. They are no colder for that.
  void KeepWindowsShareLocked(uint8_t tier);

  // --- store_drain.cc
  struct Drain;
  void StepDrain(std::shared_ptr<Drain> drain);
  std::optional<uint8_t> PersistentTier() const;
  void FlushPersistentTiers(absl::AnyInvocable<void(absl::Status)> done);

  // --- store_admin.cc
  // Runs `task` on the executor when no move of the entry is under way.
  void WhenIdleLocked(const Entry& e, Task task);
  void RunAskedMove(const AskedMove& asked, Move::Done done);
  void RunAskedMoveOnce(const AskedMove& asked, Move::Done done);
  // Starts those whose turn it is.
  void ServeWaitingMoves();
  bool MayWaitLocked(const AskedMove& asked) const;
  void RunAskedMoves(NamespaceId ns, const Digest& key, const AskedMove& asked, Move::Done done);
  void PromoteShard(const EntryName& name, uint8_t tier, Move::Done done);

  // Why a copy may not become as coarse as `target`.
  absl::Status CheckDegradeLocked(const Entry& e, uint8_t tier, const HeldCopy& held, const ClassPair& target) const;

  // --- store_describe.cc
  BlockInfo InfoOf(EntryId id) const;  // Needs mu_.
  Description DescribeLocked(NamespaceId ns, const Digest& key) const;
  // Starts reads of headers until enough are under way, or ends the call after the last.
  void MeasureOn(const std::shared_ptr<Measuring>& measuring);
  void EndMeasuring(const std::shared_ptr<Measuring>& measuring);
  void EndLateMeasuring();

  StoreOptions options_;
  ArtifactTable artifacts_;

  mutable std::mutex mu_;
  // All below is guarded by mu_.
  EntryTable table_;
  RecentWindows windows_{&table_};
  std::unique_ptr<Policy> policy_;
  EventLog events_;
  std::vector<NamespaceState> namespaces_;  // By NamespaceId; never removed.
  absl::flat_hash_map<Digest, NamespaceId> namespace_by_fingerprint_;
  absl::flat_hash_set<Digest> saved_artifacts_;
  uint64_t artifact_bytes_arriving_ = 0;  // Of artifacts that are being written, and known once they are.
  absl::flat_hash_map<SessionId, Session> sessions_;
  absl::flat_hash_map<EntryName, PutInFlight> puts_;
  std::deque<RoomWaiter> room_waiters_;  // By turns, lowest first.
  uint64_t served_turn_ = 0;             // Of the one that is being tried, which is not among them; 0: none.
  std::vector<Task> commit_waiters_;     // Filled puts whose codes found no room in the first tier.
  std::map<std::pair<EntryId, uint16_t>, std::shared_ptr<ReadFlight>> flights_;  // Cold reads, by entry and runs.
  absl::flat_hash_set<const Copy*> healing_;                                     // Held by their heals.
  ScrubState scrub_;
  std::vector<std::shared_ptr<Measuring>> measuring_;  // Calls that wait for headers.
  std::priority_queue<Expiry, std::vector<Expiry>, std::greater<>> expiries_;
  std::vector<TierState> tiers_;
  absl::flat_hash_map<uint64_t, std::vector<Task>> when_idle_;  // By generation of the entry that moves.
  FactWriter fact_writer_;
  std::deque<QueuedFact> fact_queue_;
  bool handing_over_fact_ = false;  // By one thread at a time: the writer gets facts in the order of the queue.
  StoreStats totals_;               // The store-wide counters; `tiers` stays empty.
  std::atomic<uint64_t> last_turn_{0};
  uint64_t last_generation_ = 0;
  SessionId last_session_ = 0;
  uint64_t moves_in_flight_ = 0;
  uint64_t readers_ = 0;
  uint64_t pins_ = 0;
  bool pumping_ = false;
  bool pump_again_ = false;
  bool room_service_posted_ = false;  // Until it has ended.
  bool room_service_again_ = false;
  bool draining_ = false;  // No new puts; what is there is being saved.
  bool stopping_ = false;
};

}  // namespace firn
