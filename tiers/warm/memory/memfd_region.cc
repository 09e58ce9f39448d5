#include "tiers/warm/memory/memfd_region.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "base/status.h"
#include "base/units.h"
#include "tiers/cxl/numa.h"
#include "tiers/warm/memory/memory_limits.h"

namespace firn {
namespace {

constexpr uint64_t kHugePageBytes = 2 * kMiB;

class MemfdRegion final : public MemoryRegion {
 public:
  ~MemfdRegion() override {
    if (base_ != nullptr) munmap(base_, bytes_);
    if (fd_ >= 0) close(fd_);
  }

  absl::Status Open(const MemfdOptions& options, bool reserved_pages) {
    options_ = options;
    reserved_pages_ = reserved_pages;
    bytes_ = options.bytes;
    far_ = options.far;
    granule_bytes_ = reserved_pages || options.huge_pages == HugePages::kTransparent ? kHugePageBytes : 64 * kKiB;
    if (bytes_ < kHugePageBytes) granule_bytes_ = 64 * kKiB;
    bytes_ -= bytes_ % granule_bytes_;
    unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | (reserved_pages ? MFD_HUGETLB | MFD_HUGE_2MB : 0u);
    fd_ = memfd_create(options.label.c_str(), flags);
    if (fd_ < 0) return ErrnoStatus(errno, fmt::format("create a memfd named {}", options.label));
    if (ftruncate(fd_, static_cast<off_t>(bytes_)) != 0) {
      return ErrnoStatus(errno, fmt::format("set a memfd's length to {} bytes", bytes_));
    }
    if (fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
      return ErrnoStatus(errno, "seal a memfd's length");
    }
    void* mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_, 0);
    if (mapped == MAP_FAILED) return ErrnoStatus(errno, fmt::format("map {} bytes of a memfd", bytes_));
    base_ = static_cast<uint8_t*>(mapped);
    // Advice only: what the kernel makes of it changes speed and the size of a core dump, nothing else.
    madvise(base_, bytes_, MADV_DONTDUMP);
    if (options.huge_pages == HugePages::kTransparent) madvise(base_, bytes_, MADV_HUGEPAGE);
    if (options.numa_node.has_value()) return BindToNode(base_, bytes_, *options.numa_node);
    return absl::OkStatus();
  }

  absl::Status Populate(uint64_t offset, uint64_t bytes) override {
    absl::Status status = Take(offset, bytes);
    // What was taken before the failure goes back: nobody would use it.
    if (!status.ok()) {
      fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(bytes));
    }
    return status;
  }

  std::string Describe() const override {
    std::string pages = reserved_pages_                          ? "reserved 2 MiB pages"
                        : options_.huge_pages == HugePages::kOff ? "small pages"
                        : options_.huge_pages == HugePages::kReserved
                            ? "transparent huge pages, no reserved ones were free"
                            : "transparent huge pages if the kernel allows";
    if (!options_.numa_node.has_value()) return fmt::format("memfd, {}", pages);
    return fmt::format("memfd, {}, NUMA node {}", pages, *options_.numa_node);
  }

 private:
  absl::Status Take(uint64_t offset, uint64_t bytes) {
    if (!reserved_pages_) FIRN_RETURN_IF_ERROR(CheckMemoryAvailable(bytes, AvailableMemoryBytes()));
    if (madvise(base_ + offset, bytes, MADV_POPULATE_WRITE) != 0) {
      int error = errno;
      if (error != EINVAL) return Failed(error, bytes);
      // A kernel before 5.14: take the memory without mapping it yet.
      if (fallocate(fd_, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0) return Failed(errno, bytes);
    }
    if (!options_.numa_node.has_value()) return absl::OkStatus();
    return VerifyOnNode(base_ + offset, bytes, *options_.numa_node, kHugePageBytes);
  }

  // Populating reports missing memory as EFAULT where a plain access would end the process.
  absl::Status Failed(int error, uint64_t bytes) const {
    return ErrnoStatus(error == EFAULT ? ENOMEM : error, fmt::format("take {} bytes of memory for a pool", bytes));
  }

  MemfdOptions options_;
  bool reserved_pages_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MemoryRegion>> OpenMemfdRegion(const MemfdOptions& options) {
  if (options.bytes < 64 * kKiB) {
    return InvalidArgument("a memory pool of {} bytes was asked for; at least {} are needed", options.bytes, 64 * kKiB);
  }
  if (options.numa_node.has_value()) FIRN_RETURN_IF_ERROR(CheckMemoryNode(*options.numa_node));
  if (options.huge_pages == HugePages::kReserved && options.bytes >= kHugePageBytes) {
    auto reserved = std::make_unique<MemfdRegion>();
    if (reserved->Open(options, true).ok() && reserved->Populate(0, kHugePageBytes).ok()) return reserved;
  }
  auto region = std::make_unique<MemfdRegion>();
  FIRN_RETURN_IF_ERROR(region->Open(options, false));
  return region;
}

}  // namespace firn
