// gpu_mover: a process that demotes FP16 to INT4 in host memory at a pace, as firnd-gpu does beside a worker.
//
//   gpu_mover [--batch-mib 64] [--way staged|direct]
//
// Prints `ready`, then takes lines `PACE SECONDS` from its input until that ends: PACE in GB of FP16 a second, 0 for as
// fast as it goes. Answers each with `started`, and once it is over with `moved GB/s`.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "tests/bench/gpu/sharing/demotion_queue.h"

namespace firn::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr uint64_t kSourceBytes = uint64_t{1} << 30;
constexpr uint32_t kHostSlots = 16;  // More than a processor's cache holds.

class Mover {
 public:
  Mover(uint64_t batch_bytes, TransferWay way)
      : work_(static_cast<uint32_t>(batch_bytes / kernels::kBlockBytes)),
        source_(std::max(kSourceBytes, batch_bytes)),
        queue_(&work_, way, kHostSlots) {
    kernels::FillNormal(source_);
    Move(0, 0.1);
  }

  // GB of FP16 a second.
  double Move(double pace, double seconds) {
    const auto begin = Clock::now(), end = begin + std::chrono::duration_cast<Clock::duration>(Seconds(seconds));
    const auto interval = std::chrono::duration_cast<Clock::duration>(
        Seconds(pace > 0 ? static_cast<double>(work_.batch_bytes()) / 1e9 / pace : 0));
    auto next = begin;
    uint64_t batches = 0;
    while (next < end && Clock::now() < end) {
      if (pace > 0) {
        std::this_thread::sleep_until(next);
        // Who falls behind does not make up for it by a burst.
        next = std::max(next + interval, Clock::now() - interval);
      }
      uint64_t at = batches * work_.batch_bytes() % (source_.bytes() / work_.batch_bytes() * work_.batch_bytes());
      queue_.Push(source_.as<uint8_t>() + at, nullptr, static_cast<uint32_t>(batches % kHostSlots));
      ++batches;
    }
    while (queue_.under_way() > 0) queue_.WaitOldest();
    // A last batch of a slow pace is over before its time is.
    auto took = std::max(Seconds(Clock::now() - begin), Seconds(pace > 0 ? seconds : 0));
    return static_cast<double>(batches * work_.batch_bytes()) / 1e9 / took.count();
  }

 private:
  const kernels::TransferWorkload work_;
  const kernels::DeviceMemory source_;
  DemotionQueue queue_;
};

int Main(int argc, char** argv) {
  uint64_t mebibytes = 64;
  TransferWay way = TransferWay::kStaged;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--batch-mib") == 0) mebibytes = std::strtoull(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--way") == 0 && std::strcmp(argv[i + 1], "direct") == 0) way = TransferWay::kDirect;
  }
  if (mebibytes < 8 || mebibytes > 1024 || mebibytes % 8 != 0) {
    std::fprintf(stderr, "gpu_mover: a batch of %llu MiB; a multiple of 8 from 8 to 1024 expected\n",
                 static_cast<unsigned long long>(mebibytes));
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  Mover mover(mebibytes << 20, way);
  std::puts("ready");
  double pace = 0, seconds = 0;
  while (std::scanf("%lf %lf", &pace, &seconds) == 2) {
    std::puts("started");
    std::printf("moved %.2f\n", mover.Move(pace, std::min(seconds, 60.0)));
  }
  return 0;
}

}  // namespace
}  // namespace firn::bench

int main(int argc, char** argv) { return firn::bench::Main(argc, argv); }
