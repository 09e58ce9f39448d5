// What the launchers of the integer kernels are given once the checks have passed. Internal to kernels/.
#pragma once

#include <cuda_runtime_api.h>

#include <cmath>

#include "kernels/device/chunks.cuh"
#include "kernels/integer.h"

namespace firn::kernels {

// The positions of codes, as codecs/integer/integer_format.h has them.
struct IntegerForm {
  float lowest = 0, highest = 0, offset = 0;
  float steps = 0, steps_inverse = 0;  // What a range, or a largest magnitude, is divided by.
  float value_max = 0;                 // The largest magnitude whose differences FP32 holds.
  bool symmetric = false;
};

// R(x / steps), for x of steps * 2^-126 and more; less for less. As DividedBySteps of device/nested_scale.cuh:
// kernel_checks_test tries every mantissa with every number of steps.
FIRN_HOST_DEVICE float SpreadOverSteps(float spread, float steps, float steps_inverse) {
  float quotient = spread * steps_inverse;
  return fmaf(fmaf(-quotient, steps, spread), steps_inverse, quotient);
}

struct IntegerLaunch {
  IntegerJob job;
  IntegerForm form;
  BatchShape shape;
  FastDivisor by_page;
  Places places = Places::kAny;
  uint32_t groups = 1;  // Of a row, or of a channel.
  // Of the kernels that work on chunks.
  ChunkShape chunks;
  FastDivisor by_scale;       // Chunks that share a scale, one after another in a block.
  uint32_t scale_stride = 1;  // From one of the scales that are used to the next.
  uint32_t group_lanes = 1;   // Per token: chunks of a group.
  bool paired = false;        // Per token: a thread has two chunks of a group at a time, half of it apart.
  uint32_t half_log2 = 0;     // Of half the chunks of a group, where paired.
};

// On chunks. Per token: `group_lanes` is a power of two up to 32, paired 64, or scales are given. Calibrated scales of
// a layer are coded as those of a token.
cudaError_t LaunchEncodeIntegerToken(const IntegerLaunch& launch, cudaStream_t stream);
cudaError_t LaunchEncodeIntegerTensor(const IntegerLaunch& launch, cudaStream_t stream);
cudaError_t LaunchDecodeIntegerToken(const IntegerLaunch& launch, cudaStream_t stream);  // Per layer too.
// For widths of 64, 128 and 256, groups of up to kChannelGroupMax tokens.
inline constexpr uint32_t kChannelGroupMax = 128;
cudaError_t LaunchEncodeIntegerChannel(const IntegerLaunch& launch, cudaStream_t stream);
cudaError_t LaunchDecodeIntegerChannel(const IntegerLaunch& launch, cudaStream_t stream);

// For any shape.
cudaError_t LaunchEncodeIntegerAny(const IntegerLaunch& launch, cudaStream_t stream);
cudaError_t LaunchDecodeIntegerAny(const IntegerLaunch& launch, cudaStream_t stream);

}  // namespace firn::kernels
