#include "client/cpp/tensor/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/read_file.h"
#include "base/status.h"

namespace firn {
namespace {

absl::Status WriteAll(int fd, ByteSpan bytes, const std::string& path) {
  while (!bytes.empty()) {
    ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoStatus(errno, "write " + path);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckOutputPath(const std::string& path) {
  struct stat facts = {};
  if (lstat(path.c_str(), &facts) != 0) {
    return errno == ENOENT ? absl::OkStatus() : ErrnoStatus(errno, "create " + path);
  }
  if (S_ISREG(facts.st_mode)) return absl::OkStatus();
  return InvalidArgument("{} is {}, which is left alone; allowed: a regular file, or a path where nothing is", path,
                         FileKindName(facts.st_mode));
}

absl::Status WriteOutputFile(const std::string& path, const std::vector<ByteSpan>& pieces) {
  FIRN_RETURN_IF_ERROR(CheckOutputPath(path));
  std::string temporary = path + ".partial-" + std::to_string(getpid());
  unlink(temporary.c_str());  // Of an earlier process that was killed while it wrote.
  int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoStatus(errno, "create " + temporary);
  absl::Status status;
  for (ByteSpan piece : pieces) {
    if (status.ok()) status = WriteAll(fd, piece, temporary);
  }
  if (close(fd) != 0 && status.ok()) status = ErrnoStatus(errno, "close " + temporary);
  if (status.ok()) status = CheckOutputPath(path);  // Writing took a while.
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) {
    status = ErrnoStatus(errno, "rename " + temporary + " to " + path);
  }
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

}  // namespace firn
