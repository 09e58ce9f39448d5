#include "tests/bench/gpu/reference_copy.h"

#include <chrono>
#include <cstring>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "tests/bench/support/process.h"
#include "tests/bench/support/report.h"
#ifdef FIRN_WITH_CUDA
#include <cuda_runtime_api.h>
#endif

namespace firn::bench {
namespace {

constexpr int kRounds = 7;

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

CopyRates MemcpyRates() {
  constexpr uint64_t kBytes = 64 * kMiB;
  std::vector<uint8_t> from(kBytes, 1), to(kBytes, 2);
  std::vector<double> rates;
  for (int round = 0; round < kRounds; ++round) {
    auto start = std::chrono::steady_clock::now();
    std::memcpy(to.data(), from.data(), kBytes);
    rates.push_back(static_cast<double>(kBytes) / SecondsSince(start));
  }
  Keep(to);
  return {Median(rates), Median(rates)};
}

#ifdef FIRN_WITH_CUDA

bool BuiltWithCuda() { return true; }

absl::StatusOr<CopyRates> PinnedCopyRates(int device) {
  constexpr uint64_t kBytes = kGiB, kPiece = 64 * kMiB;
  cudaError_t error = cudaSuccess;
  auto check = [&](cudaError_t status) {
    if (error == cudaSuccess) error = status;
    return status == cudaSuccess;
  };
  uint8_t *host = nullptr, *pool = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<double> down, up;
  if (check(cudaSetDevice(device)) && check(cudaMallocHost(reinterpret_cast<void**>(&host), kBytes)) &&
      check(cudaMalloc(reinterpret_cast<void**>(&pool), kBytes)) && check(cudaStreamCreate(&stream))) {
    std::memset(host, 1, kBytes);
    for (int round = -1; round < kRounds; ++round) {
      for (auto* rates : {&down, &up}) {
        auto start = std::chrono::steady_clock::now();
        for (uint64_t at = 0; at < kBytes; at += kPiece) {
          bool to_host = rates == &down;
          check(cudaMemcpyAsync(to_host ? host + at : pool + at, to_host ? pool + at : host + at, kPiece,
                                to_host ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, stream));
        }
        check(cudaStreamSynchronize(stream));
        if (round >= 0) rates->push_back(static_cast<double>(kBytes) / SecondsSince(start));
      }
    }
  }
  if (stream != nullptr) cudaStreamDestroy(stream);
  cudaFree(pool);
  cudaFreeHost(host);
  if (error != cudaSuccess) return InternalError("pinned copies: {}", cudaGetErrorString(error));
  return CopyRates{Median(down), Median(up)};
}

#else

bool BuiltWithCuda() { return false; }
absl::StatusOr<CopyRates> PinnedCopyRates(int /*device*/) { return Unimplemented("built without CUDA"); }

#endif

}  // namespace firn::bench
