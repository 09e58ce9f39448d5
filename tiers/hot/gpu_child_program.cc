#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>

#include "base/status.h"
#include "tiers/hot/gpu_link.h"
#include "tiers/hot/protocol/channel.h"

extern char** environ;

namespace firn {
namespace {

constexpr int kChildSocket = 3;

class ChildProgram final : public GpuChild {
 public:
  ChildProgram(pid_t pid, UniqueFd socket) : pid_(pid), socket_(std::move(socket)) {}
  ~ChildProgram() override {
    ::kill(pid_, SIGKILL);
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
  }
  UniqueFd TakeSocket() override { return std::move(socket_); }
  int pid() const override { return pid_; }

 private:
  const pid_t pid_;
  UniqueFd socket_;
};

}  // namespace

GpuChildStarter StartProgram(std::string program, std::vector<std::string> arguments) {
  return
      [program = std::move(program), arguments = std::move(arguments)]() -> absl::StatusOr<std::unique_ptr<GpuChild>> {
        FIRN_ASSIGN_OR_RETURN(auto sockets, gpu::SocketPair());
        std::vector<std::string> words{program};
        words.insert(words.end(), arguments.begin(), arguments.end());
        std::vector<char*> argv;
        for (std::string& word : words) argv.push_back(word.data());
        argv.push_back(nullptr);

        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        // Descriptors are closed on exec; a copy onto the same number would stay closed, so it goes by way of another.
        UniqueFd high(::fcntl(sockets.second.get(), F_DUPFD_CLOEXEC, kChildSocket + 1));
        if (!high.valid()) {
          posix_spawn_file_actions_destroy(&actions);
          return ErrnoStatus(errno, "duplicate a descriptor");
        }
        posix_spawn_file_actions_adddup2(&actions, high.get(), kChildSocket);
        posix_spawnattr_t attributes;
        posix_spawnattr_init(&attributes);
        sigset_t none;
        sigemptyset(&none);
        posix_spawnattr_setsigmask(&attributes, &none);
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
        pid_t pid = 0;
        int error = ::posix_spawn(&pid, program.c_str(), &actions, &attributes, argv.data(), environ);
        posix_spawn_file_actions_destroy(&actions);
        posix_spawnattr_destroy(&attributes);
        if (error != 0) return ErrnoStatus(error, "start " + program);
        return std::unique_ptr<GpuChild>(std::make_unique<ChildProgram>(pid, std::move(sockets.first)));
      };
}

}  // namespace firn
