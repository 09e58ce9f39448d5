// Cosines and sines in FP64 of a fixed order, as codecs/rope/rope_table.cc has them (docs/formats/conditioning.md).
//
// Built with -fmad=false: nothing below may be fused.
#include "kernels/condition/launch.h"

namespace firn::kernels {
namespace {

constexpr uint32_t kThreads = 128;

__device__ __forceinline__ double SineOf(double r) {
  double s = r * r;
  double t = -1.0 / 1307674368000.0;  // 15!
  t = 1.0 / 6227020800.0 + s * t;
  t = -1.0 / 39916800.0 + s * t;
  t = 1.0 / 362880.0 + s * t;
  t = -1.0 / 5040.0 + s * t;
  t = 1.0 / 120.0 + s * t;
  t = -1.0 / 6.0 + s * t;
  return r + r * (s * t);
}

__device__ __forceinline__ double CosineOf(double r) {
  double s = r * r;
  double t = 1.0 / 20922789888000.0;  // 16!
  t = -1.0 / 87178291200.0 + s * t;
  t = 1.0 / 479001600.0 + s * t;
  t = -1.0 / 3628800.0 + s * t;
  t = 1.0 / 40320.0 + s * t;
  t = -1.0 / 720.0 + s * t;
  t = 1.0 / 24.0 + s * t;
  t = -0.5 + s * t;
  return 1.0 + s * t;
}

__global__ void __launch_bounds__(kThreads) Turn(const __grid_constant__ RopeTableJob job) {
  constexpr double kHalfPiHigh = 0x1.921fb5p+0, kHalfPiMiddle = 0x1.110b46p-26, kHalfPiLow = 0x1.1a62633145c07p-54;
  constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
  uint32_t position = job.positions[blockIdx.x];
  for (uint32_t pair = threadIdx.x; pair < job.pairs; pair += kThreads) {
    double angle = static_cast<double>(position) * job.frequencies[pair];
    double quarters = rint(angle * kTwoOverPi);
    double rest = ((angle - quarters * kHalfPiHigh) - quarters * kHalfPiMiddle) - quarters * kHalfPiLow;
    auto sine = static_cast<float>(SineOf(rest)), cosine = static_cast<float>(CosineOf(rest));
    uint32_t quarter = static_cast<uint32_t>(static_cast<uint64_t>(quarters)) & 3;
    bool swapped = (quarter & 1) != 0;
    float c = swapped ? sine : cosine, s = swapped ? cosine : sine;
    uint64_t at = uint64_t{blockIdx.x} * job.pairs + pair;
    job.cosines[at] = quarter == 1 || quarter == 2 ? -c : c;
    job.sines[at] = quarter >= 2 ? -s : s;
  }
}

}  // namespace

cudaError_t LaunchTurnPositions(const RopeTableJob& job, cudaStream_t stream) {
  Turn<<<job.blocks * job.tokens, kThreads, 0, stream>>>(job);
  return cudaGetLastError();
}

}  // namespace firn::kernels
