#include "tiers/cxl/mapped_region.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <optional>

#include "base/status.h"
#include "base/units.h"

namespace firn {
namespace {

class MappedRegion : public MemoryRegion {
 public:
  ~MappedRegion() override {
    if (base_ != nullptr) munmap(base_, bytes_);
    if (fd_ >= 0) close(fd_);
  }
  std::string Describe() const override { return description_; }

 protected:
  absl::Status OpenLocked(const std::string& path, int flags) {
    description_ = path;
    far_ = true;
    fd_ = open(path.c_str(), flags | O_CLOEXEC, 0600);
    if (fd_ < 0) return ErrnoStatus(errno, "open " + path);
    if (flock(fd_, LOCK_EX | LOCK_NB) == 0) return absl::OkStatus();
    if (errno == EWOULDBLOCK) return FailedPrecondition("{} is in use by another process", path);
    return ErrnoStatus(errno, "lock " + path);
  }
  absl::Status Map(uint64_t bytes) {
    void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_, 0);
    if (mapped == MAP_FAILED) return ErrnoStatus(errno, fmt::format("map {} bytes of {}", bytes, description_));
    base_ = static_cast<uint8_t*>(mapped);
    bytes_ = bytes;
    madvise(base_, bytes_, MADV_DONTDUMP);  // Advice: a core dump without it is only larger.
    return absl::OkStatus();
  }
  std::string description_;
};

std::optional<uint64_t> SysNumber(const struct stat& device, const char* attribute) {
  std::ifstream file(fmt::format("/sys/dev/char/{}:{}/{}", major(device.st_rdev), minor(device.st_rdev), attribute));
  uint64_t value = 0;
  if (!(file >> value)) return std::nullopt;
  return value;
}

class DaxRegion final : public MappedRegion {
 public:
  absl::Status Open(const std::string& device, uint64_t bytes) {
    FIRN_RETURN_IF_ERROR(OpenLocked(device, O_RDWR));
    struct stat info = {};
    if (fstat(fd_, &info) != 0) return ErrnoStatus(errno, "stat " + device);
    std::optional<uint64_t> size, align;
    if (S_ISCHR(info.st_mode)) {
      size = SysNumber(info, "size");
      align = SysNumber(info, "align");
      if (!align.has_value()) align = SysNumber(info, "device/align");
    }
    if (!size.has_value())
      return FailedPrecondition("{} is not a DAX device: its size is not in /sys/dev/char", device);
    granule_bytes_ = std::max(align.value_or(2 * kMiB), 64 * kKiB);
    if (bytes > *size) return InvalidArgument("{} has {} bytes, {} were asked for", device, *size, bytes);
    uint64_t usable = (bytes == 0 ? *size : bytes) / granule_bytes_ * granule_bytes_;
    if (usable == 0)
      return InvalidArgument("{}: {} bytes, at least one unit of {} is needed", device, bytes, granule_bytes_);
    zeroed_ = false;
    return Map(usable);
  }
  // The device's memory is all there from the start.
  absl::Status Populate(uint64_t /*offset*/, uint64_t /*bytes*/) override { return absl::OkStatus(); }
};

class FileRegion final : public MappedRegion {
 public:
  absl::Status Open(const std::string& path, uint64_t bytes) {
    FIRN_RETURN_IF_ERROR(OpenLocked(path, O_RDWR | O_CREAT));
    struct stat info = {};
    if (fstat(fd_, &info) != 0) return ErrnoStatus(errno, "stat " + path);
    if (!S_ISREG(info.st_mode)) return FailedPrecondition("{} is not a regular file", path);
    if (bytes < granule_bytes_)
      return InvalidArgument("{}: {} bytes, at least {} are needed", path, bytes, granule_bytes_);
    if (ftruncate(fd_, 0) != 0) return ErrnoStatus(errno, "empty " + path);
    return Map(bytes / granule_bytes_ * granule_bytes_);
  }
  absl::Status Populate(uint64_t offset, uint64_t bytes) override {
    int error = posix_fallocate(fd_, static_cast<off_t>(offset), static_cast<off_t>(bytes));
    if (error == 0) return absl::OkStatus();
    if (ftruncate(fd_, static_cast<off_t>(offset)) != 0) return ErrnoStatus(errno, "shorten " + description_);
    return ErrnoStatus(error, fmt::format("take {} bytes for {}", bytes, description_));
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<MemoryRegion>> OpenDaxRegion(const std::string& device, uint64_t bytes) {
  auto region = std::make_unique<DaxRegion>();
  FIRN_RETURN_IF_ERROR(region->Open(device, bytes));
  return region;
}

absl::StatusOr<std::unique_ptr<MemoryRegion>> OpenFileRegion(const std::string& path, uint64_t bytes) {
  auto region = std::make_unique<FileRegion>();
  FIRN_RETURN_IF_ERROR(region->Open(path, bytes));
  return region;
}

}  // namespace firn
