// Moving KV between a GPU and host memory with and without re-quantizing it first: FP16 bytes represented a second,
// beside a pinned copy of the FP16 bytes, in one run. `ratio NAME OURS REFERENCE RATIO`, GB/s, medians.
//
// Ways to demote: `direct`, the kernel stores its planes straight into registered host memory; `staged`, it stores them
// in device memory and the copy engine takes them, the next batch's kernel beside it; `staged_checked`, with the checks
// of every run summed on the GPU. Promotion is the way back. `sm` lines are the kernels' own time for one GB of FP16.
//
//   transfer_bench [MiB of FP16 a batch, 64]
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "kernels/checksum.h"
#include "kernels/transfer_workload.h"

namespace firn::kernels {
namespace {

constexpr uint64_t kSourceBytes = uint64_t{4} << 30;
constexpr int kRounds = 7;

constexpr TransferCode kCodes[] = {{"int8", PrecisionClass::k8Bit}, kTransferInt4, {"int2", PrecisionClass::k2Bit}};

class Bench {
 public:
  explicit Bench(uint64_t batch_bytes)
      : batch_bytes_(batch_bytes),
        work_(static_cast<uint32_t>(batch_bytes / kBlockBytes)),
        batches_(static_cast<uint32_t>(kSourceBytes / batch_bytes)),
        source_(kSourceBytes),
        host_(kSourceBytes),
        staging_{DeviceMemory(batch_bytes), DeviceMemory(batch_bytes)} {
    FillNormal(source_);
    for (cudaStream_t* stream : {&compute_, &copy_})
      CheckCuda(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (int i = 0; i < 2; ++i) {
      CheckCuda(cudaEventCreateWithFlags(&filled_[i], cudaEventDisableTiming));
      CheckCuda(cudaEventCreateWithFlags(&drained_[i], cudaEventDisableTiming));
    }
    std::vector<uint64_t> seeds(uint64_t{work_.blocks()} * kLayers * 4, 1);
    seeds_ = DeviceMemory(seeds), checks_ = DeviceMemory(seeds.size() * 8);
  }

  void Run() {
    double down = Rate([&](uint32_t b) { Copy(host_.data() + b * batch_bytes_, Source(b), cudaMemcpyDeviceToHost); });
    double up = Rate([&](uint32_t b) { Copy(Source(b), host_.data() + b * batch_bytes_, cudaMemcpyHostToDevice); });
    std::printf("%llu MiB of FP16 a batch, %u blocks; pinned copies of FP16: %.1f GB/s down, %.1f up\n",
                static_cast<unsigned long long>(batch_bytes_ >> 20), work_.blocks(), down / 1e9, up / 1e9);
    for (const TransferCode& code : kCodes) {
      double ideal = static_cast<double>(kBlockBytes) / static_cast<double>(code.block_bytes());
      Report("demote_direct_", code, Rate([&](uint32_t b) { DemoteDirect(code, b); }), down, ideal);
      Report("demote_staged_", code, Rate([&](uint32_t b) { DemoteStaged(code, b, false); }), down, ideal);
      Report("demote_staged_checked_", code, Rate([&](uint32_t b) { DemoteStaged(code, b, true); }), down, ideal);
      Report("promote_direct_", code, Rate([&](uint32_t b) { PromoteDirect(code, b); }), up, ideal);
      Report("promote_staged_", code, Rate([&](uint32_t b) { PromoteStaged(code, b); }), up, ideal);
      std::printf(
          "sm encode_%s %.2f ms a GB of FP16, checks %.2f, decode %.2f\n", code.name,
          KernelSeconds([&] { CheckOk(EncodeNested(Job(code, 0, staging_[0].as<uint8_t>()), compute_)); }) * 1e3,
          KernelSeconds([&] { Check(code, 0); }) * 1e3,
          KernelSeconds([&] { CheckOk(DecodeNested(Job(code, 0, staging_[0].as<uint8_t>()), compute_)); }) * 1e3);
    }
  }

 private:
  uint8_t* Source(uint32_t batch) { return source_.as<uint8_t>() + batch * batch_bytes_; }

  // FP16 bytes represented a second over all batches, the median of some rounds.
  double Rate(const std::function<void(uint32_t batch)>& batch) {
    std::vector<double> rates;
    for (int round = -1; round < kRounds; ++round) {
      auto begin = std::chrono::steady_clock::now();
      for (uint32_t b = 0; b < batches_; ++b) batch(b);
      CheckCuda(cudaStreamSynchronize(compute_));
      CheckCuda(cudaStreamSynchronize(copy_));
      std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      if (round >= 0) rates.push_back(static_cast<double>(batches_ * batch_bytes_) / took.count());
    }
    return MedianOf(std::move(rates));
  }
  double KernelSeconds(const std::function<void()>& work) {
    return MedianSeconds(compute_, work) / (static_cast<double>(batch_bytes_) / 1e9);
  }
  static void Report(const char* what, const TransferCode& code, double rate, double reference, double ideal) {
    std::printf("ratio %-34s %6.1f %6.1f %.2f (at most %.2f)\n", (std::string(what) + code.name).c_str(), rate / 1e9,
                reference / 1e9, rate / reference, ideal);
    std::fflush(stdout);
  }

  void Copy(void* to, const void* from, cudaMemcpyKind kind) {
    CheckCuda(cudaMemcpyAsync(to, from, batch_bytes_, kind, copy_));
  }

  NestedJob Job(const TransferCode& code, uint32_t batch, uint8_t* runs) {
    return work_.Job(code, Source(batch), runs);
  }
  uint64_t RunsBytes(const TransferCode& code) const { return work_.RunsBytes(code); }
  uint8_t* HostRuns(const TransferCode& code, uint32_t batch) { return host_.data() + batch * RunsBytes(code); }

  void Check(const TransferCode& code, int slot) {
    NestedJob job = Job(code, 0, staging_[slot].as<uint8_t>());
    for (const RunView& run : {job.meta_run, job.p2, job.p4, job.p8}) {
      if (!run.present()) continue;
      ChecksumJob sums;
      sums.blocks = work_.blocks();
      sums.run_bytes = run.block_stride, sums.check_bytes = run.block_stride / kLayers;
      sums.run = run;
      sums.seeds = seeds_.as<uint64_t>(), sums.checks = checks_.as<uint64_t>();
      CheckOk(ChecksumRuns(sums, compute_));
    }
  }

  void DemoteDirect(const TransferCode& code, uint32_t batch) {
    CheckOk(EncodeNested(Job(code, batch, HostRuns(code, batch)), compute_));
  }
  void DemoteStaged(const TransferCode& code, uint32_t batch, bool checked) {
    int slot = static_cast<int>(batch % 2);
    CheckCuda(cudaStreamWaitEvent(compute_, drained_[slot]));
    CheckOk(EncodeNested(Job(code, batch, staging_[slot].as<uint8_t>()), compute_));
    if (checked) Check(code, slot);
    CheckCuda(cudaEventRecord(filled_[slot], compute_));
    CheckCuda(cudaStreamWaitEvent(copy_, filled_[slot]));
    CheckCuda(cudaMemcpyAsync(HostRuns(code, batch), staging_[slot].as<uint8_t>(), RunsBytes(code),
                              cudaMemcpyDeviceToHost, copy_));
    CheckCuda(cudaEventRecord(drained_[slot], copy_));
  }
  void PromoteDirect(const TransferCode& code, uint32_t batch) {
    CheckOk(DecodeNested(Job(code, batch, HostRuns(code, batch)), compute_));
  }
  void PromoteStaged(const TransferCode& code, uint32_t batch) {
    int slot = static_cast<int>(batch % 2);
    CheckCuda(cudaStreamWaitEvent(copy_, drained_[slot]));
    CheckCuda(cudaMemcpyAsync(staging_[slot].as<uint8_t>(), HostRuns(code, batch), RunsBytes(code),
                              cudaMemcpyHostToDevice, copy_));
    CheckCuda(cudaEventRecord(filled_[slot], copy_));
    CheckCuda(cudaStreamWaitEvent(compute_, filled_[slot]));
    CheckOk(DecodeNested(Job(code, batch, staging_[slot].as<uint8_t>()), compute_));
    CheckCuda(cudaEventRecord(drained_[slot], compute_));
  }

  const uint64_t batch_bytes_;
  const TransferWorkload work_;
  const uint32_t batches_;
  DeviceMemory source_;
  RegisteredMemory host_;
  DeviceMemory staging_[2], seeds_, checks_;
  cudaStream_t compute_ = nullptr, copy_ = nullptr;
  cudaEvent_t filled_[2], drained_[2];
};

}  // namespace
}  // namespace firn::kernels

int main(int argc, char** argv) {
  uint64_t mebibytes = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 64;
  if (mebibytes < 4 || mebibytes > 1024 || (mebibytes & (mebibytes - 1)) != 0) {
    std::fprintf(stderr, "transfer_bench: a batch of %s MiB; a power of two from 4 to 1024 expected\n", argv[1]);
    return 2;
  }
  firn::kernels::Bench(mebibytes << 20).Run();
  return 0;
}
