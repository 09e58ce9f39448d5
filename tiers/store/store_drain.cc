// Copies that must reach a persistent tier: durable puts, Flush, and the last work before the end.
#include <algorithm>
#include <utility>

#include "base/status.h"
#include "tiers/store/store_impl.h"

namespace firn {

std::optional<uint8_t> StoreImpl::PersistentTier() const {
  for (size_t tier = 0; tier < options_.tiers.size(); ++tier) {
    if (options_.tiers[tier].tier->persistent()) return static_cast<uint8_t>(tier);
  }
  return std::nullopt;
}

void StoreImpl::FlushPersistentTiers(absl::AnyInvocable<void(absl::Status)> done) {
  struct Join {
    std::mutex mu;
    size_t waiting = 1;
    absl::Status status;
    absl::AnyInvocable<void(absl::Status)> done;
  };
  auto join = std::make_shared<Join>();
  join->done = std::move(done);
  auto finish = [join](absl::Status status) {
    bool last = false;
    {
      std::lock_guard lock(join->mu);
      if (join->status.ok()) join->status = std::move(status);
      last = --join->waiting == 0;
    }
    if (last) join->done(join->status);
  };
  for (TierConfig& config : options_.tiers) {
    if (!config.tier->persistent()) continue;
    {
      std::lock_guard lock(join->mu);
      ++join->waiting;
    }
    config.tier->Flush(finish);
  }
  finish(absl::OkStatus());
}

void StoreImpl::SyncRemovals(absl::AnyInvocable<void(absl::Status)> done) {
  FlushPersistentTiers([done = std::move(done)](absl::Status flushed) mutable {
    if (flushed.ok()) return done(std::move(flushed));
    done(absl::Status(flushed.code(), "removed, but it may come back after a crash: " + Message(flushed)));
  });
}

void StoreImpl::MakeDurable(const EntryName& name, uint64_t generation, PutResult result,
                            absl::AnyInvocable<void(absl::StatusOr<PutResult>)> done) {
  AskedMove asked;
  asked.name = name;
  asked.to = *PersistentTier();
  asked.event = EventKind::kStored;  // A copy below; the hot one stays.
  asked.patience_until_ns = options_.clock->NowNs() + kRoomPatienceNs;
  RunAskedMove(asked, [this, result, generation, done = std::move(done)](absl::StatusOr<ClassPair> moved) mutable {
    if (!moved.ok()) return done(moved.status());
    ClassPair durable = *moved;
    FlushPersistentTiers([result, durable, generation, done = std::move(done)](absl::Status flushed) mutable {
      if (!flushed.ok()) return done(flushed);
      result.generation = generation;
      result.durable_class = durable;
      done(result);
    });
  });
}

// A list of shards of blocks on their way to the persistent tier, a few at a time, until a deadline.
struct StoreImpl::Drain {
  std::mutex mu;
  std::vector<EntryName> names;  // Still to go, the next one last.
  size_t moving = 0;
  int64_t deadline_ns = 0;  // 0: none.
  int64_t patience_until_ns = 0;
  uint64_t dropped = 0;
  absl::Status status;
  bool finished = false;
  absl::AnyInvocable<void(uint64_t dropped, absl::Status status)> done;
};

void StoreImpl::StepDrain(std::shared_ptr<Drain> drain) {
  std::optional<uint8_t> to = PersistentTier();
  for (;;) {
    EntryName name;
    {
      std::lock_guard lock(drain->mu);
      bool late = drain->deadline_ns != 0 && options_.clock->NowNs() >= drain->deadline_ns;
      if (late && !drain->names.empty()) {
        drain->dropped += drain->names.size();
        drain->names.clear();
      }
      if (drain->names.empty()) {
        if (drain->moving > 0 || drain->finished) return;
        drain->finished = true;
        break;
      }
      if (drain->moving >= options_.moves_in_flight_max) return;
      name = drain->names.back();
      drain->names.pop_back();
      ++drain->moving;
    }
    AskedMove asked;
    asked.name = name;
    asked.to = *to;
    asked.event = EventKind::kStored;
    asked.patience_until_ns = drain->patience_until_ns;
    RunAskedMove(asked, [this, drain](absl::StatusOr<ClassPair> moved) {
      {
        std::lock_guard lock(drain->mu);
        --drain->moving;
        bool gone = moved.status().code() == absl::StatusCode::kNotFound;
        if (!moved.ok() && !gone) {
          ++drain->dropped;
          if (drain->status.ok()) drain->status = moved.status();
        }
      }
      // On the executor: a move that fails at once must not nest the next one inside it.
      options_.executor->Post([this, drain] { StepDrain(drain); });
    });
  }
  FlushPersistentTiers([drain](absl::Status flushed) {
    if (drain->status.ok()) drain->status = std::move(flushed);
    drain->done(drain->dropped, drain->status);
  });
}

void StoreImpl::Flush(NamespaceId ns, absl::AnyInvocable<void(absl::Status)> done) {
  auto drain = std::make_shared<Drain>();
  absl::Status refused;
  {
    std::lock_guard lock(mu_);
    refused = CheckNamespaceLocked(ns);
    std::optional<uint8_t> to = PersistentTier();
    if (refused.ok() && !to.has_value())
      refused = FailedPrecondition("no tier of this daemon is persistent; nothing can be made durable");
    if (refused.ok()) {
      table_.ForEach([&](EntryId id) {
        const Entry& e = table_.entry(id);
        if (e.ns == ns && table_.HottestTier(id) < *to && table_.FindCopy(id, *to) == nullptr)
          drain->names.push_back(NameOf(e));
      });
    }
  }
  if (!refused.ok()) return done(refused);
  drain->patience_until_ns = options_.clock->NowNs() + kRoomPatienceNs;
  drain->done = [done = std::move(done)](uint64_t, absl::Status status) mutable { done(std::move(status)); };
  StepDrain(std::move(drain));
}

void StoreImpl::Shutdown(int64_t budget_ms, absl::AnyInvocable<void(absl::Status)> done) {
  auto drain = std::make_shared<Drain>();
  std::deque<RoomWaiter> waiters;
  std::vector<Task> watchers, commits;
  {
    std::lock_guard lock(mu_);
    if (stopping_) drain->finished = true;
    waiters = std::exchange(room_waiters_, {});
    watchers = events_.TakeAllWaiting();
    draining_ = true;
    commits = std::exchange(commit_waiters_, {});
    std::optional<uint8_t> to = PersistentTier();
    if (to.has_value() && !stopping_) {
      // The warmest last in the list, so that they are saved first.
      for (int tier = *to - 1; tier >= 0; --tier) {
        for (NodeKind kind : {NodeKind::kNarrow, NodeKind::kDegradable, NodeKind::kRecent}) {
          for (NodeId node : policy_->Order(static_cast<uint8_t>(tier), kind)) {
            EntryId id = table_.copy(node).entry;
            if (table_.HottestTier(id) == tier && table_.FindCopy(id, *to) == nullptr) {
              drain->names.push_back(NameOf(table_.entry(id)));
            }
          }
        }
      }
    }
  }
  for (RoomWaiter& waiter : waiters) waiter.done(Unavailable("the store is stopping"));
  for (Task& wake : watchers) wake();
  // Once more, and then with an answer: nothing waits while draining.
  for (Task& commit : commits) options_.executor->Post(std::move(commit));
  options_.executor->Post([this] { ServeWaitingMoves(); });
  if (drain->finished) return done(absl::OkStatus());
  drain->deadline_ns = options_.clock->NowNs() + budget_ms * 1'000'000;
  drain->done = [this, done = std::move(done)](uint64_t dropped, absl::Status status) mutable {
    {
      std::lock_guard lock(mu_);
      totals_.shutdown_dropped += dropped;
      stopping_ = true;
      for (auto& [name, put] : puts_) put.cancelled = true;
    }
    done(std::move(status));
  };
  StepDrain(std::move(drain));
}

}  // namespace firn
