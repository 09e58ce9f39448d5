// scrub_bench: what scrubbing costs those who read meanwhile, and how fast it goes.
//
//   scrub_bench [--folder DIR] [--rounds N] [--json FILE]
//
// Gets of 1 MiB of FP16 values from DRAM at INT8 and from NVMe at INT4, one after another, decoded, are counted for a
// second without and a second with scrubbing over all tiers, in turns; `ratio` lines give the medians with scrubbing
// against those without: 0.9 is the goal at the default pace of 32 MiB a second. Unlimited is beside them, as what
// `firn scrub` without a rate costs.

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
constexpr uint64_t kBlocks = 128;               // In each of the two tiers.

// Passes of scrubbing, one after another, until it is destroyed.
class Scrubbing {
 public:
  Scrubbing(ChainStore* chain, uint64_t bytes_per_second)
      : thread_([=, this] {
          while (!stop_) {
            std::atomic<bool> ended{false};
            chain->store()->Scrub(bytes_per_second, [&](absl::StatusOr<ScrubReport> report) {
              if (report.ok()) bytes_ += report->bytes;
              ended = true;
            });
            while (!ended) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
        }) {}
  ~Scrubbing() {
    stop_ = true;
    thread_.join();
  }
  uint64_t bytes() const { return bytes_; }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> bytes_{0};
  std::thread thread_;
};

// Gets a second over about `seconds`.
absl::StatusOr<double> GetRate(ChainStore* chain, uint64_t first, double seconds) {
  std::mt19937_64 random(5);
  const auto start = Clock::now();
  uint64_t gets = 0;
  double elapsed = 0;
  for (; elapsed < seconds; ++gets) {
    FIRN_RETURN_IF_ERROR(chain->GetDecoded(first + random() % kBlocks).status());
    elapsed = std::chrono::duration<double>(Clock::now() - start).count();
  }
  return static_cast<double>(gets) / elapsed;
}

absl::Status Measure(ChainStore* chain, const char* pace, uint64_t bytes_per_second, int rounds, Report* report) {
  const double gb = static_cast<double>(chain->block_bytes()) / 1e9;
  for (auto [tier, first] : {std::pair{"warm", uint64_t{0}}, {"cold", kBlocks}}) {
    std::vector<double> alone, beside;
    for (int round = 0; round < rounds; ++round) {
      FIRN_ASSIGN_OR_RETURN(double without, GetRate(chain, first, 1));
      Scrubbing scrubbing(chain, bytes_per_second);
      FIRN_ASSIGN_OR_RETURN(double with, GetRate(chain, first, 1));
      alone.push_back(without * gb);
      beside.push_back(with * gb);
    }
    report->Ratio({fmt::format("{}_get_beside_scrub_{}", tier, pace), Median(beside), Median(alone), "GB/s",
                   "FP16 values of Gets beside scrubbing, against the same without"});
  }
  return absl::OkStatus();
}

absl::Status Run(const std::string& parent, int rounds, Report* report) {
  TempFolder folder(parent);
  FIRN_ASSIGN_OR_RETURN(std::unique_ptr<ChainStore> chain, ChainStore::Open(folder.path(), kTokens));
  for (uint64_t i = 0; i < 2 * kBlocks; ++i) {
    FIRN_RETURN_IF_ERROR(chain->Put(i));
    FIRN_RETURN_IF_ERROR(chain->Demote(i, 1, i < kBlocks ? kWarm : kCold));
  }
  FIRN_RETURN_IF_ERROR(chain->Flush());
  {
    Scrubbing scrubbing(chain.get(), 0);
    std::this_thread::sleep_for(std::chrono::seconds(3));
    report->Value("scrub_alone", static_cast<double>(scrubbing.bytes()) / 3e9, "GB/s",
                  "stored bytes read and verified, DRAM and NVMe, nothing else");
  }
  FIRN_RETURN_IF_ERROR(Measure(chain.get(), "default", 32 * kMiB, rounds, report));
  FIRN_RETURN_IF_ERROR(Measure(chain.get(), "256_mib", 256 * kMiB, rounds, report));
  return Measure(chain.get(), "unlimited", 0, rounds, report);
}

int Main(int argc, char** argv) {
  CLI::App app("What scrubbing costs Gets");
  std::string folder, json;
  int rounds = 7;
  app.add_option("--folder", folder, "Where the CXL file and the cold tier go (default: $TMPDIR or /tmp)");
  app.add_option("--rounds", rounds, "Seconds of each kind")->check(CLI::Range(1, 1000))->capture_default_str();
  app.add_option("--json", json, "Write the figures to this file");
  CLI11_PARSE(app, argc, argv);
  Report report("scrub_bench");
  absl::Status status = Run(folder, rounds, &report);
  if (status.ok()) status = report.Finish(json);
  if (status.ok()) return 0;
  std::fprintf(stderr, "scrub_bench: %s\n", Message(status).c_str());
  return 1;
}

}  // namespace
}  // namespace firn::bench

int main(int argc, char** argv) { return firn::bench::Main(argc, argv); }
