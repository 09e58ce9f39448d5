// Chooses how a directory is read and written: io_uring, or a pread/pwrite pool where that is denied.
#pragma once

#include <memory>

#include "tiers/cold/device/directory_device.h"

namespace firn {

enum class IoBackend : uint8_t {
  kAutomatic = 0,  // io_uring; if it is not to be had, pread, which is said once with the errno and the cure.
  kUring = 1,      // io_uring or an error.
  kPread = 2,
};

absl::StatusOr<std::unique_ptr<BlockDevice>> OpenDevice(const DirectoryOptions& options, IoBackend backend);

}  // namespace firn
