// Moving KV between a GPU and host memory with and without re-quantizing it first: FP16 bytes represented a second,
// beside a pinned copy of the FP16 bytes, in one run. `ratio NAME OURS REFERENCE RATIO`, GB/s, medians.
//
// Ways to demote: `direct`, the kernel stores its planes straight into registered host memory; `staged`, it stores them
// in device memory and the copy engine takes them, the next batch's kernel beside it; `staged_checked`, with the checks
// of every run summed on the GPU. Promotion is the way back. `sm` lines are the kernels' own time for one GB of FP16.
//
//   transfer_bench [MiB of FP16 a batch, 64]
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "codecs/numeric/float_formats.h"
#include "kernels/bench_support.h"
#include "kernels/checksum.h"
#include "kernels/device_memory.h"
#include "kernels/nested.h"

namespace firn::kernels {
namespace {

constexpr uint32_t kLayers = 32, kHeads = 8, kTokens = 64, kWidth = 128;
constexpr uint64_t kBlockBytes = uint64_t{kLayers} * kHeads * kTokens * kWidth * 2;
constexpr uint64_t kSourceBytes = uint64_t{4} << 30;
constexpr int kRounds = 7;

// A memfd, as the daemon's arena is one, registered with the GPU.
class RegisteredMemory {
 public:
  explicit RegisteredMemory(uint64_t bytes) : bytes_(bytes) {
    int fd = memfd_create("bench", 0);
    FIRN_CHECK(fd >= 0 && ftruncate(fd, static_cast<off_t>(bytes)) == 0);
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    FIRN_CHECK(at != MAP_FAILED);
    close(fd);
    data_ = static_cast<uint8_t*>(at);
    CheckCuda(cudaHostRegister(at, bytes, cudaHostRegisterDefault));
  }
  ~RegisteredMemory() {
    cudaHostUnregister(data_);
    munmap(data_, bytes_);
  }
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;
  uint8_t* data() const { return data_; }

