// How fast the cold tier writes, reads and restarts, beside fio on the same directory with the same block size and
// depth.
//
// Both write through O_DIRECT and io_uring into preallocated files and end with a sync; both read back what they wrote.
// Rounds alternate between the two, and the median of each is compared, since machines drift.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "tiers/cold/open_cold_tier.h"
#include "tiers/conformance/test_blocks.h"

namespace firn {
namespace {

using SteadyClock = std::chrono::steady_clock;

struct BenchOptions {
  std::string directory = ".";
  std::string json;
  uint64_t bytes = kGiB;
  uint64_t block_bytes = 512 * kKiB;  // Of one transfer, fio's and ours.
  uint32_t depth = 32;
  int rounds = 3;
  std::vector<uint64_t> restarts = {10'000, 100'000, 1'000'000};
  bool io = true;
};

struct Row {
  std::string name;
  double ours = 0, other = 0;
};

double SecondsSince(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

uint64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

uint64_t DiskUse(const std::string& directory) {
  uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file()) bytes += entry.file_size();
  }
  return bytes;
}

class Bench {
 public:
  explicit Bench(const BenchOptions& options)
      : options_(options), executor_(2), path_(options.directory + "/cold_bench") {}
  ~Bench() { std::filesystem::remove_all(path_); }

  int Run() {
    if (options_.io) MeasureIo();
    for (uint64_t count : options_.restarts) MeasureRestart(count);
    WriteJson();
    return failed_ ? 1 : 0;
  }

 private:
  void Fail(const std::string& what, const absl::Status& status) {
    std::fprintf(stderr, "%s: %s\n", what.c_str(), Message(status).c_str());
    failed_ = true;
  }

  absl::Status Open(uint64_t capacity, uint64_t pool_bytes, uint64_t* copies) {
    ColdDirectoryOptions where;
    where.directory = path_;
    where.io_depth = options_.depth;
    ColdOptions tier;
    tier.capacity_bytes = capacity;
    tier.executor = &executor_;
    tier.clock = Clock::Real();
    tier.chunk_bytes = options_.block_bytes;
    tier.staging_bytes = tier.read_bytes = pool_bytes;
    tier.notice = [](std::string_view text) {
      std::fprintf(stderr, "%.*s\n", static_cast<int>(text.size()), text.data());
    };
    ColdRecovery recovery;
    recovery.on_copy = [copies](RecoveredCopy) { ++*copies; };
    FIRN_ASSIGN_OR_RETURN(opened_, OpenColdTier(where, tier, recovery));
    return absl::OkStatus();
  }

  void Close() {
    std::atomic<bool> done{false};
    opened_.tier->Close([&](absl::Status) { done = true; });
    while (!done) std::this_thread::sleep_for(std::chrono::microseconds(100));
    opened_.tier.reset();
    opened_.lock.reset();
  }

