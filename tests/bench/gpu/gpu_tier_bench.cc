// gpu_tier_bench: how fast blocks come into a GPU's pool, out of it, and down to DRAM at lower precision, through the
// GPU tier and its child process.
//
//   gpu_tier_bench [--cpu] [--mib 1,4,16,64] [--in-flight 1,8,64] [--only NAME,...] [--rounds N] [--json FILE]
//
// Each figure is the FP16 bytes of the blocks moved a second, against a pinned copy of FP16 bytes in the same direction
// in the same run (`--cpu`: against memcpy), median of the rounds. `commit_staging` leaves out what fills the staging
// memory; `commit_arena` takes the blocks from where the DRAM tier has them; `read` brings them into staging; the
// others re-code on the GPU and commit the codes in the DRAM tier, whose copies stay until the round is over. A
// ratio can be no more than the bytes of FP16 over those of the codes. Lines that end with `_scattered` have a DRAM
// tier of which no two free pages are neighbours. `cpu_` lines: seconds of processor time of both processes a GB of
// FP16.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "base/status.h"
#include "base/units.h"
#include "tests/bench/gpu/gpu_chain.h"
#include "tests/bench/gpu/reference_copy.h"
#include "tests/bench/support/process.h"
#include "tests/bench/support/report.h"

namespace firn::bench {
namespace {

using Clock = std::chrono::steady_clock;
using enum PrecisionClass;

struct Settings {
  std::vector<uint64_t> mib{1, 4, 16, 64}, in_flight{1, 8, 64};
  std::vector<std::string> only;
  uint64_t source_mib = 2048;
  int rounds = 5;
  bool cpu = false, scattered = true;
};

struct CodingCase {
  const char* name;
  PrecisionClass precision;
  bool balanced, fp8;
};
constexpr CodingCase kCodings[] = {
    {"int8_balanced", k8Bit, true, false}, {"int4_balanced", k4Bit, true, false}, {"int2_balanced", k2Bit, true, false},
    {"int8_channel", k8Bit, false, false}, {"int4_channel", k4Bit, false, false}, {"int2_channel", k2Bit, false, false},
    {"fp8", k8Bit, false, true},
};
// Operations of a round, where the blocks are small: enough for a rate, and not so many that one at a time takes long.
constexpr uint64_t kOperationsEach = 256;

class GpuTierBench {
 public:
  GpuTierBench(GpuChain* chain, const Settings& settings, const CopyRates& reference, Report* report)
      : chain_(chain), settings_(settings), reference_(reference), report_(report) {}

  absl::Status Run(const std::string& suffix, const std::vector<uint64_t>& in_flight) {
    suffix_ = suffix;
    for (uint64_t mib : settings_.mib) {
      FIRN_RETURN_IF_ERROR(Prepare(mib));
      for (uint64_t at_once : in_flight) FIRN_RETURN_IF_ERROR(MeasureAt(at_once));
      in_arena_.clear();
      arena_copies_.clear();
      hot_.clear();
    }
    return absl::OkStatus();
  }

 private:
  bool Wanted(const std::string& name) const {
    const auto& only = settings_.only;
    return only.empty() || std::find(only.begin(), only.end(), name) != only.end();
  }

  // Blocks of one size: each in the arena, and each in the pool.
  absl::Status Prepare(uint64_t mib) {
    mib_ = mib;
    block_bytes_ = mib * kMiB;
    FIRN_ASSIGN_OR_RETURN(block_, chain_->MakeBlock(static_cast<uint32_t>(block_bytes_ / GpuChain::kTokenBytes)));
    uint64_t blocks = std::max<uint64_t>(1, settings_.source_mib / mib);
    for (uint64_t i = 0; i < blocks; ++i) {
      FIRN_ASSIGN_OR_RETURN(CopyPtr copy, chain_->PutWarm(block_));
      FIRN_ASSIGN_OR_RETURN(EncodedBlock there, chain_->ReadWarm(copy));
      arena_copies_.push_back(std::move(copy));
      in_arena_.push_back(std::move(there));
    }
    hot_.assign(blocks, nullptr);
    return chain_->RunAll(blocks, CommitsAtOnce(8),
                          [this](uint64_t i, auto done) { Commit(i, true, std::move(done)); });
  }

  // As many as staging has room for.
  uint64_t CommitsAtOnce(uint64_t wanted) const {
    return std::clamp<uint64_t>(chain_->staging_bytes() / block_bytes_, 1, wanted);
  }
  void Commit(uint64_t i, bool from_arena, absl::AnyInvocable<void(absl::Status)> done) {
    chain_->CommitHot(block_, from_arena ? &in_arena_[i] : nullptr,
                      [this, i, done = std::move(done)](absl::StatusOr<CopyPtr> copy) mutable {
                        if (copy.ok()) hot_[i] = *std::move(copy);
                        done(copy.status());
                      });
  }

