#include "kernels/scale_probe_test_util.h"

#include "kernels/device/nested_scale.cuh"
#include "kernels/device_memory.h"

namespace firn::kernels {
namespace {

template <bool kInverse>
__global__ void Probe(const float* in, float* out, size_t count) {
  size_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) out[i] = kInverse ? InverseOfStep(in[i]) : DividedBySteps(in[i]);
}

template <bool kInverse>
std::vector<float> Run(const std::vector<float>& values) {
  DeviceMemory in(values), out(values.size() * sizeof(float));
  Probe<kInverse>
      <<<static_cast<uint32_t>((values.size() + 255) / 256), 256>>>(in.as<float>(), out.as<float>(), values.size());
  FIRN_CHECK(cudaDeviceSynchronize() == cudaSuccess);
  return out.Read<float>();
}

}  // namespace

std::vector<float> ProbeInverses(const std::vector<float>& steps) { return Run<true>(steps); }
std::vector<float> ProbeQuotients(const std::vector<float>& values) { return Run<false>(values); }

}  // namespace firn::kernels
