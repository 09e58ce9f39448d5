// Puts that wait for room: by turns, each answered in time.
#include <algorithm>
#include <utility>

#include "base/status.h"
#include "tiers/store/in_flight_put.h"

namespace firn {

void StoreImpl::BeginPutWhenRoom(const PutSpec& spec, int64_t deadline_ns,
                                 absl::AnyInvocable<void(absl::StatusOr<std::unique_ptr<InFlightPut>>)> done) {
  RoomWaiter waiter{spec, 0, deadline_ns, std::move(done)};
  if (waiter.spec.turn == 0) waiter.spec.turn = NewTurn();
  const uint64_t turn = waiter.spec.turn;
  bool others_first = false;
  {
    std::lock_guard lock(mu_);
    others_first = (!room_waiters_.empty() && room_waiters_.front().spec.turn < turn) ||
                   (served_turn_ != 0 && served_turn_ < turn);
    // What is there, or is refused whatever the room, need not wait to hear so.
    if (others_first) others_first = WantsPlaceLocked(waiter.spec);
  }
  if (!others_first) {
    auto put = BeginPut(waiter.spec);
    if (put.status().code() != absl::StatusCode::kResourceExhausted) return waiter.done(std::move(put));
    if (deadline_ns != 0 && options_.clock->NowNs() >= deadline_ns) return waiter.done(std::move(put));
    bool own = false;
    {
      std::lock_guard lock(mu_);
      own = HoldsAllLocked(turn);
    }
    if (own) return waiter.done(std::move(put));
  }
  {
    std::lock_guard lock(mu_);
    absl::Status checked = CheckPutLocked(spec);
    if (!checked.ok()) {
      options_.executor->Post([checked, done = std::move(waiter.done)]() mutable { done(checked); });
      return;
    }
    const NamespaceFacts& facts = namespaces_[spec.address.ns].facts;
    waiter.bytes = spec.packed != nullptr ? spec.packed->RunBytes(spec.packed->encoded)
                                          : facts.Shape(spec.tokens).values() * DTypeBytes(facts.dtype);
    WaitForRoomLocked(std::move(waiter), false);
    ScheduleRoomWaitersLocked();  // For what came since it was tried.
  }
  Pump();
}

bool StoreImpl::WantsPlaceLocked(const PutSpec& spec) const {
  if (!CheckPutLocked(spec).ok() || (spec.packed != nullptr && !CheckPackedLocked(spec).ok())) return false;
  EntryId existing = table_.Find({spec.address.ns, spec.address.shard, spec.address.key});
  if (existing == kNoEntry || ExpiredLocked(table_.entry(existing))) return true;
  return !ServesLocked(existing, OfferedLocked(spec));
}

bool StoreImpl::HoldsAllLocked(uint64_t turn) const {
  if (puts_.empty() || moves_in_flight_ > 0) return false;  // Moves give room back.
  uint64_t drafts = 0, used = 0;
  for (const TierConfig& tier : options_.tiers) {
    if (!tier.tier->available()) continue;
    TierUsage usage = tier.tier->Usage();
    drafts = usage.draft_bytes, used = usage.used_bytes;
    break;
  }
  if (used > drafts) return false;  // Demotion may make room.
  for (const auto& [name, put] : puts_) {
    if (put.turn != turn) return false;
  }
  return true;
}

void StoreImpl::WaitForRoomLocked(RoomWaiter waiter, bool before_its_equals) {
  auto at = std::partition_point(room_waiters_.begin(), room_waiters_.end(), [&](const RoomWaiter& other) {
    return other.spec.turn < waiter.spec.turn || (!before_its_equals && other.spec.turn == waiter.spec.turn);
  });
  room_waiters_.insert(at, std::move(waiter));
}

void StoreImpl::RefuseLateWaitersLocked() {
  const int64_t now_ns = options_.clock->NowNs();
  // The first is tried once more before it hears no.
  for (auto it = room_waiters_.begin(); it != room_waiters_.end();) {
    if (it == room_waiters_.begin() || it->deadline_ns == 0 || now_ns < it->deadline_ns) {
      ++it;
      continue;
    }
    options_.executor->Post([done = std::move(it->done)]() mutable {
      done(absl::StatusOr<std::unique_ptr<InFlightPut>>(
          ResourceExhausted("no room in the time given: others have waited longer")));
    });
    it = room_waiters_.erase(it);
  }
}

void StoreImpl::ServeRoomWaiters() {
  std::vector<Task> commits;
  {
    std::lock_guard lock(mu_);
    commits = std::exchange(commit_waiters_, {});
    RefuseLateWaitersLocked();
  }
  for (Task& commit : commits) commit();  // Filled already, so they go before puts that have not begun.
  ServeWaitingMoves();
  for (;;) {
    RoomWaiter waiter;
    {
      std::lock_guard lock(mu_);
      if (room_waiters_.empty()) return;
      waiter = std::move(room_waiters_.front());
      room_waiters_.pop_front();
      served_turn_ = waiter.spec.turn;
    }
    auto put = BeginPut(waiter.spec);
    bool late = waiter.deadline_ns != 0 && options_.clock->NowNs() >= waiter.deadline_ns;
    bool waits = put.status().code() == absl::StatusCode::kResourceExhausted && !late;
    {
      std::lock_guard lock(mu_);
      served_turn_ = 0;
      waits = waits && !stopping_ && !HoldsAllLocked(waiter.spec.turn);
      if (waits) WaitForRoomLocked(std::move(waiter), true);
    }
    if (waits) return;
    options_.executor->Post([put = std::move(put), done = std::move(waiter.done)]() mutable { done(std::move(put)); });
  }
}

void StoreImpl::ScheduleRoomWaitersLocked() {
  if (room_service_posted_) {
    room_service_again_ = true;  // What is being tried is in no list, and may have been refused already.
    return;
  }
  bool anybody = !room_waiters_.empty() || !commit_waiters_.empty() ||
                 std::any_of(tiers_.begin(), tiers_.end(), [](const auto& t) { return !t.waiting_moves.empty(); });
  if (!anybody) return;
  room_service_posted_ = true;
  options_.executor->Post([this] {
    ServeRoomWaiters();
    std::lock_guard lock(mu_);
    room_service_posted_ = false;
    if (std::exchange(room_service_again_, false)) ScheduleRoomWaitersLocked();
  });
}

}  // namespace firn
