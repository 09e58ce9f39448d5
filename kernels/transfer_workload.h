// What benchmarks of transfers move: batches of FP16 blocks of 32 layers, 8 heads, 64 tokens and 128 channels, 8 MiB
// each, keys centred, balanced and rotated; their codes go one run of all blocks after another. Failures end the
// program. Memory lives as long as its object; jobs name memory and own none.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <random>
#include <vector>

#include "base/check.h"
#include "codecs/numeric/float_formats.h"
#include "kernels/bench_support.h"
#include "kernels/device_memory.h"
#include "kernels/nested.h"

namespace firn::kernels {

inline constexpr uint32_t kLayers = 32, kHeads = 8, kTokens = 64, kWidth = 128;
inline constexpr uint64_t kBlockBytes = uint64_t{kLayers} * kHeads * kTokens * kWidth * 2;

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

struct TransferCode {
  const char* name;
  PrecisionClass precision;
  uint64_t block_bytes() const {
    uint64_t values = kBlockBytes / 2, meta = values / kWidth * 4, bytes = meta + values / 4;
    if (precision >= PrecisionClass::k4Bit) bytes += values / 4;
    if (precision >= PrecisionClass::k8Bit) bytes += values / 2;
    return bytes;
  }
};
inline constexpr TransferCode kTransferInt4 = {"int4", PrecisionClass::k4Bit};

class TransferWorkload {
 public:
  explicit TransferWorkload(uint32_t blocks)
      : blocks_(blocks), channels_(std::vector<float>(uint64_t{kLayers} * kHeads * kWidth, 0.125f)) {}

  uint32_t blocks() const { return blocks_; }
  uint64_t batch_bytes() const { return blocks_ * kBlockBytes; }
  uint64_t RunsBytes(const TransferCode& code) const { return code.block_bytes() * blocks_; }

  // A batch from `rows`, or to them; its runs one after another in `runs`.
  NestedJob Job(const TransferCode& code, uint8_t* rows, uint8_t* runs) const {
    NestedJob job;
    job.blocks = blocks_, job.layers = kLayers, job.heads = kHeads, job.tokens = kTokens, job.width = kWidth;
    job.group = kWidth;
    job.rotated = true;
    job.precision = code.precision;
    job.transform = {channels_.as<float>(), channels_.as<float>(), channels_.as<float>(), 1.0f};
    job.rows.base = rows;
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
    if (code.precision >= PrecisionClass::k4Bit) job.p4 = place(values / 4);
    if (code.precision >= PrecisionClass::k8Bit) job.p8 = place(values / 2);
    return job;
  }

 private:
  const uint32_t blocks_;
  const DeviceMemory channels_;  // Means and scales.
};

// Normal values: 16 MiB of them, over and over.
inline void FillNormal(const DeviceMemory& memory) {
  std::mt19937_64 rng(1);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> values(uint64_t{8} << 20);
  for (uint16_t& value : values) value = FloatToHalf(normal(rng));
  for (uint64_t at = 0; at < memory.bytes(); at += values.size() * 2) {
    uint64_t bytes = std::min<uint64_t>(values.size() * 2, memory.bytes() - at);
    CheckCuda(cudaMemcpy(memory.as<uint8_t>() + at, values.data(), bytes, cudaMemcpyHostToDevice));
  }
}

}  // namespace firn::kernels
