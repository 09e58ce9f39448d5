#include "kernels/checksum.h"

#include "base/status.h"
#include "kernels/checksum/launch.h"
#include "kernels/launch_check.h"
#include "kernels/view_checks.h"

namespace firn::kernels {

absl::Status ChecksumRuns(const ChecksumJob& job, cudaStream_t stream) {
  if (job.blocks == 0 || job.run_bytes == 0) return absl::OkStatus();
  constexpr uint64_t kRunBytesMax = uint64_t{1} << 30;
  if (job.run_bytes > kRunBytesMax)
    return InvalidArgument("runs of {} bytes; the limit is {}", job.run_bytes, kRunBytesMax);
  if (job.check_bytes == 0) return InvalidArgument("checks of 0 bytes");
  if (!job.run.present()) return InvalidArgument("no run");
  if (job.seeds == nullptr || job.checks == nullptr) return InvalidArgument("no seeds, or nowhere to put checks");
  FIRN_RETURN_IF_ERROR(CheckRun(job.run, "the run", 1));
  uint64_t checks = job.checks_per_block() * job.blocks;
  if (checks > kRowsMax) return InvalidArgument("{} checks; a call makes up to {}", checks, kRowsMax);
  ChecksumLaunch launch;
  launch.job = job;
  launch.checks_per_block = static_cast<uint32_t>(job.checks_per_block());
  launch.words = job.run_bytes % 8 == 0 && job.check_bytes % 8 == 0 && AlignedRun(job.run, 8);
  return LaunchStatus(LaunchChecksum(launch, stream), "checksumming runs");
}

}  // namespace firn::kernels
