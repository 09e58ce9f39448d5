// demote_bench: how fast blocks move down, between every pair of tiers, and how fast precision is given up in place.
//
//   demote_bench [--folder DIR] [--blocks N] [--rounds N] [--only NAME] [--json FILE]
//
// For each movement: the FP16 bytes that the moved blocks represent a second (what a demotion is worth), the bytes
// written to the destination a second (what the link carries), and the latter against the link's own ceiling: memcpy by
// as many threads for DRAM and CXL, sequential direct writes with fdatasync for NVMe. Moves to NVMe count until they
// are durable.

#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/status.h"
#include "base/units.h"
#include "tests/bench/movement/chain_store.h"
#include "tests/bench/support/report.h"

namespace firn::bench {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// memcpy of buffers far larger than the cache, by `threads` at once: bytes a second.
double MemcpyCeiling(size_t threads) {
  constexpr uint64_t kBytesEach = 128 * kMiB;
  std::vector<std::vector<uint8_t>> sources(threads, std::vector<uint8_t>(kBytesEach, 1)), targets = sources;
  std::vector<double> rates;
  for (int round = 0; round < 5; ++round) {
    auto start = Clock::now();
    std::vector<std::thread> copiers;
    for (size_t t = 0; t < threads; ++t) {
      copiers.emplace_back([&, t] { std::memcpy(targets[t].data(), sources[t].data(), kBytesEach); });
    }
    for (auto& copier : copiers) copier.join();
    rates.push_back(static_cast<double>(threads * kBytesEach) / SecondsSince(start));
  }
  Keep(targets);
  return Median(rates);
}

// 1 MiB direct writes by four threads to a file in `folder`, until durable: bytes a second.
absl::StatusOr<double> WriteCeiling(const std::string& folder) {
  constexpr uint64_t kBytes = 256 * kMiB, kPiece = kMiB;
  constexpr int kThreads = 4;
  std::string path = folder + "/ceiling";
  int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT | O_CLOEXEC, 0600);
  if (fd < 0 && errno == EINVAL) fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return ErrnoStatus(errno, "create " + path);
  void* memory = std::aligned_alloc(4096, kPiece);
  std::memset(memory, 5, kPiece);
  std::vector<double> rates;
  std::atomic<int> error_number{posix_fallocate(fd, 0, kBytes)};
  for (int round = 0; round < 3 && error_number == 0; ++round) {
    auto start = Clock::now();
    std::atomic<uint64_t> next{0};
    std::vector<std::thread> writers;
    for (int t = 0; t < kThreads; ++t) {
      writers.emplace_back([&] {
        for (uint64_t at = next.fetch_add(kPiece); at < kBytes; at = next.fetch_add(kPiece)) {
          if (pwrite(fd, memory, kPiece, static_cast<off_t>(at)) != static_cast<ssize_t>(kPiece)) error_number = errno;
        }
      });
    }
    for (auto& writer : writers) writer.join();
    if (fdatasync(fd) != 0) error_number = errno;
    rates.push_back(static_cast<double>(kBytes) / SecondsSince(start));
  }
  close(fd);
  unlink(path.c_str());
  std::free(memory);
  if (error_number != 0) return ErrnoStatus(error_number, "write " + path);
  return Median(rates);
}

struct Movement {
  const char* name;
  std::vector<uint8_t> path;  // Tiers on the way, the measured move last.
  const char* ceiling;
};

class DemoteBench {
 public:
  DemoteBench(ChainStore* chain, uint64_t blocks, int rounds, Report* report)
      : chain_(chain), blocks_(blocks), rounds_(rounds), report_(report) {}

  absl::Status Move(const Movement& movement, double ceiling) {
    std::vector<double> seconds;
    uint64_t link_bytes = 0;
    uint8_t target = movement.path.back();
    for (int round = -1; round < rounds_; ++round) {  // The first one warms up.
      FIRN_RETURN_IF_ERROR(Fill());
      for (size_t i = 0; i + 1 < movement.path.size(); ++i)
        FIRN_RETURN_IF_ERROR(chain_->Demote(0, blocks_, movement.path[i]));
      auto start = Clock::now();
      FIRN_RETURN_IF_ERROR(chain_->Demote(0, blocks_, target));
      if (target == kCold) FIRN_RETURN_IF_ERROR(chain_->Flush());
      if (round >= 0) seconds.push_back(SecondsSince(start));
      FIRN_ASSIGN_OR_RETURN(link_bytes, chain_->BytesIn(0, blocks_, target));
      chain_->Clear();
    }
    Record(movement.name, Median(seconds), link_bytes, ceiling, movement.ceiling);
    return absl::OkStatus();
  }

