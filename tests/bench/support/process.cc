#include "tests/bench/support/process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "base/check.h"
#include "base/status.h"

namespace firn::bench {
namespace {

double SecondsOf(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Child>> Child::Start(const std::vector<std::string>& command,
                                                    const std::string& log_path) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t pid = 0;
  int error_number = posix_spawn(&pid, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error_number != 0) return ErrnoStatus(error_number, "start " + command[0]);
  return std::unique_ptr<Child>(new Child(pid));
}

bool Child::running() {
  if (!reaped_ && waitpid(pid_, nullptr, WNOHANG) == pid_) reaped_ = true;
  return !reaped_;
}

double Child::CpuSeconds() const {
  clockid_t clock = 0;
  FIRN_CHECK(clock_getcpuclockid(pid_, &clock) == 0);
  return SecondsOf(clock);
}

double OwnCpuSeconds() { return SecondsOf(CLOCK_PROCESS_CPUTIME_ID); }

Child::~Child() {
  if (!running()) return;
  kill(pid_, SIGTERM);
  for (int tenths = 0; tenths < 300 && running(); ++tenths) usleep(100'000);
  if (!running()) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

TempFolder::TempFolder(const std::string& parent) {
  const char* tmp = std::getenv("TMPDIR");
  std::string pattern = (parent.empty() ? std::string(tmp != nullptr ? tmp : "/tmp") : parent) + "/firn-bench-XXXXXX";
  FIRN_CHECK(mkdtemp(pattern.data()) != nullptr);
  path_ = pattern;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace firn::bench
