// Speed of parity on one core, against memcpy of the same bytes: prints a table, a row a code, a path and an operation.
//
// Records of 1 MiB in pages of 64 KiB, as the arena has them; all of them together are far larger than any cache. GB/s
// count data bytes. Time is the thread's own processor time, the median of several rounds, so that a busy machine
// disturbs neither side much. Usage: ecc_bench [--mib DATA_MIB] [--rounds N]; --mib 1 stays in the cache.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/units.h"
#include "codecs/bench_util.h"
#include "codecs/ecc/ecc.h"
#include "codecs/ecc/secded.h"

namespace firn {
namespace {

constexpr uint64_t kRecordBytes = kMiB, kPageBytes = 64 * kKiB;

MutableRunBytes InPages(uint8_t* memory, uint64_t bytes) {
  MutableRunBytes run;
  for (uint64_t at = 0; at < bytes; at += kPageBytes) run.Append({memory + at, std::min(kPageBytes, bytes - at)});
  return run;
}

class Bench {
 public:
  Bench(uint64_t data_bytes, int rounds)
      : data_bytes_(data_bytes),
        rounds_(rounds),
        data_(AllocateBenchMemory(data_bytes)),
        other_(AllocateBenchMemory(data_bytes)) {
    std::mt19937_64 rng(1);
    std::vector<uint64_t> pattern(kRecordBytes / 8);
    for (uint64_t& value : pattern) value = rng();
    for (uint64_t at = 0; at < data_bytes; at += kRecordBytes) std::memcpy(&data_[at], pattern.data(), kRecordBytes);
    std::printf("%-8s %-10s %-8s %8s %8s %7s\n", "code", "path", "what", "GB/s", "memcpy", "ratio");
  }

  // Calls with (data, parity) of each record.
  using Operation = std::function<void(const MutableRunBytes&, const MutableRunBytes&)>;
  void Run(EccCode code, const char* path, const Operation& compute, const Operation& agrees,
           const Operation& correct) {
    const uint64_t parity_bytes = ParityBytes(code, kRecordBytes);
    const uint64_t room = (parity_bytes + 4095) / 4096 * 4096;
    BenchMemory parity = AllocateBenchMemory(data_bytes_ / kRecordBytes * room);
    std::vector<std::pair<MutableRunBytes, MutableRunBytes>> records;
    for (uint64_t at = 0; at < data_bytes_; at += kRecordBytes) {
      records.emplace_back(InPages(&data_[at], kRecordBytes), InPages(&parity[at / kRecordBytes * room], parity_bytes));
    }
    const std::pair<const char*, const Operation*> operations[] = {
        {"compute", &compute}, {"agrees", &agrees}, {"correct", &correct}};
    for (const auto& [what, operation] : operations) Report(EccCodeName(code), path, what, *operation, records);
  }

 private:
  // Rounds of both take turns, so that both see the same machine.
  template <typename Records>
  void Report(std::string_view code, const char* path, const char* what, const Operation& operation,
              const Records& records) {
    std::vector<double> copy_s, own_s;
    for (int round = 0; round < rounds_; ++round) {
      double start = ProcessorSeconds();
      std::memcpy(other_.get(), data_.get(), data_bytes_);
      const double middle = ProcessorSeconds();
      for (const auto& [data, parity] : records) operation(data, parity);
      own_s.push_back(ProcessorSeconds() - middle);
      copy_s.push_back(middle - start);
    }
    const double own = Gbps(&own_s), copy = Gbps(&copy_s);
    std::printf("%-8s %-10s %-8s %8.2f %8.2f %7.2f\n", std::string(code).c_str(), path, what, own, copy, own / copy);
    std::fflush(stdout);
  }
  double Gbps(std::vector<double>* seconds) const {
    std::nth_element(seconds->begin(), seconds->begin() + rounds_ / 2, seconds->end());
    return static_cast<double>(data_bytes_) / (*seconds)[static_cast<size_t>(rounds_ / 2)] / 1e9;
  }

  const uint64_t data_bytes_;
  const int rounds_;
  BenchMemory data_, other_;
};

int Main(int argc, char** argv) {
  uint64_t mib = 1024;
  int rounds = 7;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--mib") == 0) mib = std::strtoull(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--rounds") == 0) rounds = std::atoi(argv[i + 1]);
  }
  FIRN_CHECK(mib > 0 && rounds > 0);
  Bench bench(mib * kMiB, rounds);
  using Run = const MutableRunBytes&;
  for (secded::Path path : secded::Paths()) {
    bench.Run(
        EccCode::kSecded, std::string(secded::PathName(path)).c_str(),
        [&](Run data, Run parity) { secded::ComputeParity(path, data, parity); },
        [&](Run data, Run parity) { FIRN_CHECK(secded::ParityAgrees(path, data, parity)); },
        [&](Run data, Run parity) { FIRN_CHECK(secded::CorrectInPlace(path, data, parity).clean()); });
  }
  constexpr EccCode kRs = EccCode::kReedSolomon;
  bench.Run(
      kRs, "isa-l", [&](Run data, Run parity) { ComputeParity(kRs, data, parity); },
      [&](Run data, Run parity) { FIRN_CHECK(ParityAgrees(kRs, data, parity)); },
      [&](Run data, Run parity) { FIRN_CHECK(CorrectInPlace(kRs, data, parity).clean()); });
  return 0;
}

}  // namespace
}  // namespace firn

int main(int argc, char** argv) { return firn::Main(argc, argv); }