 private:
  uint8_t* data_ = nullptr;
  uint64_t bytes_;
};

struct Kind {
  const char* name;
  PrecisionClass precision;
  uint64_t block_bytes() const {
    uint64_t values = kBlockBytes / 2, meta = values / kWidth * 4, bytes = meta + values / 4;
    if (precision >= PrecisionClass::k4Bit) bytes += values / 4;
    if (precision >= PrecisionClass::k8Bit) bytes += values / 2;
    return bytes;
  }
};
constexpr Kind kKinds[] = {
    {"int8", PrecisionClass::k8Bit}, {"int4", PrecisionClass::k4Bit}, {"int2", PrecisionClass::k2Bit}};

class Bench {
 public:
  explicit Bench(uint64_t batch_bytes)
      : batch_bytes_(batch_bytes),
        blocks_(static_cast<uint32_t>(batch_bytes / kBlockBytes)),
        batches_(static_cast<uint32_t>(kSourceBytes / batch_bytes)),
        source_(kSourceBytes),
        host_(kSourceBytes),
        staging_{DeviceMemory(batch_bytes), DeviceMemory(batch_bytes)} {
    FillSource();
    for (cudaStream_t* stream : {&compute_, &copy_})
      CheckCuda(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (int i = 0; i < 2; ++i) {
      CheckCuda(cudaEventCreateWithFlags(&filled_[i], cudaEventDisableTiming));
      CheckCuda(cudaEventCreateWithFlags(&drained_[i], cudaEventDisableTiming));
    }
    std::vector<float> ones(uint64_t{kLayers} * kHeads * kWidth, 0.125f);
    mean_ = DeviceMemory(ones), scale_ = DeviceMemory(ones);
    std::vector<uint64_t> seeds(uint64_t{blocks_} * kLayers * 4, 1);
    seeds_ = DeviceMemory(seeds), checks_ = DeviceMemory(seeds.size() * 8);
  }

  void Run() {
    double down = Rate([&](uint32_t b) { Copy(host_.data() + b * batch_bytes_, Source(b), cudaMemcpyDeviceToHost); });
    double up = Rate([&](uint32_t b) { Copy(Source(b), host_.data() + b * batch_bytes_, cudaMemcpyHostToDevice); });
    std::printf("%llu MiB of FP16 a batch, %u blocks; pinned copies of FP16: %.1f GB/s down, %.1f up\n",
                static_cast<unsigned long long>(batch_bytes_ >> 20), blocks_, down / 1e9, up / 1e9);
    for (const Kind& kind : kKinds) {
      double ideal = static_cast<double>(kBlockBytes) / static_cast<double>(kind.block_bytes());
      Report("demote_direct_", kind, Rate([&](uint32_t b) { DemoteDirect(kind, b); }), down, ideal);
      Report("demote_staged_", kind, Rate([&](uint32_t b) { DemoteStaged(kind, b, false); }), down, ideal);
      Report("demote_staged_checked_", kind, Rate([&](uint32_t b) { DemoteStaged(kind, b, true); }), down, ideal);
      Report("promote_direct_", kind, Rate([&](uint32_t b) { PromoteDirect(kind, b); }), up, ideal);
      Report("promote_staged_", kind, Rate([&](uint32_t b) { PromoteStaged(kind, b); }), up, ideal);
      std::printf(
          "sm encode_%s %.2f ms a GB of FP16, checks %.2f, decode %.2f\n", kind.name,
          KernelSeconds([&] { CheckOk(EncodeNested(Job(kind, 0, staging_[0].as<uint8_t>()), compute_)); }) * 1e3,
          KernelSeconds([&] { Check(kind, 0); }) * 1e3,
          KernelSeconds([&] { CheckOk(DecodeNested(Job(kind, 0, staging_[0].as<uint8_t>()), compute_)); }) * 1e3);
    }
  }

 private:
  void FillSource() {
    std::mt19937_64 rng(1);
    std::normal_distribution<float> normal;
    std::vector<uint16_t> values(uint64_t{8} << 20);
    for (uint16_t& value : values) value = FloatToHalf(normal(rng));
    for (uint64_t at = 0; at < kSourceBytes; at += values.size() * 2) {
      CheckCuda(cudaMemcpy(source_.as<uint8_t>() + at, values.data(), values.size() * 2, cudaMemcpyHostToDevice));
    }
  }
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
  static void Report(const char* what, const Kind& kind, double rate, double reference, double ideal) {
    std::printf("ratio %-34s %6.1f %6.1f %.2f (at most %.2f)\n", (std::string(what) + kind.name).c_str(), rate / 1e9,
                reference / 1e9, rate / reference, ideal);
    std::fflush(stdout);
  }

  void Copy(void* to, const void* from, cudaMemcpyKind kind) {
    CheckCuda(cudaMemcpyAsync(to, from, batch_bytes_, kind, copy_));
  }

  // Centred, balanced and rotated keys; the runs of a batch one after another in `runs`.
  NestedJob Job(const Kind& kind, uint32_t batch, uint8_t* runs) {
    NestedJob job;
    job.blocks = blocks_, job.layers = kLayers, job.heads = kHeads, job.tokens = kTokens, job.width = kWidth;
    job.group = kWidth;
    job.rotated = true;
    job.precision = kind.precision;
    job.transform = {mean_.as<float>(), scale_.as<float>(), scale_.as<float>(), 1.0f};
    job.rows.base = Source(batch);
    job.rows.page_tokens = kTokens;
    job.rows.token_stride = kWidth, job.rows.head_stride = int64_t{kTokens} * kWidth;
    job.rows.layer_stride = job.rows.head_stride * kHeads, job.rows.page_stride = job.rows.layer_stride * kLayers;
    uint64_t values = kBlockBytes / 2;
    auto place = [&](uint64_t bytes) {
      RunView run;
      run.base = runs, run.block_stride = bytes;
      runs += bytes * blocks_;
      return run;
    };
    job.meta_run = place(values / kWidth * 4), job.p2 = place(values / 4);
    if (kind.precision >= PrecisionClass::k4Bit) job.p4 = place(values / 4);
    if (kind.precision >= PrecisionClass::k8Bit) job.p8 = place(values / 2);
    return job;
  }
  uint64_t RunsBytes(const Kind& kind) const { return kind.block_bytes() * blocks_; }
  uint8_t* HostRuns(const Kind& kind, uint32_t batch) { return host_.data() + batch * RunsBytes(kind); }

  void Check(const Kind& kind, int slot) {
    NestedJob job = Job(kind, 0, staging_[slot].as<uint8_t>());
    for (const RunView& run : {job.meta_run, job.p2, job.p4, job.p8}) {
      if (!run.present()) continue;
      ChecksumJob sums;
      sums.blocks = blocks_;
      sums.run_bytes = run.block_stride, sums.check_bytes = run.block_stride / kLayers;
      sums.run = run;
      sums.seeds = seeds_.as<uint64_t>(), sums.checks = checks_.as<uint64_t>();
      CheckOk(ChecksumRuns(sums, compute_));
    }
  }

  void DemoteDirect(const Kind& kind, uint32_t batch) {
    CheckOk(EncodeNested(Job(kind, batch, HostRuns(kind, batch)), compute_));
  }
  void DemoteStaged(const Kind& kind, uint32_t batch, bool checked) {
    int slot = static_cast<int>(batch % 2);
    CheckCuda(cudaStreamWaitEvent(compute_, drained_[slot]));
    CheckOk(EncodeNested(Job(kind, batch, staging_[slot].as<uint8_t>()), compute_));
    if (checked) Check(kind, slot);
    CheckCuda(cudaEventRecord(filled_[slot], compute_));
    CheckCuda(cudaStreamWaitEvent(copy_, filled_[slot]));
    CheckCuda(cudaMemcpyAsync(HostRuns(kind, batch), staging_[slot].as<uint8_t>(), RunsBytes(kind),
                              cudaMemcpyDeviceToHost, copy_));
    CheckCuda(cudaEventRecord(drained_[slot], copy_));
  }
  void PromoteDirect(const Kind& kind, uint32_t batch) {
    CheckOk(DecodeNested(Job(kind, batch, HostRuns(kind, batch)), compute_));
  }
  void PromoteStaged(const Kind& kind, uint32_t batch) {
    int slot = static_cast<int>(batch % 2);
    CheckCuda(cudaStreamWaitEvent(copy_, drained_[slot]));
    CheckCuda(cudaMemcpyAsync(staging_[slot].as<uint8_t>(), HostRuns(kind, batch), RunsBytes(kind),
                              cudaMemcpyHostToDevice, copy_));
    CheckCuda(cudaEventRecord(filled_[slot], copy_));
    CheckCuda(cudaStreamWaitEvent(compute_, filled_[slot]));
    CheckOk(DecodeNested(Job(kind, batch, staging_[slot].as<uint8_t>()), compute_));
    CheckCuda(cudaEventRecord(drained_[slot], compute_));
  }

  const uint64_t batch_bytes_;
  const uint32_t blocks_, batches_;
  DeviceMemory source_;
  RegisteredMemory host_;
  DeviceMemory staging_[2], mean_, scale_, seeds_, checks_;
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
