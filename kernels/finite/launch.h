// What the launcher of the search is given once the checks have passed. Internal to kernels/.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace firn::kernels {

// `exponent`: the bits that are all set in NaN and Inf.
cudaError_t LaunchFindNonFinite(const uint16_t* values, uint64_t count, uint32_t exponent, uint32_t* found,
                                cudaStream_t stream);

}  // namespace firn::kernels
