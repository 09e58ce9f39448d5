// The faults of `firn chaos`, all of them safe: they reach the run's own daemon and its own folder alone.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "client/cli/chaos/chaos_run.h"
#include "client/cli/chaos/damage.h"

namespace firn::cli {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kEndMsMax = 60'000;
constexpr int64_t kBackMsMax = 60'000;  // From room on the disk to the first durable put; from a child to the next.
constexpr int64_t kStallMsMax = 2'000;

void SleepMs(int64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// The GPU child: the only one that a daemon has. Any of its threads may have started it. 0: there is none.
pid_t ChildOf(pid_t daemon) {
  pid_t child = 0;
  std::error_code error;
  for (const auto& task : fs::directory_iterator(fmt::format("/proc/{}/task", daemon), error)) {
    std::ifstream children(task.path() / "children");
    for (pid_t next = 0; children >> next;) child = next;
  }
  return child;
}

}  // namespace

template <int kHow>
absl::StatusOr<std::string> ChaosRun::Segment(std::mt19937_64& random) {
  state_.ledger.Damaged();
  auto done = DamageSegment(static_cast<SegmentDamage>(kHow), daemon_.cold_path(), random);
  state_.ledger.Damaged();
  return done;
}

const std::vector<ChaosRun::Fault>& ChaosRun::AllFaults() {
  static const std::vector<Fault> faults = {
      {"kill", &ChaosRun::Kill},
      {"restart", &ChaosRun::Restart},
      {"stall", &ChaosRun::Stall},
      {"flipped bytes", &ChaosRun::Segment<int{static_cast<int>(SegmentDamage::kFlip)}>},
      {"zeroed sectors", &ChaosRun::Segment<int{static_cast<int>(SegmentDamage::kZero)}>},
      {"swapped pages", &ChaosRun::Segment<int{static_cast<int>(SegmentDamage::kSwap)}>},
      {"cut segment", &ChaosRun::Segment<int{static_cast<int>(SegmentDamage::kTruncate)}>},
      {"deleted segment", &ChaosRun::Segment<int{static_cast<int>(SegmentDamage::kDelete)}>},
      {"damaged index", &ChaosRun::Index},
      {"full disk", &ChaosRun::FillDisk},
      {"killed GPU child", &ChaosRun::KillGpuChild}};
  return faults;
}

std::vector<ChaosRun::Fault> ChaosRun::FaultsHere() {
  const std::string no_fill = WhyNotFill(options_.folder);
  std::vector<Fault> faults;
  for (const Fault& fault : AllFaults()) {
    if (fault.inject == &ChaosRun::FillDisk && !no_fill.empty()) {
      report_.skipped[fault.name] = no_fill;
    } else if (fault.inject == &ChaosRun::KillGpuChild && options_.gpu.empty()) {
      report_.skipped[fault.name] = "no tier is on a GPU";
    } else {
      faults.push_back(fault);
    }
  }
  return faults;
}

template <typename End, typename Meanwhile>
absl::StatusOr<std::string> ChaosRun::Cycle(End end, Meanwhile meanwhile) {
  state_.ledger.MemoryLost();
  FIRN_RETURN_IF_ERROR(end());
  stats_.Ended();
  std::string what = meanwhile();
  state_.ledger.MemoryLost();
  FIRN_RETURN_IF_ERROR(Start());
  return fmt::format("{}ready after {} ms", what, daemon_.ready_ms());
}

absl::StatusOr<std::string> ChaosRun::Kill(std::mt19937_64&) {
  return Cycle(
      [this] {
        daemon_.KillNow();
        return absl::OkStatus();
      },
      [] { return std::string(); });
}

absl::StatusOr<std::string> ChaosRun::Restart(std::mt19937_64&) {
  return Cycle(
      [this]() -> absl::Status {
        int code = daemon_.Terminate(kEndMsMax);
        return code == 0 ? absl::OkStatus() : absl::InternalError(fmt::format("told to end, it ended with {}", code));
      },
      [] { return std::string(); });
}

absl::StatusOr<std::string> ChaosRun::Stall(std::mt19937_64& random) {
  const int64_t ms = 1 + static_cast<int64_t>(random() % kStallMsMax);
  ::kill(daemon_.pid(), SIGSTOP);
  SleepMs(ms);
  ::kill(daemon_.pid(), SIGCONT);
  return fmt::format("for {} ms", ms);
}

absl::StatusOr<std::string> ChaosRun::Index(std::mt19937_64& random) {
  return Cycle(
      [this] {
        daemon_.KillNow();
        return absl::OkStatus();
      },
      [&] {
        state_.ledger.Damaged();
        auto done = DamageIndex(daemon_.cold_path(), random);
        state_.ledger.Damaged();
        return (done.ok() ? *done : Message(done.status())) + "; ";
      });
}

absl::StatusOr<std::string> ChaosRun::FillDisk(std::mt19937_64& random) {
  const fs::path filler = options_.folder / "filler";
  FIRN_RETURN_IF_ERROR(FillUp(filler));
  SleepMs(static_cast<int64_t>(random() % 2'000));
  std::error_code error;
  fs::remove(filler, error);
  if (error) return ErrnoStatus(error.value(), "remove " + filler.string());
  // Writes come back by themselves. The clients are still, as the block is one of theirs.
  state_.gate.Pause();
  const int64_t begun_ns = Clock::Real()->NowNs();
  int64_t ms = 0;
  bool back = false;
  while (!back && ms < kBackMsMax) {
    const uint64_t before = state_.tally.durable_puts;
    checker_->Delete(1);
    checker_->Put(1, true);
    back = state_.tally.durable_puts > before;
    ms = (Clock::Real()->NowNs() - begun_ns) / 1'000'000;
    if (!back) SleepMs(20);
  }
  state_.gate.Resume();
  if (!back) return absl::InternalError(fmt::format("no durable put {} ms after there was room again", ms));
  return fmt::format("durable puts again {} ms after there was room", ms);
}

absl::StatusOr<std::string> ChaosRun::KillGpuChild(std::mt19937_64&) {
  const pid_t child = ChildOf(daemon_.pid());
  if (child == 0) return NotFound("the daemon has no child now");
  state_.ledger.MemoryLost();
  ::kill(child, SIGKILL);
  const int64_t begun_ns = Clock::Real()->NowNs();
  int64_t ms = 0;
  for (bool back = false; !back;) {
    const pid_t now = ChildOf(daemon_.pid());
    back = now != 0 && now != child;
    ms = (Clock::Real()->NowNs() - begun_ns) / 1'000'000;
    if (ms > kBackMsMax) return absl::InternalError(fmt::format("no new GPU child after {} ms", ms));
    if (!back) SleepMs(10);
  }
  state_.ledger.MemoryLost();
  return fmt::format("a new one after {} ms", ms);
}

}  // namespace firn::cli
