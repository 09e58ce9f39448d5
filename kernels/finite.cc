#include "kernels/finite.h"

#include "base/status.h"
#include "kernels/finite/launch.h"
#include "kernels/launch_check.h"
#include "kernels/view_checks.h"

namespace firn::kernels {

absl::Status FindNonFinite(const FiniteJob& job, cudaStream_t stream) {
  if (job.count == 0) return absl::OkStatus();
  if (job.type != DType::kFp16 && job.type != DType::kBf16) {
    return Unimplemented("values of type {}; FP16 and BF16 are searched on a GPU", DTypeName(job.type));
  }
  if (job.values == nullptr || !Aligned(job.values, 16)) return InvalidArgument("values are not aligned to 16 bytes");
  if (job.found == nullptr) return InvalidArgument("no place for what is found");
  uint32_t exponent = job.type == DType::kFp16 ? 0x7C00 : 0x7F80;
  return LaunchStatus(
      LaunchFindNonFinite(static_cast<const uint16_t*>(job.values), job.count, exponent, job.found, stream),
      "looking for NaN and Inf");
}

}  // namespace firn::kernels
