#include "client/cli/chaos/chaos_run.h"

#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/status.h"

namespace firn::cli {
namespace {

// What is later than this hangs.
constexpr int64_t kReadyMsMax = 60'000;

DaemonOptions OptionsOf(const ChaosOptions& options) {
  DaemonOptions out;
  // Less than the blocks need, so that they move all the time, over a cold tier that has room for all of them.
  out.hot_capacity = out.warm_capacity = "8MiB";
  out.cold_capacity = "256MiB";
  out.hot_backend = options.gpu;
  out.ecc = options.ecc == "none" ? "" : options.ecc;
  out.extra_toml = "[scrub]\nrate = \"64MiB\"\ninterval = \"5s\"\n";
  out.dies_with_starter = true;
  return out;
}

void SleepMs(int64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

double SecondsSince(int64_t ns) { return static_cast<double>(Clock::Real()->NowNs() - ns) / 1e9; }

std::string Tail(const std::string& log) {
  constexpr size_t kTailBytes = 2000;
  return log.size() <= kTailBytes ? log : "..." + log.substr(log.size() - kTailBytes);
}

}  // namespace

ChaosRun::ChaosRun(ChaosOptions options)
    : options_(std::move(options)),
      state_(options_.clients * kBlocksAClient),
      daemon_(options_.firnd, options_.folder, OptionsOf(options_)),
      begun_ns_(Clock::Real()->NowNs()) {
  report_.seed = options_.seed;
}

ChaosRun::~ChaosRun() { StopClients(); }

std::string ChaosRun::At(const std::string& line) const {
  return fmt::format("{:7.2f} s  {}", SecondsSince(begun_ns_), line);
}

absl::Status ChaosRun::Start() {
  FIRN_RETURN_IF_ERROR(daemon_.Start(kReadyMsMax));
  ++report_.starts;
  report_.ready_ms_max = std::max(report_.ready_ms_max, daemon_.ready_ms());
  return absl::OkStatus();
}

bool ChaosRun::IsReady() {
  absl::Status ready = checker_->client().WaitUntilReady(kReadyMsMax);
  if (ready.ok() && daemon_.Running()) return true;
  state_.findings.Add(fmt::format("the daemon {}: {}\n{}", daemon_.pid() < 0 ? "ended" : "is not ready", Message(ready),
                                  Tail(daemon_.Log())));
  return false;
}

void ChaosRun::StartClients() {
  for (uint32_t i = 0; i < options_.clients; ++i) {
    clients_.emplace_back([this, i] {
      RunClient(BlockClient(daemon_.Connect(), &state_), &state_, i, options_.clients, options_.seed + 1 + i);
    });
  }
}

void ChaosRun::StopClients() {
  state_.stop = true;
  state_.gate.Resume();
  for (std::thread& client : clients_) client.join();
  clients_.clear();
}

void ChaosRun::TakeStats() {
  auto stats = checker_->client().GetStats({.deadline_ms = 5'000});
  if (stats.ok()) stats_.Take(*stats);
}

void ChaosRun::CheckPromises(uint64_t one_in, std::mt19937_64& random) {
  for (uint64_t number : state_.ledger.Promised()) {
    if (random() % one_in == 0) checker_->Get(number, true);
  }
}

bool ChaosRun::InjectOne(const Fault& fault, std::mt19937_64& random) {
  TakeStats();
  auto done = (this->*fault.inject)(random);
  const bool nothing_to_do = absl::IsNotFound(done.status());
  std::string line = At(fmt::format("{}: {}", fault.name, done.ok() ? *done : Message(done.status())));
  options_.tell(line);
  report_.events.push_back(std::move(line));
  if (!done.ok() && !nothing_to_do) {
    state_.findings.Add(fmt::format("{}: {}", fault.name, Message(done.status())));
    return false;
  }
  if (!nothing_to_do) ++report_.faults[fault.name];
  if (!IsReady()) return false;
  constexpr uint64_t kOneIn = 4;
  state_.gate.Pause();
  CheckPromises(kOneIn, random);
  state_.gate.Resume();
  return true;
}

void ChaosRun::ScrubAndVerify() {
  auto scrubbed = checker_->client().Scrub(0, {.deadline_ms = 10 * kReadyMsMax});
  if (scrubbed.ok()) {
    report_.scrub = *scrubbed;
  } else {
    state_.findings.Add("scrub: " + Message(scrubbed.status()));
  }
  auto verified = checker_->client().Verify({.deadline_ms = kReadyMsMax});
  report_.consistent = verified.ok() && verified->consistent;
  if (!verified.ok()) state_.findings.Add("verify: " + Message(verified.status()));
  if (verified.ok()) {
    for (const std::string& finding : verified->findings) state_.findings.Add("verify: " + finding);
  }
}

absl::StatusOr<ChaosReport> ChaosRun::Run() {
  FIRN_RETURN_IF_ERROR(Start());
  checker_ = std::make_unique<BlockClient>(daemon_.Connect(), &state_);
  const std::vector<Fault> faults = FaultsHere();
  std::mt19937_64 random(options_.seed);
  StartClients();
  bool alive = true;
  while (alive && SecondsSince(begun_ns_) < options_.seconds) {
    SleepMs(static_cast<int64_t>(200 + random() % 800));
    // What one fault draws must not change the next ones: a run is repeated by its seed.
    const Fault& fault = faults[random() % faults.size()];
    std::mt19937_64 of_fault(random());
    alive = InjectOne(fault, of_fault);
  }
  StopClients();
  if (alive) {
    ScrubAndVerify();
    CheckPromises(1, random);
    TakeStats();
    auto last = Restart(random);  // Once more, with nothing else going on.
    if (last.ok()) {
      CheckPromises(1, random);
      TakeStats();
      int code = daemon_.Terminate(kReadyMsMax);
      if (code != 0) state_.findings.Add(fmt::format("the daemon ended with {}\n{}", code, Tail(daemon_.Log())));
    } else {
      state_.findings.Add(Message(last.status()));
    }
  }
  report_.seconds = SecondsSince(begun_ns_);
  TakeTally(state_.tally, &report_);
  report_.misses = stats_.Misses();
  report_.counters = stats_.Counters();
  report_.finding_count = state_.findings.count();
  report_.findings = state_.findings.texts();
  return report_;
}

}  // namespace firn::cli
