// io_uring denied by a seccomp filter, as a container's default profile does: in a child process, since filters stay.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "base/status.h"
#include "tiers/cold/device/aligned_buffer.h"
#include "tiers/cold/device/open_device.h"

namespace firn {
namespace {

bool DenyIoUring() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog filter{4, program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

// What the child found, as its exit status: 0, or the number of the step that failed.
int InChild(const std::string& directory) {
  if (!DenyIoUring()) return 100;
  DirectoryOptions options;
  options.directory = directory;
  std::string notice;
  int notices = 0;
  options.notice = [&](std::string_view text) {
    notice = text;
    ++notices;
  };
  auto strict = OpenDevice(options, IoBackend::kUring);
  if (strict.ok() || StatusErrno(strict.status()).value_or(EPERM) != EPERM) return 1;
  auto device = OpenDevice(options, IoBackend::kAutomatic);
  if (!device.ok()) return 2;
  if ((*device)->backend() != "pread") return 3;
  if (notices != 1) return 4;
  for (const char* part : {"errno 1", "seccomp", "io_uring_disabled", "pread"}) {
    if (notice.find(part) == std::string::npos) return 5;
  }
  AlignedBuffer buffer(1 << 20), back(1 << 20);
  buffer.data()[77] = 5;
  (*device)->RegisterBuffer(buffer.span());
  auto file = (*device)->Create("x", 1 << 20);
  if (!file.ok() || !(*device)->WriteBlocking(*file, 0, buffer.span()).ok()) return 6;
  auto bytes = (*device)->ReadBlocking(*file, 0, back.span());
  if (!bytes.ok() || *bytes != back.size() || back.data()[77] != 5) return 7;
  return 0;
}

TEST(Device, C54_ioUringDeniedBySeccompFallsBackAndSaysSo) {
  std::string pattern = (std::filesystem::temp_directory_path() / "firn-denied-XXXXXX").string();
  std::string directory = mkdtemp(pattern.data());
  pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(InChild(directory));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  std::filesystem::remove_all(directory);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 100) GTEST_SKIP() << "this process may not install a seccomp filter";
  EXPECT_EQ(WEXITSTATUS(status), 0) << "step of the child that failed";
}

}  // namespace
}  // namespace firn
