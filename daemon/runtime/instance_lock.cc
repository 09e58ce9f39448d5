#include "daemon/runtime/instance_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/status.h"

namespace firn {
namespace {

std::string HolderOf(int fd) {
  char text[32] = {};
  ssize_t got = ::pread(fd, text, sizeof(text) - 1, 0);
  std::string holder(text, got > 0 ? static_cast<size_t>(got) : 0);
  while (!holder.empty() && holder.back() == '\n') holder.pop_back();
  return holder.empty() ? "unknown" : holder;
}

// True when somebody accepts connections at `path`.
absl::StatusOr<bool> Answers(const std::string& path) {
  int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return ErrnoStatus(errno, "socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  int result = ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  int error = errno;
  ::close(fd);
  // EAGAIN: there is a listener and its backlog is full.
  if (result == 0 || error == EAGAIN || error == EINPROGRESS) return true;
  if (error == ECONNREFUSED || error == ENOENT) return false;
  return ErrnoStatus(error, fmt::format("connect to {}", path));
}

}  // namespace

absl::Status MakeDirectories(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  struct stat facts;
  if (::stat(path.c_str(), &facts) == 0) {
    if (!S_ISDIR(facts.st_mode)) return FailedPrecondition("{} is not a directory", path);
    return absl::OkStatus();
  }
  FIRN_RETURN_IF_ERROR(MakeDirectories(std::filesystem::path(path).parent_path().string()));
  if (::mkdir(path.c_str(), 0750) != 0 && errno != EEXIST) return ErrnoStatus(errno, fmt::format("mkdir {}", path));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<InstanceLock>> InstanceLock::Acquire(const std::string& path) {
  FIRN_RETURN_IF_ERROR(MakeDirectories(std::filesystem::path(path).parent_path().string()));
  // The holder removes its file when it ends; a lock taken on a file that was removed meanwhile excludes nobody, so try
  // again.
  for (int attempt = 0; attempt < 8; ++attempt) {
    int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (fd < 0) return ErrnoStatus(errno, fmt::format("open lock {}", path));
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
      int error = errno;
      std::string holder = HolderOf(fd);
      ::close(fd);
      if (error != EWOULDBLOCK) return ErrnoStatus(error, fmt::format("lock {}", path));
      return FailedPrecondition("another firnd (process {}) holds {}", holder, path);
    }
    struct stat opened, named;
    if (::fstat(fd, &opened) != 0 || ::stat(path.c_str(), &named) != 0 || opened.st_ino != named.st_ino ||
        opened.st_dev != named.st_dev) {
      ::close(fd);
      continue;
    }
    std::string holder = fmt::format("{}\n", ::getpid());
    if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, holder.data(), holder.size(), 0) < 0) {
      int error = errno;
      ::close(fd);
      return ErrnoStatus(error, fmt::format("write lock {}", path));
    }
    return std::unique_ptr<InstanceLock>(new InstanceLock(path, fd));
  }
  return Unavailable("lock {} keeps being replaced", path);
}

InstanceLock::~InstanceLock() {
  ::unlink(path_.c_str());
  ::close(fd_);
}

absl::Status PrepareSocketPath(const std::string& path) {
  if (path.size() >= sizeof(sockaddr_un{}.sun_path)) {
    return InvalidArgument("socket path {} has {} bytes; the limit is {}", path, path.size(),
                           sizeof(sockaddr_un{}.sun_path) - 1);
  }
  FIRN_RETURN_IF_ERROR(MakeDirectories(std::filesystem::path(path).parent_path().string()));
  struct stat facts;
  if (::lstat(path.c_str(), &facts) != 0) {
    return errno == ENOENT ? absl::OkStatus() : ErrnoStatus(errno, fmt::format("stat {}", path));
  }
  if (!S_ISSOCK(facts.st_mode)) return FailedPrecondition("{} exists and is not a socket; it is left alone", path);
  FIRN_ASSIGN_OR_RETURN(bool answers, Answers(path));
  if (answers) return FailedPrecondition("another process answers on {}", path);
  if (::unlink(path.c_str()) != 0) return ErrnoStatus(errno, fmt::format("remove stale socket {}", path));
  return absl::OkStatus();
}

absl::Status SetSocketAccess(const std::string& path, uint32_t mode, const std::string& group) {
  if (!group.empty()) {
    errno = 0;
    const struct group* entry = ::getgrnam(group.c_str());
    if (entry == nullptr) return NotFound("group {} of socket {} does not exist", group, path);
    if (::chown(path.c_str(), static_cast<uid_t>(-1), entry->gr_gid) != 0) {
      return ErrnoStatus(errno, fmt::format("give {} to group {}", path, group));
    }
  }
  if (::chmod(path.c_str(), mode) != 0) return ErrnoStatus(errno, fmt::format("chmod {:04o} {}", mode, path));
  return absl::OkStatus();
}

}  // namespace firn
