// The files of a block device as files of one directory: what the io_uring and the pread devices share.
//
// Files are opened with O_DIRECT, created under a temporary name, preallocated with fallocate, renamed, and the
// directory is synced, so that a file of its final name always has its space. Where the file system lacks O_DIRECT or
// fallocate, that is said once and done without.
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tiers/cold/device/device.h"

namespace firn {

struct DirectoryOptions {
  std::string directory;  // Created if missing; its parent must exist.
  uint64_t transfer_bytes_max = uint64_t{512} << 10;
  uint32_t depth = 32;  // Transfers in flight at most.
  NoticeSink notice;    // May be empty.
};

class DirectoryFile : public DeviceFile {
 public:
  DirectoryFile(std::string name, int fd) : DeviceFile(std::move(name)), fd_(fd) {}
  ~DirectoryFile() override;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

class DirectoryDevice : public BlockDevice {
 public:
  ~DirectoryDevice() override;

 protected:
  explicit DirectoryDevice(const DirectoryOptions& options);
  // To be called once, before anything else.
  absl::Status OpenDirectory();

  virtual FilePtr MakeFile(std::string name, int fd);
  absl::StatusOr<FilePtr> CreateImpl(const std::string& name, uint64_t bytes) override;
  absl::StatusOr<FilePtr> OpenImpl(const std::string& name) override;
  absl::Status RemoveImpl(const std::string& name) override;
  absl::Status TruncateImpl(const FilePtr& file, uint64_t bytes) override;
  absl::StatusOr<std::vector<FileEntry>> ListImpl() override;
  int64_t BlockingImpl(const RawIo& io) override;

  // Says `text` unless something was said under `about` before.
  void NoticeOnce(const std::string& about, const std::string& text);
  const DirectoryOptions& options() const { return options_; }

 private:
  absl::StatusOr<int> OpenFile(const std::string& name, int flags);
  absl::Status Allocate(int fd, const std::string& name, uint64_t bytes);
  absl::Status SyncDirectory();

  const DirectoryOptions options_;
  int directory_fd_ = -1;
  std::mutex mu_;
  std::set<std::string> said_;  // Guarded by mu_.
};

// One pread, pwrite or fdatasync: bytes, or a negative errno.
int64_t TransferOnce(const RawIo& io);

}  // namespace firn