  // Degrading where blocks lie: no byte crosses a link in memory, so the ceiling is what a copy of the kept planes
  // would take.
  absl::Status Degrade(const char* name, const std::vector<uint8_t>& path, PrecisionClass target, double ceiling,
                       const char* note) {
    std::vector<double> seconds;
    uint64_t kept_bytes = 0;
    for (int round = -1; round < rounds_; ++round) {
      FIRN_RETURN_IF_ERROR(Fill());
      for (uint8_t tier : path) FIRN_RETURN_IF_ERROR(chain_->Demote(0, blocks_, tier));
      if (path.back() == kCold) FIRN_RETURN_IF_ERROR(chain_->Flush());
      auto start = Clock::now();
      FIRN_RETURN_IF_ERROR(chain_->Degrade(0, blocks_, path.back(), target));
      if (path.back() == kCold) FIRN_RETURN_IF_ERROR(chain_->Flush());
      if (round >= 0) seconds.push_back(SecondsSince(start));
      FIRN_ASSIGN_OR_RETURN(kept_bytes, chain_->BytesIn(0, blocks_, path.back()));
      chain_->Clear();
    }
    Record(name, Median(seconds), kept_bytes, ceiling, note);
    return absl::OkStatus();
  }

 private:
  absl::Status Fill() {
    for (uint64_t i = 0; i < blocks_; ++i) FIRN_RETURN_IF_ERROR(chain_->Put(i));
    return absl::OkStatus();
  }
  void Record(const std::string& name, double seconds, uint64_t link_bytes, double ceiling, const char* note) {
    auto represented = static_cast<double>(blocks_ * chain_->block_bytes());
    report_->Value(name + "_represented", represented / seconds / 1e9, "GB/s", "FP16 bytes of the blocks moved");
    report_->Ratio({name, static_cast<double>(link_bytes) / seconds / 1e9, ceiling / 1e9, "GB/s", note});
  }

  ChainStore* const chain_;
  const uint64_t blocks_;
  const int rounds_;
  Report* const report_;
};

absl::Status Run(const std::string& parent, uint64_t blocks, int rounds, const std::string& only, Report* report) {
  TempFolder folder(parent);
  FIRN_ASSIGN_OR_RETURN(std::unique_ptr<ChainStore> chain, ChainStore::Open(folder.path(), kBlockTokens));
  double memory = MemcpyCeiling(chain->threads());
  FIRN_ASSIGN_OR_RETURN(double disk, WriteCeiling(folder.path()));
  report->Value("ceiling_memcpy", memory / 1e9, "GB/s", "memcpy by as many threads as the executor has");
  report->Value("ceiling_nvme_write", disk / 1e9, "GB/s", "direct writes of 1 MiB, durable");
  DemoteBench bench(chain.get(), blocks, rounds, report);
  const char *copy = "link bytes against memcpy", *write = "link bytes against direct writes";
  for (const Movement& movement : {Movement{"demote_hot_dram_int8", {kWarm}, copy},
                                   {"demote_hot_cxl_int4", {kCxl}, copy},
                                   {"demote_hot_nvme_int4", {kCold}, write},
                                   {"demote_dram_cxl_int4", {kWarm, kCxl}, copy},
                                   {"demote_dram_nvme_int4", {kWarm, kCold}, write},
                                   {"demote_cxl_nvme_int4", {kCxl, kCold}, write}}) {
    if (!only.empty() && only != movement.name) continue;
    FIRN_RETURN_IF_ERROR(bench.Move(movement, movement.ceiling == copy ? memory : disk));
  }
  if (!only.empty()) return absl::OkStatus();
  FIRN_RETURN_IF_ERROR(bench.Degrade("degrade_dram_int4", {kWarm}, PrecisionClass::k4Bit, memory,
                                     "planes kept, without moving them, against memcpy of as many"));
  return bench.Degrade("degrade_nvme_int2", {kCold}, PrecisionClass::k2Bit, disk, "link bytes against direct writes");
}

int Main(int argc, char** argv) {
  CLI::App app("Demotion between every pair of tiers, and degrading in place");
  std::string folder, json, only;
  uint64_t blocks = 96;
  int rounds = 5;
  app.add_option("--folder", folder, "Where the CXL file and the cold tier go (default: $TMPDIR or /tmp)");
  app.add_option("--blocks", blocks, "Blocks of 2 MiB a round")->check(CLI::Range(1, 256))->capture_default_str();
  app.add_option("--rounds", rounds, "Rounds")->check(CLI::Range(1, 100))->capture_default_str();
  app.add_option("--only", only, "Measure this movement alone, e.g. demote_dram_cxl_int4");
  app.add_option("--json", json, "Write the figures to this file");
  CLI11_PARSE(app, argc, argv);
  Report report("demote_bench");
  absl::Status status = Run(folder, blocks, rounds, only, &report);
  if (status.ok()) status = report.Finish(json);
  if (status.ok()) return 0;
  std::fprintf(stderr, "demote_bench: %s\n", Message(status).c_str());
  return 1;
}

}  // namespace
}  // namespace firn::bench

int main(int argc, char** argv) { return firn::bench::Main(argc, argv); }
