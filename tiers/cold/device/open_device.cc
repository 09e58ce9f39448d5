#include "tiers/cold/device/open_device.h"

#include <utility>

#include "base/status.h"
#include "tiers/cold/device/posix_device.h"
#include "tiers/cold/device/uring_device.h"

namespace firn {

absl::StatusOr<std::unique_ptr<BlockDevice>> OpenDevice(const DirectoryOptions& options, IoBackend backend) {
  if (backend != IoBackend::kPread) {
    auto uring = UringDevice::Open(options);
    if (uring.ok()) return std::unique_ptr<BlockDevice>(*std::move(uring));
    if (backend == IoBackend::kUring) return uring.status();
    if (options.notice) options.notice(fmt::format("{}; using pread and pwrite instead", Message(uring.status())));
  }
  FIRN_ASSIGN_OR_RETURN(std::unique_ptr<BlockDevice> device, PosixDevice::Open(options));
  return device;
}

}  // namespace firn
