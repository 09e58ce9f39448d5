#include "tiers/hot/child/mapped_regions.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/status.h"

namespace firn::gpu {

absl::Status MappedRegions::Map(const MapRegion& message, const UniqueFd& fd) {
  if (message.region == kPoolSpace || message.region >= kRegionsMax || bases_[message.region] != nullptr) {
    return InvalidArgument("region {} cannot be mapped", message.region);
  }
  if (message.usable_bytes > message.bytes || message.bytes == 0) {
    return InvalidArgument("a region of {} bytes, {} of them usable", message.bytes, message.usable_bytes);
  }
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return ErrnoStatus(errno, "look at a region");
  // Devices have no size; a file that is too short would kill whoever touches its end.
  if (S_ISREG(status.st_mode) && static_cast<uint64_t>(status.st_size) < message.usable_bytes) {
    return InvalidArgument("a region with {} usable bytes is a file of {}", message.usable_bytes, status.st_size);
  }
  void* base = ::mmap(nullptr, message.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) return ErrnoStatus(errno, "map a region");
  bases_[message.region] = static_cast<uint8_t*>(base);
  bytes_[message.region] = message.bytes;
  usable_[message.region] = message.usable_bytes;
  return absl::OkStatus();
}

absl::Status MappedRegions::SetUsable(const RegionUsable& message) {
  if (message.region >= kRegionsMax || message.usable_bytes > bytes_[message.region]) {
    return InvalidArgument("{} usable bytes of region {}", message.usable_bytes, message.region);
  }
  usable_[message.region] = message.usable_bytes;
  return absl::OkStatus();
}

}  // namespace firn::gpu
