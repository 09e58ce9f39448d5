// latency_bench: how long a warm and a cold Get of 1 MiB take, while nothing else happens and while blocks are demoted.
//
//   latency_bench [--folder DIR] [--gets N] [--json FILE]
//
// A Get is timed from the call to decoded FP16 values in the caller's memory. Under load another thread puts blocks and
// demotes them through warm to NVMe: once as fast as it can, and once at a pace of half of that rate. `ratio` lines
// give p99 under paced load against p99 at rest, in milliseconds: smaller is better, 2 is the goal.

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <random>

#include "base/status.h"
#include "base/units.h"
#include "tests/bench/movement/chain_store.h"
#include "tests/bench/support/report.h"

namespace firn::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kTokens = kBlockTokens / 2;  // 1 MiB.
constexpr uint64_t kWarmBlocks = 64, kColdBlocks = 64;
constexpr uint64_t kLoadFirst = 1'000'000, kLoadBatch = 4;
constexpr double kPaceShare = 0.5;

// Puts blocks and demotes them, over and over, until it is destroyed.
class DemotionLoad {
 public:
  // `bytes_per_second` 0: as fast as it goes.
  DemotionLoad(ChainStore* chain, double bytes_per_second)
      : chain_(chain), bytes_per_second_(bytes_per_second), start_(Clock::now()), thread_([this] { Loop(); }) {}
  ~DemotionLoad() { static_cast<void>(Finish()); }
  double BytesPerSecond() const {
    return static_cast<double>(bytes_) / std::chrono::duration<double>(Clock::now() - start_).count();
  }
  // Ends the load; its error, if it had one.
  absl::Status Finish() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return status_;
  }

 private:
  void Loop() {
    for (uint64_t first = kLoadFirst; !stop_ && status_.ok(); first += kLoadBatch) {
      status_ = Batch(first);
      bytes_ += kLoadBatch * chain_->block_bytes();
      if (bytes_per_second_ == 0) continue;
      auto due = start_ + std::chrono::duration_cast<Clock::duration>(
                              std::chrono::duration<double>(static_cast<double>(bytes_) / bytes_per_second_));
      std::this_thread::sleep_until(due);
    }
  }
  absl::Status Batch(uint64_t first) {
    for (uint64_t i = 0; i < kLoadBatch; ++i) FIRN_RETURN_IF_ERROR(chain_->Put(first + i));
    FIRN_RETURN_IF_ERROR(chain_->Demote(first, kLoadBatch, kWarm));
    FIRN_RETURN_IF_ERROR(chain_->Demote(first, kLoadBatch, kCold));
    for (uint64_t i = 0; i < kLoadBatch; ++i) {
      FIRN_RETURN_IF_ERROR(chain_->store()->Delete(chain_->ns(), ChainStore::Key(first + i)));
    }
    return absl::OkStatus();
  }

  ChainStore* const chain_;
  const double bytes_per_second_;
  const Clock::time_point start_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> bytes_{0};
  absl::Status status_;
  std::thread thread_;
};

struct Latency {
  double p50_ms = 0, p99_ms = 0;
};

// Random blocks of [first, first + count), one after another.
absl::StatusOr<Latency> MeasureGets(ChainStore* chain, uint64_t first, uint64_t count, int gets,
                                    PrecisionClass expected) {
  std::mt19937_64 random(3);
  std::vector<double> ms;
  for (int i = -gets / 10; i < gets; ++i) {  // A tenth to warm up.
    auto start = Clock::now();
    FIRN_ASSIGN_OR_RETURN(ClassPair served, chain->GetDecoded(first + random() % count));
    double elapsed = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    if (served.Min() != expected) {
      return InternalError("a block was served at {}; {} expected", PrecisionClassName(served.Min()),
                           PrecisionClassName(expected));
    }
    if (i >= 0) ms.push_back(elapsed);
  }
  return Latency{Percentile(ms, 0.5), Percentile(ms, 0.99)};
}

struct Pair {
  Latency warm, cold;
};