  // Writes blocks until `count` are acknowledged; seconds.
  double Write(const std::vector<EncodedBlock>& blocks, uint64_t count,
               std::vector<std::pair<CopyPtr, const EncodedBlock*>>* copies) {
    std::atomic<uint64_t> left{count};
    std::mutex mu;
    auto start = SteadyClock::now();
    for (uint64_t i = 0; i < count; ++i) {
      const EncodedBlock& block = blocks[i % blocks.size()];
      for (;;) {
        auto draft = opened_.tier->Reserve(block.Layout(block.present));
        if (!draft.ok()) {
          std::this_thread::sleep_for(std::chrono::microseconds(50));
          continue;
        }
        opened_.tier->Fill(draft->get(), block);
        opened_.tier->Commit(*std::move(draft), block.header, {}, [&, copies](absl::StatusOr<CopyPtr> copy) {
          if (!copy.ok()) {
            Fail("commit", copy.status());
          } else if (copies != nullptr) {
            std::lock_guard lock(mu);
            copies->emplace_back(*std::move(copy), &block);
          }
          --left;
        });
        break;
      }
    }
    while (left > 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
    return SecondsSince(start);
  }

  double Read(const std::vector<std::pair<CopyPtr, const EncodedBlock*>>& copies, uint32_t in_flight_max) {
    std::atomic<uint64_t> left{copies.size()};
    std::atomic<uint32_t> in_flight{0};
    auto start = SteadyClock::now();
    for (const auto& [copy, block] : copies) {
      while (in_flight >= in_flight_max) std::this_thread::sleep_for(std::chrono::microseconds(20));
      ++in_flight;
      opened_.tier->Read(copy, block->header->identity, RunMask::All(),
                         [&, its_block = block](absl::StatusOr<EncodedBlock> read) {
                           if (!read.ok() || read->present != its_block->present) Fail("read", read.status());
                           --in_flight;
                           --left;
                         });
    }
    while (left > 0) std::this_thread::sleep_for(std::chrono::microseconds(20));
    return SecondsSince(start);
  }

  // Bytes per second of one fio run; 0 where there is no fio.
  double Fio(const std::string& mode, const char* section) {
    std::string command = fmt::format(
        "fio --name=firn --filename='{}/fio.dat' --size={} --bs={} --iodepth={} --direct=1 --ioengine=io_uring --rw={} "
        "--fallocate=native --end_fsync=1 --output-format=json 2>/dev/null",
        path_, options_.bytes, options_.block_bytes, options_.depth, mode);
    std::FILE* pipe = popen(command.c_str(), "r");
    if (pipe == nullptr) return 0;
    std::string text;
    char buffer[4096];
    while (size_t got = std::fread(buffer, 1, sizeof(buffer), pipe)) text.append(buffer, got);
    if (pclose(pipe) != 0) return 0;
    size_t at = text.find(fmt::format("\"{}\" : {{", section));
    if (at == std::string::npos) return 0;
    at = text.find("\"bw_bytes\" : ", at);
    return at == std::string::npos ? 0 : std::strtod(text.c_str() + at + std::strlen("\"bw_bytes\" : "), nullptr);
  }

  void MeasureIo() {
    // 4 MiB at 8 bits: base, p4 and p8 go to three streams.
    TestBlockSpec spec{
        "4 MiB", {.layers = 32, .heads = 8, .k_width = 128, .v_width = 128, .tokens = 64}, CodecFamily::kNested};
    std::vector<EncodedBlock> blocks;
    for (uint64_t i = 0; i < 16; ++i) blocks.push_back(MakeTestBlock(spec, TestIdentity(i), i));
    uint64_t record_bytes = blocks[0].Layout(blocks[0].present).TotalBytes();
    uint64_t count = options_.bytes / record_bytes;
    double bytes = static_cast<double>(count * record_bytes);
    std::vector<double> write, read, random_read, fio_write, fio_read, fio_random;
    for (int round = 0; round < options_.rounds; ++round) {
      std::filesystem::remove_all(path_);
      std::filesystem::create_directory(path_);
      fio_write.push_back(Fio("write", "write"));
      fio_read.push_back(Fio("read", "read"));
      fio_random.push_back(Fio("randread", "read"));
      std::filesystem::remove_all(path_);
      uint64_t recovered = 0;
      absl::Status status = Open(2 * options_.bytes + 2 * kGiB, 128 * kMiB, &recovered);
      if (!status.ok()) return Fail("open", status);
      std::printf("io_backend %s\n", std::string(opened_.tier->device().backend()).c_str());
      std::vector<std::pair<CopyPtr, const EncodedBlock*>> copies;
      write.push_back(bytes / Write(blocks, count, &copies));
      uint32_t reads_in_flight =
          static_cast<uint32_t>(std::max<uint64_t>(2, options_.depth * options_.block_bytes / record_bytes + 1));
      read.push_back(bytes / Read(copies, reads_in_flight));
      std::shuffle(copies.begin(), copies.end(), std::mt19937_64(1));
      random_read.push_back(bytes / Read(copies, reads_in_flight));
      copies.clear();
      Close();
    }
    Report("cold_write", Median(write), Median(fio_write));
    Report("cold_read", Median(read), Median(fio_read));
    Report("cold_random_read", Median(random_read), Median(fio_random));
  }

  void Report(const std::string& name, double ours, double fio) {
    rows_.push_back({name, ours, fio});
    std::printf("ratio %s %.3f %.3f %.2f\n", name.c_str(), ours / 1e9, fio / 1e9, fio > 0 ? ours / fio : 0.0);
    std::fflush(stdout);
  }

  void MeasureRestart(uint64_t count) {
    std::filesystem::remove_all(path_);
    uint64_t capacity = count * 4 * kKiB + 4 * kGiB;
    uint64_t copies = 0;
    absl::Status status = Open(capacity, 8 * kMiB, &copies);
    if (!status.ok()) return Fail("open", status);
    TestBlockSpec spec{
        "small", {.layers = 1, .heads = 1, .k_width = 64, .v_width = 64, .tokens = 16}, CodecFamily::kNested};
    EncodedBlock pattern = MakeTestBlock(spec, TestIdentity(0), 0);
    auto start = SteadyClock::now();
    std::atomic<uint64_t> left{count};
    for (uint64_t i = 0; i < count; ++i) {
      auto header = std::make_shared<RecordHeader>(*pattern.header);
      // Keys must differ all over, as real ones do; the checks of the runs are not looked at here.
      std::mt19937_64 random(i);
      for (size_t at = 0; at < 32; at += 8) StoreLe<uint64_t>(header->identity.key.bytes.data() + at, random());
      header->identity.generation = i;
      header->parent = header->identity.key;
      for (;;) {
        auto draft = opened_.tier->Reserve(pattern.Layout(pattern.present));
        if (!draft.ok()) {
          std::this_thread::sleep_for(std::chrono::microseconds(50));
          continue;
        }
        opened_.tier->Fill(draft->get(), pattern);
        opened_.tier->Commit(*std::move(draft), header, {}, [&](absl::StatusOr<CopyPtr> copy) {
          if (!copy.ok()) Fail("commit", copy.status());
          --left;
        });
        break;
      }
    }
    while (left > 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
    double write_s = SecondsSince(start);
    Close();
    uint64_t index_bytes = DiskUse(path_ + "/index");
    uint64_t log_bytes = DiskUse(path_ + "/segments");
    uint64_t resident = ResidentBytes();
    start = SteadyClock::now();
    status = Open(capacity, 8 * kMiB, &copies);
    double open_s = SecondsSince(start);
    if (!status.ok()) return Fail("reopen", status);
    double memory = static_cast<double>(ResidentBytes()) - static_cast<double>(resident);
    if (copies != count) Fail("restart", InternalError("{} of {} records came back", copies, count));
    double n = static_cast<double>(count);
    std::printf(
        "restart %llu records: %.2f s; written in %.1f s; a record takes %.0f B of log, %.0f B of index, %.0f B of "
        "memory\n",
        static_cast<unsigned long long>(count), open_s, write_s, static_cast<double>(log_bytes) / n,
        static_cast<double>(index_bytes) / n, memory / n);
    std::fflush(stdout);
    rows_.push_back({fmt::format("restart_{}", count), open_s, 5.0});
    Close();
  }

  void WriteJson() const {
    if (options_.json.empty()) return;
    std::ofstream out(options_.json);
    out << "{\n";
    for (size_t i = 0; i < rows_.size(); ++i) {
      const char* other = rows_[i].name.starts_with("restart") ? "limit" : "fio";
      out << fmt::format("  \"{}\": {{\"ours\": {:.6g}, \"{}\": {:.6g}}}{}\n", rows_[i].name, rows_[i].ours, other,
                         rows_[i].other, i + 1 < rows_.size() ? "," : "");
    }
    out << "}\n";
  }

  const BenchOptions options_;
  ThreadPoolExecutor executor_;
  const std::string path_;
  OpenedColdTier opened_;
  std::vector<Row> rows_;
  bool failed_ = false;
};

int Main(int argc, char** argv) {
  BenchOptions options;
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    std::string value = i + 1 < argc ? argv[i + 1] : "";
    auto number = [&] { return std::strtoull(value.c_str(), nullptr, 10); };
    if (name == "--no-io") {
      options.io = false;
      continue;
    }
    if (name == "--no-restart") {
      options.restarts.clear();
      continue;
    }
    if (value.empty()) {
      std::fprintf(stderr,
                   "usage: cold_bench [--dir DIR] [--mib N] [--block-kib N] [--depth N] [--rounds N] [--json FILE] "
                   "[--restart N] "
                   "[--no-io] [--no-restart]\n");
      return 2;
    }
    if (name == "--dir") options.directory = value;
    if (name == "--json") options.json = value;
    if (name == "--mib") options.bytes = number() * kMiB;
    if (name == "--block-kib") options.block_bytes = number() * kKiB;
    if (name == "--depth") options.depth = static_cast<uint32_t>(number());
    if (name == "--rounds") options.rounds = static_cast<int>(number());
    if (name == "--restart") options.restarts = {number()};
    ++i;
  }
  return Bench(options).Run();
}

}  // namespace
}  // namespace firn

int main(int argc, char** argv) { return firn::Main(argc, argv); }
