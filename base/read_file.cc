#include "base/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/status.h"

namespace firn {
namespace {

absl::StatusOr<std::string> ReadOpened(int fd, const std::string& path, uint64_t bytes_max) {
  struct stat facts = {};
  if (::fstat(fd, &facts) != 0) return ErrnoStatus(errno, fmt::format("stat {}", path));
  if (!S_ISREG(facts.st_mode)) {
    return InvalidArgument("{} is {}; allowed: a regular file of at most {} bytes", path, FileKindName(facts.st_mode),
                           bytes_max);
  }
  auto too_large = [&](uint64_t bytes) {
    return InvalidArgument("{} has {} bytes or more; allowed: at most {}", path, bytes, bytes_max);
  };
  auto size = static_cast<uint64_t>(facts.st_size);
  if (size > bytes_max) return too_large(size);
  std::string text;
  // Files of /proc say that they have no bytes: the size is a hint, the limit is not.
  char piece[16 * 1024];
  while (true) {
    ssize_t got = ::read(fd, piece, sizeof(piece));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, fmt::format("read {}", path));
    if (got == 0) return text;
    text.append(piece, static_cast<size_t>(got));
    if (text.size() > bytes_max) return too_large(text.size());
  }
}

}  // namespace

const char* FileKindName(mode_t mode) {
  if (S_ISREG(mode)) return "a regular file";
  if (S_ISLNK(mode)) return "a symbolic link";
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, uint64_t bytes_max) {
  // Opening a FIFO or a device waits, or does something, unless told not to.
  int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, fmt::format("open {}", path));
  auto text = ReadOpened(fd, path, bytes_max);
  ::close(fd);
  return text;
}

}  // namespace firn
