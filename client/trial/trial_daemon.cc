#include "client/trial/trial_daemon.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/status.h"

namespace firn {
namespace {

int64_t NowMs() { return Clock::Real()->NowNs() / 1'000'000; }

}  // namespace

TrialDaemon::TrialDaemon(std::string program, std::filesystem::path folder, DaemonOptions options)
    : program_(std::move(program)), folder_(std::move(folder)), options_(std::move(options)) {
  std::filesystem::create_directories(folder_ / "run");
  WriteConfig();
}

TrialDaemon::~TrialDaemon() { KillNow(); }

void TrialDaemon::WriteConfig() const {
  const std::string ecc = options_.ecc.empty() ? "" : "ecc = \"" + options_.ecc + "\"\n";
  const bool gpu = !options_.hot_backend.empty();
  std::ofstream config(folder_ / "firnd.toml");
  config << "state_dir = \"" << (folder_ / "state").string() << "\"\n"
         << "runtime_dir = \"" << (folder_ / "run").string() << "\"\n"
         << "[admin]\nhttp = \"" << options_.admin_http << "\"\n"
         << "[[tier]]\nname = \"hot\"\nmedium = \"" << (gpu ? "gpu:0" : "dram") << "\"\ncapacity = \""
         << options_.hot_capacity << "\"\nprecision = \"exact\"\n"
         << (gpu ? "backend = \"" + options_.hot_backend + "\"\nstaging = \"64MiB\"\n" : ecc)
         << "[[tier]]\nname = \"warm\"\nmedium = \"dram\"\ncapacity = \"" << options_.warm_capacity
         << "\"\nprecision = \"int8\"\nleast = \"int4\"\n"
         << ecc << "[[tier]]\nname = \"cold\"\nmedium = \"nvme\"\ncapacity = \"" << options_.cold_capacity
         << "\"\npath = \"" << cold_path().string() << "\"\nprecision = \"int4\"\nleast = \"int2\"\n"
         << ecc << "[[listener]]\nuds = \"" << socket_path() << "\"\nadmin = true\n"
         << options_.extra_toml;
}

std::filesystem::path TrialDaemon::cold_path() const {
  return options_.cold_path.empty() ? folder_ / "state" / "cold" : std::filesystem::path(options_.cold_path);
}

absl::Status TrialDaemon::Start(int64_t timeout_ms) {
  FIRN_CHECK(pid_ < 0);
  const std::string config = (folder_ / "firnd.toml").string();
  const std::string log = (folder_ / "firnd.log").string();
  int64_t started = NowMs();
  pid_ = ::fork();
  if (pid_ < 0) return ErrnoStatus(errno, "fork");
  if (pid_ == 0) {
    if (options_.dies_with_starter) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (out >= 0) {
      ::dup2(out, 1);
      ::dup2(out, 2);
    }
    ::execl(program_.c_str(), program_.c_str(), "--config", config.c_str(), static_cast<char*>(nullptr));
    ::_exit(127);
  }
  auto client = Connect();
  constexpr int64_t kStepMs = 1000;  // A program that has ended is noticed within that.
  absl::Status ready = Unavailable("not asked");
  for (int64_t left_ms = timeout_ms; !ready.ok() && left_ms > 0; left_ms = timeout_ms - (NowMs() - started)) {
    ready = client->WaitUntilReady(std::min(left_ms, kStepMs));
    if (!ready.ok() && !Running()) {
      ready = absl::InternalError("the daemon has ended");
      break;
    }
  }
  ready_ms_ = NowMs() - started;
  if (!ready.ok()) return absl::Status(ready.code(), Message(ready) + "; its log:\n" + Log());
  return absl::OkStatus();
}

std::unique_ptr<firnkv::Client> TrialDaemon::Connect() const {
  firnkv::ClientOptions options;
  options.address = socket_path();
  auto client = firnkv::Client::Create(options);
  FIRN_CHECK(client.ok());
  return *std::move(client);
}

bool TrialDaemon::WaitForExit(int64_t timeout_ms, int* status) {
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

bool TrialDaemon::Running() {
  int status = 0;
  return pid_ >= 0 && !WaitForExit(0, &status);
}

void TrialDaemon::KillNow() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  int status = 0;
  FIRN_CHECK(WaitForExit(30'000, &status));
}

int TrialDaemon::Terminate(int64_t timeout_ms) {
  if (pid_ < 0) return -1;
  ::kill(pid_, SIGTERM);
  int status = 0;
  if (!WaitForExit(timeout_ms, &status)) {
    KillNow();
    return -1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string TrialDaemon::Log() const {
  std::ifstream file(folder_ / "firnd.log");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

uint64_t TrialDaemon::ResidentBytes() const {
  std::ifstream file("/proc/" + std::to_string(pid_) + "/statm");
  uint64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace firn
