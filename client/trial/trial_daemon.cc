#include "tests/support/daemon_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/check.h"
#include "base/clock.h"
#include "base/status.h"

namespace firn {
namespace {

int64_t NowMs() { return Clock::Real()->NowNs() / 1'000'000; }

}  // namespace

DaemonProcess::DaemonProcess(DaemonOptions options) : options_(std::move(options)) {
  std::string pattern = (std::filesystem::temp_directory_path() / "firn-test-XXXXXX").string();
  FIRN_CHECK(::mkdtemp(pattern.data()) != nullptr);
  folder_ = pattern;
  std::filesystem::create_directories(folder_ / "run");
  std::ofstream config(folder_ / "firnd.toml");
  config << "state_dir = \"" << (folder_ / "state").string() << "\"\n"
         << "runtime_dir = \"" << (folder_ / "run").string() << "\"\n"
         << "[admin]\nhttp = \"" << options_.admin_http << "\"\n"
         << "[[tier]]\nname = \"hot\"\nmedium = \"" << (options_.hot_backend.empty() ? "dram" : "gpu:0")
         << "\"\ncapacity = \"" << options_.hot_capacity << "\"\nprecision = \"exact\"\n"
         << (options_.hot_backend.empty() ? "" : "backend = \"" + options_.hot_backend + "\"\nstaging = \"64MiB\"\n")
         << "[[tier]]\nname = \"warm\"\nmedium = \"dram\"\ncapacity = \"" << options_.warm_capacity
         << "\"\nprecision = \"int8\"\nleast = \"int4\"\n"
         << "[[tier]]\nname = \"cold\"\nmedium = \"nvme\"\ncapacity = \"" << options_.cold_capacity << "\"\npath = \""
         << cold_path().string() << "\"\nprecision = \"int4\"\nleast = \"int2\"\n"
         << "[[listener]]\nuds = \"" << socket_path() << "\"\nadmin = true\n"
         << options_.extra_toml;
}

DaemonProcess::~DaemonProcess() {
  KillNow();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::filesystem::path DaemonProcess::cold_path() const {
  return options_.cold_path.empty() ? folder_ / "state" / "cold" : std::filesystem::path(options_.cold_path);
}

absl::Status DaemonProcess::Start(int64_t timeout_ms) {
  FIRN_CHECK(pid_ < 0);
  const std::string program = std::string(FIRN_BINARY_DIR) + "/daemon/firnd";
  const std::string config = (folder_ / "firnd.toml").string();
  const std::string log = (folder_ / "firnd.log").string();
  int64_t started = NowMs();
  pid_ = ::fork();
  if (pid_ < 0) return ErrnoStatus(errno, "fork");
  if (pid_ == 0) {
    int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (out >= 0) {
      ::dup2(out, 1);
      ::dup2(out, 2);
    }
    ::execl(program.c_str(), program.c_str(), "--config", config.c_str(), static_cast<char*>(nullptr));
    ::_exit(127);
  }
  auto client = Connect();
  absl::Status ready = client->WaitUntilReady(timeout_ms);
  ready_ms_ = NowMs() - started;
  if (!ready.ok()) return absl::Status(ready.code(), Message(ready) + "; its log:\n" + Log());
  return absl::OkStatus();
}

std::unique_ptr<firnkv::Client> DaemonProcess::Connect() const {
  firnkv::ClientOptions options;
  options.address = socket_path();
  auto client = firnkv::Client::Create(options);
  FIRN_CHECK(client.ok());
  return *std::move(client);
}

bool DaemonProcess::WaitForExit(int64_t timeout_ms, int* status) {
  for (int64_t deadline = NowMs() + timeout_ms;;) {
    pid_t ended = ::waitpid(pid_, status, WNOHANG);
    if (ended == pid_) {
      pid_ = -1;
      return true;
    }
    if (NowMs() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

void DaemonProcess::KillNow() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  int status = 0;
  FIRN_CHECK(WaitForExit(30'000, &status));
}

int DaemonProcess::Terminate(int64_t timeout_ms) {
  if (pid_ < 0) return -1;
  ::kill(pid_, SIGTERM);
  int status = 0;
  if (!WaitForExit(timeout_ms, &status)) {
    KillNow();
    return -1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string DaemonProcess::Log() const {
  std::ifstream file(folder_ / "firnd.log");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

uint64_t DaemonProcess::ResidentBytes() const {
  std::ifstream file("/proc/" + std::to_string(pid_) + "/statm");
  uint64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace firn