  absl::Status MeasureAt(uint64_t in_flight) {
    const uint64_t blocks = hot_.size();
    in_flight_ = in_flight;
    // From memory to the pool last: a round begins without what it makes. The last makes it from the arena.
    if (Wanted("read")) {
      FIRN_RETURN_IF_ERROR(Measure("read", reference_.down, 1, blocks, [this, blocks](uint64_t i, auto done) {
        chain_->ReadHot(hot_[i % blocks], std::move(done));
      }));
    }
    for (const CodingCase& coding : kCodings) {
      if (Wanted(coding.name)) FIRN_RETURN_IF_ERROR(MeasureDemotion(coding));
    }
    for (bool from_arena : {false, true}) {
      std::string name = from_arena ? "commit_arena" : "commit_staging";
      if (!Wanted(name)) continue;
      in_flight_ = CommitsAtOnce(in_flight);
      if (in_flight_ != in_flight && in_flight != settings_.in_flight.back()) continue;
      FIRN_RETURN_IF_ERROR(Measure(name, reference_.up, 1, blocks, [&](uint64_t i, auto done) {
        hot_[i] = nullptr;
        Commit(i, from_arena, std::move(done));
      }));
      // Where a round was shorter than all blocks the others kept theirs; those from staging hold anything.
      if (from_arena || !Wanted("commit_arena")) {
        FIRN_RETURN_IF_ERROR(chain_->RunAll(blocks, CommitsAtOnce(8), [&](uint64_t i, auto done) {
          hot_[i] = nullptr;
          Commit(i, true, std::move(done));
        }));
      }
    }
    return absl::OkStatus();
  }

  absl::Status MeasureDemotion(const CodingCase& coding) {
    EncodeSpec spec = chain_->Spec(coding.precision, coding.balanced);
    spec.use_fp8 = coding.fp8;
    EncodedBlock source = block_;
    FIRN_ASSIGN_OR_RETURN(EncodePlan plan, PlanEncode(source, spec));
    double at_most = static_cast<double>(block_bytes_) / static_cast<double>(plan.layout.TotalBytes());
    const uint64_t blocks = hot_.size();
    return Measure(coding.name, reference_.down, at_most, std::max(blocks, in_flight_),
                   [this, spec, blocks](uint64_t i, auto done) {
                     chain_->Demote(hot_[i % blocks], spec,
                                    [this, done = std::move(done)](absl::StatusOr<CopyPtr> copy) mutable {
                                      absl::Status status = copy.status();
                                      if (copy.ok()) {
                                        std::lock_guard lock(mu_);
                                        made_.push_back(*std::move(copy));
                                      }
                                      done(std::move(status));
                                    });
                   });
  }

  absl::Status Measure(const std::string& what, double reference, double at_most, uint64_t count_max,
                       const GpuChain::Operation& operation) {
    const uint64_t count = std::min(count_max, kOperationsEach * std::max<uint64_t>(in_flight_, 1));
    const double bytes = static_cast<double>(count * block_bytes_);
    std::vector<double> rates;
    double own = 0, child = 0;
    for (int round = -1; round < settings_.rounds; ++round) {
      double own_before = OwnCpuSeconds(), child_before = chain_->ChildCpuSeconds();
      auto start = Clock::now();
      FIRN_RETURN_IF_ERROR(chain_->RunAll(count, in_flight_, operation));
      double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      if (round >= 0) {
        rates.push_back(bytes / seconds);
        own += OwnCpuSeconds() - own_before;
        child += chain_->ChildCpuSeconds() - child_before;
      }
      std::lock_guard lock(mu_);
      made_.clear();
    }
    std::string name = what + suffix_ + "_" + std::to_string(mib_) + "mib_x" + std::to_string(in_flight_);
    double gigabytes = bytes * settings_.rounds / 1e9;
    report_->Ratio(
        {name, Median(rates) / 1e9, reference / 1e9, "GB/s",
         fmt::format("at most {:.2f}; cpu {:.4f} + {:.4f} s a GB", at_most, own / gigabytes, child / gigabytes)});
    return absl::OkStatus();
  }

