#include "tiers/cold/device/directory_device.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/status.h"

namespace firn {
namespace {

constexpr char kTemporarySuffix[] = ".new";

bool IsTemporary(std::string_view name) { return name.ends_with(kTemporarySuffix); }

class FdCloser {
 public:
  explicit FdCloser(int fd) : fd_(fd) {}
  ~FdCloser() {
    if (fd_ >= 0) close(fd_);
  }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

}  // namespace

int64_t TransferOnce(const RawIo& io) {
  int fd = static_cast<const DirectoryFile&>(*io.file).fd();
  ssize_t result = 0;
  switch (io.kind) {
    case IoKind::kRead:
      result = pread(fd, io.data, io.length, static_cast<off_t>(io.offset));
      break;
    case IoKind::kWrite:
      result = pwrite(fd, io.data, io.length, static_cast<off_t>(io.offset));
      break;
    case IoKind::kSync:
      result = fdatasync(fd);
      break;
  }
  return result < 0 ? -errno : result;
}

DirectoryFile::~DirectoryFile() { close(fd_); }

DirectoryDevice::DirectoryDevice(const DirectoryOptions& options)
    : BlockDevice(options.transfer_bytes_max), options_(options) {}

DirectoryDevice::~DirectoryDevice() {
  if (directory_fd_ >= 0) close(directory_fd_);
}

absl::Status DirectoryDevice::OpenDirectory() {
  const std::string& path = options_.directory;
  if (mkdir(path.c_str(), 0750) != 0 && errno != EEXIST) return ErrnoStatus(errno, "create directory " + path);
  directory_fd_ = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory_fd_ < 0) return ErrnoStatus(errno, "open directory " + path);
  return absl::OkStatus();
}

FilePtr DirectoryDevice::MakeFile(std::string name, int fd) {
  return std::make_shared<DirectoryFile>(std::move(name), fd);
}

void DirectoryDevice::NoticeOnce(const std::string& about, const std::string& text) {
  {
    std::lock_guard lock(mu_);
    if (!said_.insert(about).second) return;
  }
  if (options_.notice) options_.notice(text);
}

absl::StatusOr<int> DirectoryDevice::OpenFile(const std::string& name, int flags) {
  flags |= O_RDWR | O_CLOEXEC;
  int fd = openat(directory_fd_, name.c_str(), flags | O_DIRECT, 0640);
  if (fd < 0 && errno == EINVAL) {
    // Some file systems create the file before they refuse O_DIRECT.
    if ((flags & O_EXCL) != 0) unlinkat(directory_fd_, name.c_str(), 0);
    NoticeOnce(
        "O_DIRECT",
        fmt::format("{}: the file system has no O_DIRECT; cold data passes through the page cache. Use ext4 or XFS.",
                    options_.directory));
    fd = openat(directory_fd_, name.c_str(), flags, 0640);
  }
  if (fd < 0) return ErrnoStatus(errno, fmt::format("open {}/{}", options_.directory, name));
  return fd;
}

absl::Status DirectoryDevice::Allocate(int fd, const std::string& name, uint64_t bytes) {
  int result = 0;
  do {
    result = fallocate(fd, 0, 0, static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result == 0) return absl::OkStatus();
  if (errno != EOPNOTSUPP)
    return ErrnoStatus(errno, fmt::format("preallocate {} bytes for {}/{}", bytes, options_.directory, name));
  NoticeOnce(
      "fallocate",
      fmt::format("{}: the file system cannot preallocate; a full disk will fail single writes. Use ext4 or XFS.",
                  options_.directory));
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    return ErrnoStatus(errno, fmt::format("extend {}/{} to {} bytes", options_.directory, name, bytes));
  }
  return absl::OkStatus();
}

absl::Status DirectoryDevice::SyncDirectory() {
  if (fsync(directory_fd_) != 0) return ErrnoStatus(errno, "fsync directory " + options_.directory);
  return absl::OkStatus();
}

absl::StatusOr<FilePtr> DirectoryDevice::CreateImpl(const std::string& name, uint64_t bytes) {
  std::string temporary = name + kTemporarySuffix;
  FIRN_ASSIGN_OR_RETURN(int fd, OpenFile(temporary, O_CREAT | O_EXCL));
  FdCloser closer(fd);
  absl::Status status = Allocate(fd, name, bytes);
  struct stat info {};
  if (status.ok() && fstat(fd, &info) != 0) status = ErrnoStatus(errno, "stat " + temporary);
  if (status.ok() && fsync(fd) != 0) status = ErrnoStatus(errno, "fsync " + temporary);
  // A file is never replaced: two of one name would be a programmer's error that costs data.
  if (status.ok() && renameat2(directory_fd_, temporary.c_str(), directory_fd_, name.c_str(), RENAME_NOREPLACE) != 0) {
    status = ErrnoStatus(errno, fmt::format("rename {} to {}", temporary, name));
  }
  if (!status.ok()) {
    unlinkat(directory_fd_, temporary.c_str(), 0);
    return status;
  }
  FilePtr file = MakeFile(name, closer.Release());
  SetSizes(file.get(), bytes, static_cast<uint64_t>(info.st_blocks) * 512);
  status = SyncDirectory();
  if (!status.ok()) {
    unlinkat(directory_fd_, name.c_str(), 0);
    return status;
  }
  return file;
}

absl::StatusOr<FilePtr> DirectoryDevice::OpenImpl(const std::string& name) {
  FIRN_ASSIGN_OR_RETURN(int fd, OpenFile(name, 0));
  FdCloser closer(fd);
  struct stat info {};
  if (fstat(fd, &info) != 0) return ErrnoStatus(errno, fmt::format("stat {}/{}", options_.directory, name));
  if (!S_ISREG(info.st_mode)) return InvalidArgument("{}/{} is not a regular file", options_.directory, name);
  FilePtr file = MakeFile(name, closer.Release());
  SetSizes(file.get(), static_cast<uint64_t>(info.st_size), static_cast<uint64_t>(info.st_blocks) * 512);
  return file;
}

absl::Status DirectoryDevice::RemoveImpl(const std::string& name) {
  if (unlinkat(directory_fd_, name.c_str(), 0) != 0) {
    if (errno == ENOENT) return absl::OkStatus();
    return ErrnoStatus(errno, fmt::format("remove {}/{}", options_.directory, name));
  }
  return SyncDirectory();
}

absl::Status DirectoryDevice::TruncateImpl(const FilePtr& file, uint64_t bytes) {
  int fd = static_cast<const DirectoryFile&>(*file).fd();
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    return ErrnoStatus(errno, fmt::format("truncate {}/{} to {}", options_.directory, file->name(), bytes));
  }
  if (fsync(fd) != 0) return ErrnoStatus(errno, fmt::format("fsync {}/{}", options_.directory, file->name()));
  struct stat info {};
  if (fstat(fd, &info) != 0) return ErrnoStatus(errno, fmt::format("stat {}/{}", options_.directory, file->name()));
  SetSizes(file.get(), bytes, static_cast<uint64_t>(info.st_blocks) * 512);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<FileEntry>> DirectoryDevice::ListImpl() {
  int fd = openat(directory_fd_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, "open directory " + options_.directory);
  DIR* directory = fdopendir(fd);
  if (directory == nullptr) {
    int error = errno;
    close(fd);
    return ErrnoStatus(error, "list " + options_.directory);
  }
  std::vector<FileEntry> files;
  std::vector<std::string> leftovers;
  while (const dirent* entry = readdir(directory)) {
    std::string name = entry->d_name;
    struct stat info {};
    if (fstatat(directory_fd_, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode)) continue;
    if (IsTemporary(name)) {
      leftovers.push_back(std::move(name));
    } else {
      files.push_back(
          {std::move(name), static_cast<uint64_t>(info.st_size), static_cast<uint64_t>(info.st_blocks) * 512});
    }
  }
  closedir(directory);
  for (const std::string& name : leftovers) FIRN_RETURN_IF_ERROR(RemoveImpl(name));
  return files;
}

int64_t DirectoryDevice::BlockingImpl(const RawIo& io) { return TransferOnce(io); }

}  // namespace firn
