// What the benchmarks share: failures end the program, times are medians.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace firn::kernels {

inline constexpr int kBenchRounds = 21;

inline void CheckCuda(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "CUDA: %s (%d)\n", cudaGetErrorString(error), static_cast<int>(error));
  std::exit(1);
}
inline void CheckOk(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  std::exit(1);
}

inline double MedianOf(std::vector<double> values) {
  auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The median time of one round on a stream, in seconds, after three that do not count.
inline double MedianSeconds(cudaStream_t stream, const std::function<void()>& round) {
  cudaEvent_t begin, end;
  CheckCuda(cudaEventCreate(&begin));
  CheckCuda(cudaEventCreate(&end));
  std::vector<double> times;
  for (int i = -3; i < kBenchRounds; ++i) {
    CheckCuda(cudaEventRecord(begin, stream));
    round();
    CheckCuda(cudaEventRecord(end, stream));
    CheckCuda(cudaEventSynchronize(end));
    float milliseconds = 0;
    CheckCuda(cudaEventElapsedTime(&milliseconds, begin, end));
    if (i >= 0) times.push_back(milliseconds / 1e3);
  }
  CheckCuda(cudaEventDestroy(begin));
  CheckCuda(cudaEventDestroy(end));
  return MedianOf(std::move(times));
}

}  // namespace firn::kernels