  GpuChain* const chain_;
  const Settings settings_;
  const CopyRates reference_;
  Report* const report_;
  std::string suffix_;
  uint64_t mib_ = 0, block_bytes_ = 0, in_flight_ = 1;
  EncodedBlock block_;
  std::vector<CopyPtr> arena_copies_, hot_;
  std::vector<EncodedBlock> in_arena_;
  std::mutex mu_;
  std::vector<CopyPtr> made_;  // Guarded by mu_.
};

absl::Status Run(const Settings& settings, GpuChainOptions options, Report* report) {
  CopyRates reference = MemcpyRates();
  if (!settings.cpu) {
    FIRN_ASSIGN_OR_RETURN(reference, PinnedCopyRates(static_cast<int>(options.device)));
  }
  const char* what = settings.cpu ? "memcpy, one thread" : "pinned cudaMemcpyAsync of 64 MiB pieces";
  report->Value("reference_down", reference.down / 1e9, "GB/s", what);
  report->Value("reference_up", reference.up / 1e9, "GB/s", what);
  const uint64_t largest = *std::max_element(settings.mib.begin(), settings.mib.end()) * kMiB;
  const uint64_t at_once = *std::max_element(settings.in_flight.begin(), settings.in_flight.end());
  const uint64_t source = std::max(settings.source_mib * kMiB, largest);
  options.pool_bytes = source + source / 8;
  // The blocks themselves, and the codes of a round: at INT8 a little more than half, small ones in slots.
  options.arena_bytes = source + std::max(source, largest * at_once) * 5 / 8 + 64 * kMiB;
  FIRN_ASSIGN_OR_RETURN(std::unique_ptr<GpuChain> chain, GpuChain::Open(options));
  std::printf("device: %s\n", chain->DeviceName().c_str());
  GpuTierBench bench(chain.get(), settings, reference, report);
  FIRN_RETURN_IF_ERROR(bench.Run("", settings.in_flight));
  if (settings.scattered) {
    FIRN_RETURN_IF_ERROR(chain->ScatterWarm());
    FIRN_RETURN_IF_ERROR(bench.Run("_scattered", {at_once}));
  }
  if (!settings.cpu) {
    FIRN_ASSIGN_OR_RETURN(CopyRates after, PinnedCopyRates(static_cast<int>(options.device)));
    report->Value("reference_down_after", after.down / 1e9, "GB/s", what);
    report->Value("reference_up_after", after.up / 1e9, "GB/s", what);
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  CLI::App app("The GPU tier: into the pool, out of it, and down to DRAM");
  Settings settings;
  GpuChainOptions options;
  const char* program = std::getenv("FIRN_GPU_PROGRAM");
  options.program = program != nullptr ? program : FIRND_GPU_PROGRAM;
  uint64_t staging_mib = 256, scratch_mib = 256;
  std::string json;
  app.add_flag("--cpu", settings.cpu, "The processor in place of a GPU");
  app.add_option("--program", options.program, "firnd-gpu")->capture_default_str();
  app.add_option("--device", options.device, "Which GPU");
  app.add_option("--mib", settings.mib, "FP16 MiB a block, a list")->delimiter(',')->check(CLI::Range(1, 64));
  app.add_option("--in-flight", settings.in_flight, "Blocks at a time, a list")
      ->delimiter(',')
      ->check(CLI::Range(1, 64));
  app.add_option("--only", settings.only, "Measure these alone, e.g. read,int4_balanced")->delimiter(',');
  app.add_option("--source-mib", settings.source_mib, "FP16 MiB in the pool")->check(CLI::Range(1, 1 << 16));
  app.add_option("--staging-mib", staging_mib, "Of the GPU tier")->check(CLI::Range(8, 1 << 14));
  app.add_option("--scratch-mib", scratch_mib, "Of the child")->check(CLI::Range(8, 1 << 14));
  app.add_option("--rounds", settings.rounds, "Rounds")->check(CLI::Range(1, 100))->capture_default_str();
  app.add_flag("!--no-scattered", settings.scattered, "Leave out the scattered arena");
  app.add_option("--json", json, "Write the figures to this file");
  CLI11_PARSE(app, argc, argv);
  options.cpu = settings.cpu;
  options.staging_bytes = staging_mib * kMiB;
  options.scratch_bytes = scratch_mib * kMiB;
  Report report("gpu_tier_bench");
  absl::Status status = Run(settings, options, &report);
  if (status.ok()) status = report.Finish(json);
  if (status.ok()) return 0;
  std::fprintf(stderr, "gpu_tier_bench: %s\n", Message(status).c_str());
  return 1;
}

}  // namespace
}  // namespace firn::bench

int main(int argc, char** argv) { return firn::bench::Main(argc, argv); }