absl::StatusOr<Pair> MeasureBoth(ChainStore* chain, int gets) {
  Pair pair;
  FIRN_ASSIGN_OR_RETURN(pair.warm, MeasureGets(chain, 0, kWarmBlocks, gets, PrecisionClass::k8Bit));
  FIRN_ASSIGN_OR_RETURN(pair.cold, MeasureGets(chain, kWarmBlocks, kColdBlocks, gets, PrecisionClass::k4Bit));
  return pair;
}

void Show(Report* report, const std::string& when, const Pair& pair) {
  report->Value("warm_get_p50_" + when, pair.warm.p50_ms, "ms", "1 MiB, INT8 in DRAM, decoded");
  report->Value("warm_get_p99_" + when, pair.warm.p99_ms, "ms", "");
  report->Value("cold_get_p50_" + when, pair.cold.p50_ms, "ms", "1 MiB, INT4 on NVMe, decoded");
  report->Value("cold_get_p99_" + when, pair.cold.p99_ms, "ms", "");
}

absl::Status Run(const std::string& parent, int gets, Report* report) {
  TempFolder folder(parent);
  FIRN_ASSIGN_OR_RETURN(std::unique_ptr<ChainStore> chain, ChainStore::Open(folder.path(), kTokens));
  for (uint64_t i = 0; i < kWarmBlocks + kColdBlocks; ++i) FIRN_RETURN_IF_ERROR(chain->Put(i));
  FIRN_RETURN_IF_ERROR(chain->Demote(0, kWarmBlocks, kWarm));
  FIRN_RETURN_IF_ERROR(chain->Demote(kWarmBlocks, kColdBlocks, kCold));
  FIRN_RETURN_IF_ERROR(chain->Flush());

  FIRN_ASSIGN_OR_RETURN(Pair idle, MeasureBoth(chain.get(), gets));
  Show(report, "idle", idle);
  double alone = 0;
  {
    DemotionLoad load(chain.get(), 0);
    std::this_thread::sleep_for(std::chrono::seconds(3));
    alone = load.BytesPerSecond();
    FIRN_RETURN_IF_ERROR(load.Finish());
  }
  report->Value("demotion_alone", alone / 1e9, "GB/s", "FP16 bytes put and demoted through DRAM to NVMe, nothing else");
  Pair full, paced;
  for (auto [pair, pace, name] :
       {std::tuple(&full, 0.0, "full_demotion"), {&paced, alone * kPaceShare, "paced_demotion"}}) {
    DemotionLoad load(chain.get(), pace);
    FIRN_ASSIGN_OR_RETURN(*pair, MeasureBoth(chain.get(), gets));
    report->Value(std::string(name) + "_rate", load.BytesPerSecond() / 1e9, "GB/s", "demotion beside the Gets");
    Show(report, name, *pair);
    FIRN_RETURN_IF_ERROR(load.Finish());
  }
  report->Ratio(
      {"warm_get_p99_paced_demotion", paced.warm.p99_ms, idle.warm.p99_ms, "ms", "smaller is better; p99 at rest"});
  report->Ratio(
      {"cold_get_p99_paced_demotion", paced.cold.p99_ms, idle.cold.p99_ms, "ms", "smaller is better; p99 at rest"});
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  CLI::App app("Latency of warm and cold Gets, at rest and under demotion");
  std::string folder, json;
  int gets = 1000;
  app.add_option("--folder", folder, "Where the CXL file and the cold tier go (default: $TMPDIR or /tmp)");
  app.add_option("--gets", gets, "Gets of each kind")->check(CLI::Range(100, 1'000'000))->capture_default_str();
  app.add_option("--json", json, "Write the figures to this file");
  CLI11_PARSE(app, argc, argv);
  Report report("latency_bench");
  absl::Status status = Run(folder, gets, &report);
  if (status.ok()) status = report.Finish(json);
  if (status.ok()) return 0;
  std::fprintf(stderr, "latency_bench: %s\n", Message(status).c_str());
  return 1;
}

}  // namespace
}  // namespace firn::bench

int main(int argc, char** argv) { return firn::bench::Main(argc, argv); }
