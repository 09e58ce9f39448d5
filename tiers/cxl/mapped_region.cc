#include "tiers/cxl/mapped_region.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>

#include "base/status.h"
#include "base/units.h"

namespace firn {
namespace {

// The first bytes of every file of ours; the memory itself begins at kMemoryOffset, where large pages can, too. What
// lies between takes no space.
constexpr std::string_view kMarker = "FirnKV memory, not persistent, 1\n";
constexpr uint64_t kMemoryOffset = 2 * kMiB;

class MappedRegion : public MemoryRegion {
 public:
  ~MappedRegion() override {
    if (base_ != nullptr) munmap(base_, bytes_);
    if (locked_fd_ >= 0) close(locked_fd_);
  }
  std::string Describe() const override { return description_; }

 protected:
  absl::Status OpenLocked(const std::string& path, int flags) {
    description_ = path;
    far_ = true;
    locked_fd_ = open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0600);
    if (locked_fd_ < 0) return ErrnoStatus(errno, "open " + path);
    if (flock(locked_fd_, LOCK_EX | LOCK_NB) == 0) return absl::OkStatus();
    if (errno == EWOULDBLOCK) return FailedPrecondition("{} is in use by another process", path);
    return ErrnoStatus(errno, "lock " + path);
  }
  absl::Status Map(uint64_t offset, uint64_t bytes) {
    void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, locked_fd_,
                        static_cast<off_t>(offset));
    if (mapped == MAP_FAILED) return ErrnoStatus(errno, fmt::format("map {} bytes of {}", bytes, description_));
    base_ = static_cast<uint8_t*>(mapped);
    bytes_ = bytes;
    madvise(base_, bytes_, MADV_DONTDUMP);  // Advice: a core dump without it is only larger.
    return absl::OkStatus();
  }
  std::string description_;
  int locked_fd_ = -1;
};

std::optional<uint64_t> SysNumber(const struct stat& device, const char* attribute) {
  std::ifstream file(fmt::format("/sys/dev/char/{}:{}/{}", major(device.st_rdev), minor(device.st_rdev), attribute));
  uint64_t value = 0;
  if (!(file >> value)) return std::nullopt;
  return value;
}

struct DaxFacts {
  uint64_t usable_bytes = 0, granule_bytes = 0;
};

// Of what stat or fstat said of `device`, when `bytes` of it are asked for.
absl::StatusOr<DaxFacts> DaxFactsOf(const std::string& device, const struct stat& info, uint64_t bytes) {
  std::optional<uint64_t> size, align;
  if (S_ISCHR(info.st_mode)) {
    size = SysNumber(info, "size");
    align = SysNumber(info, "align");
    if (!align.has_value()) align = SysNumber(info, "device/align");
  }
  if (!size.has_value()) return FailedPrecondition("{} is not a DAX device: its size is not in /sys/dev/char", device);
  DaxFacts facts;
  facts.granule_bytes = std::max(align.value_or(2 * kMiB), 64 * kKiB);
  if (bytes > *size) return InvalidArgument("{} has {} bytes, {} were asked for", device, *size, bytes);
  facts.usable_bytes = (bytes == 0 ? *size : bytes) / facts.granule_bytes * facts.granule_bytes;
  if (facts.usable_bytes == 0) {
    return InvalidArgument("{}: {} bytes, at least one unit of {} is needed", device, bytes, facts.granule_bytes);
  }
  return facts;
}

class DaxRegion final : public MappedRegion {
 public:
  absl::Status Open(const std::string& device, uint64_t bytes) {
    FIRN_RETURN_IF_ERROR(OpenLocked(device, O_RDWR));
    struct stat info = {};
    if (fstat(locked_fd_, &info) != 0) return ErrnoStatus(errno, "stat " + device);
    FIRN_ASSIGN_OR_RETURN(DaxFacts facts, DaxFactsOf(device, info, bytes));
    granule_bytes_ = facts.granule_bytes;
    zeroed_ = false;
    fd_ = locked_fd_;
    return Map(0, facts.usable_bytes);
  }
  // The device's memory is all there from the start.
  absl::Status Populate(uint64_t /*offset*/, uint64_t /*bytes*/) override { return absl::OkStatus(); }
};

// OK for an empty file, and for one that begins with our marker.
absl::Status CheckOurs(const std::string& path, int fd) {
  struct stat info = {};
  if (fstat(fd, &info) != 0) return ErrnoStatus(errno, "stat " + path);
  if (!S_ISREG(info.st_mode)) return FailedPrecondition("{} is not a regular file", path);
  if (info.st_size == 0) return absl::OkStatus();
  char start[kMarker.size()] = {};
  ssize_t got = pread(fd, start, sizeof(start), 0);
  if (got < 0) return ErrnoStatus(errno, "read " + path);
  if (std::string_view(start, static_cast<size_t>(got)) == kMarker) return absl::OkStatus();
  return FailedPrecondition(
      "{} holds {} bytes that FirnKV did not write; they are left alone: name another path, or remove the file", path,
      info.st_size);
}

class FileRegion final : public MappedRegion {
 public:
  absl::Status Open(const std::string& path, uint64_t bytes) {
    FIRN_RETURN_IF_ERROR(OpenLocked(path, O_RDWR | O_CREAT));
    FIRN_RETURN_IF_ERROR(CheckOurs(path, locked_fd_));
    if (bytes < granule_bytes_)
      return InvalidArgument("{}: {} bytes, at least {} are needed", path, bytes, granule_bytes_);
    if (ftruncate(locked_fd_, 0) != 0) return ErrnoStatus(errno, "empty " + path);
    if (pwrite(locked_fd_, kMarker.data(), kMarker.size(), 0) != static_cast<ssize_t>(kMarker.size())) {
      return ErrnoStatus(errno, "mark " + path);
    }
    return Map(kMemoryOffset, bytes / granule_bytes_ * granule_bytes_);
  }
  absl::Status Populate(uint64_t offset, uint64_t bytes) override {
    auto at = static_cast<off_t>(kMemoryOffset + offset);
    int error = posix_fallocate(locked_fd_, at, static_cast<off_t>(bytes));
    if (error == 0) {
      // Space is there; this only maps it ahead, which kernels before 5.14 leave to the first demotions.
      madvise(base_ + offset, bytes, MADV_POPULATE_WRITE);
      return absl::OkStatus();
    }
    if (ftruncate(locked_fd_, at) != 0) return ErrnoStatus(errno, "shorten " + description_);
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

absl::Status CheckDaxRegion(const std::string& device, uint64_t bytes) {
  struct stat info = {};
  if (stat(device.c_str(), &info) != 0) return ErrnoStatus(errno, "open " + device);
  FIRN_RETURN_IF_ERROR(DaxFactsOf(device, info, bytes).status());
  if (faccessat(AT_FDCWD, device.c_str(), R_OK | W_OK, AT_EACCESS) != 0) return ErrnoStatus(errno, "open " + device);
  return absl::OkStatus();
}

absl::Status CheckFileRegion(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) {
    if (errno != ENOENT) return ErrnoStatus(errno, "open " + path);
    std::string folder = std::filesystem::path(path).parent_path();
    if (faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) == 0) return absl::OkStatus();
    return ErrnoStatus(errno, "create a file in " + folder);
  }
  if (!S_ISREG(info.st_mode)) return FailedPrecondition("{} is not a regular file", path);
  int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return ErrnoStatus(errno, "open " + path);
  absl::Status ours = CheckOurs(path, fd);
  close(fd);
  return ours;
}

}  // namespace firn
