#include "tiers/cold/open_cold_tier.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/status.h"
#include "tiers/cold/index/rocksdb_index.h"

namespace firn {

class DirectoryLock {
 public:
  explicit DirectoryLock(int fd) : fd_(fd) {}
  ~DirectoryLock() { close(fd_); }
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

  static absl::StatusOr<std::shared_ptr<DirectoryLock>> Take(const std::string& directory) {
    std::string path = directory + "/LOCK";
    int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0640);
    if (fd < 0) return ErrnoStatus(errno, "open " + path);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      int error = errno;
      close(fd);
      if (error == EWOULDBLOCK) return AlreadyExists("{} is used by another process", directory);
      return ErrnoStatus(error, "lock " + path);
    }
    return std::make_shared<DirectoryLock>(fd);
  }

 private:
  const int fd_;
};

namespace {

absl::StatusOr<std::unique_ptr<ColdTier>> OpenOnce(const ColdDirectoryOptions& directory, const ColdOptions& options,
                                                   const ColdRecovery& recovery, ColdRecoveryReport* report) {
  DirectoryOptions device_options;
  device_options.directory = directory.directory + "/segments";
  device_options.transfer_bytes_max = options.chunk_bytes;
  device_options.depth = directory.io_depth;
  device_options.notice = options.notice;
  FIRN_ASSIGN_OR_RETURN(std::unique_ptr<BlockDevice> device, OpenDevice(device_options, directory.io));
  RocksDbOptions index_options;
  index_options.directory = directory.directory + "/index";
  index_options.memory_bytes = directory.index_memory_bytes;
  FIRN_ASSIGN_OR_RETURN(std::unique_ptr<KeyValueIndex> index, OpenRocksDbIndex(index_options));
  return ColdTier::Open(options, std::move(device), std::move(index), recovery, report);
}

}  // namespace

absl::StatusOr<OpenedColdTier> OpenColdTier(const ColdDirectoryOptions& directory, const ColdOptions& options,
                                            const ColdRecovery& recovery) {
  if (mkdir(directory.directory.c_str(), 0750) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, "create directory " + directory.directory);
  }
  OpenedColdTier opened;
  FIRN_ASSIGN_OR_RETURN(opened.lock, DirectoryLock::Take(directory.directory));
  // What a failed try has told must not be told again.
  bool told = false;
  ColdRecovery noting;
  noting.on_fact = [&](RecoveredFact fact) {
    told = true;
    if (recovery.on_fact) recovery.on_fact(std::move(fact));
  };
  noting.on_copy = [&](RecoveredCopy copy) {
    told = true;
    if (recovery.on_copy) recovery.on_copy(std::move(copy));
  };
  auto tier = OpenOnce(directory, options, noting, &opened.report);
  bool corrupt = !tier.ok() && tier.status().code() == absl::StatusCode::kDataLoss && !told;
  if (corrupt) {
    if (options.notice) options.notice(fmt::format("{}; the index is made anew from the log", Message(tier.status())));
    FIRN_RETURN_IF_ERROR(DestroyRocksDbIndex(directory.directory + "/index"));
    opened.report = ColdRecoveryReport();
    tier = OpenOnce(directory, options, noting, &opened.report);
  }
  FIRN_RETURN_IF_ERROR(tier.status());
  opened.tier = *std::move(tier);
  return opened;
}

}  // namespace firn
