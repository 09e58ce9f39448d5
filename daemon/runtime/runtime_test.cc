// One daemon a directory and a socket; what is not ours is left alone.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "base/status.h"
#include "daemon/runtime/asio_executor.h"
#include "daemon/runtime/instance_lock.h"
#include "daemon/runtime/process_limits.h"

namespace firn {
namespace {

using ::testing::HasSubstr;

class RuntimeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/firn-runtime-XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    dir_ = path;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  int Bind(const std::string& path, bool listening) {
    int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path.c_str());
    EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_TRUE(!listening || ::listen(fd, 1) == 0);
    return fd;
  }

  std::string dir_;
};

TEST_F(RuntimeTest, TheSecondHolderIsRefusedAndToldWho) {
  auto first = InstanceLock::Acquire(dir_ + "/made/lock");
  ASSERT_TRUE(first.ok()) << first.status();
  auto second = InstanceLock::Acquire(dir_ + "/made/lock");
  ASSERT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(second.status()), HasSubstr(std::to_string(::getpid())));
  first->reset();
  EXPECT_TRUE(InstanceLock::Acquire(dir_ + "/made/lock").ok());
}

TEST_F(RuntimeTest, ALockEndsWithItsProcess) {
  std::string path = dir_ + "/lock";
  pid_t child = ::fork();
  if (child == 0) {
    auto lock = InstanceLock::Acquire(path);
    ::_exit(lock.ok() ? 0 : 1);  // Without the destructor: as after kill -9.
  }
  int state = 0;
  ::waitpid(child, &state, 0);
  ASSERT_EQ(state, 0);
  ASSERT_TRUE(std::filesystem::exists(path));
  EXPECT_TRUE(InstanceLock::Acquire(path).ok());
}

TEST_F(RuntimeTest, StaleSocketsAreReplacedAndLiveOnesAreNot) {
  std::string path = dir_ + "/s";
  ::close(Bind(path, true));
  EXPECT_TRUE(PrepareSocketPath(path).ok());
  EXPECT_FALSE(std::filesystem::exists(path));

  int live = Bind(path, true);
  absl::Status status = PrepareSocketPath(path);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr(path));
  EXPECT_TRUE(std::filesystem::exists(path));
  ::close(live);
}

TEST_F(RuntimeTest, AFileThatIsNoSocketIsLeftAlone) {
  std::string path = dir_ + "/precious";
  std::ofstream(path) << "data";
  EXPECT_EQ(PrepareSocketPath(path).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::filesystem::file_size(path), 4u);
  EXPECT_EQ(PrepareSocketPath("/" + std::string(120, 'x')).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RuntimeTest, AccessOfTheSocketFile) {
  std::string path = dir_ + "/s";
  int fd = Bind(path, false);
  ASSERT_TRUE(SetSocketAccess(path, 0620, "").ok());
  struct stat facts;
  ASSERT_EQ(::stat(path.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0620u);
  EXPECT_EQ(SetSocketAccess(path, 0620, "no-such-group").code(), absl::StatusCode::kNotFound);
  ::close(fd);
}

TEST(AsioExecutor, RunsEverythingPostedBeforeItEnds) {
  std::atomic<int> ran{0};
  {
    AsioExecutor executor(2);
    for (int i = 0; i < 1000; ++i) {
      executor.Post([&ran, &executor, i] {
        ++ran;
        if (i % 10 == 0) executor.Post([&ran] { ++ran; });
      });
    }
  }
  EXPECT_EQ(ran, 1100);
}

TEST(AsioExecutor, DrainWaitsForWhatIsStillRunning) {
  AsioExecutor executor(3);
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> ended{0};
    for (int i = 0; i < 5; ++i) {
      executor.Post([&ended, i] {
        std::this_thread::sleep_for(std::chrono::milliseconds(i));
        ++ended;
      });
    }
    executor.Drain();
    EXPECT_EQ(ended, 5);
  }
}

TEST(ControlLoop, TimersAndSignalsComeAgain) {
  ControlLoop loop;
  int ticks = 0, signals = 0;
  loop.OnSignals({SIGUSR1}, [&](int) {
    if (++signals == 2) loop.Stop();
  });
  loop.Every(1, [&] {
    if (++ticks % 3 == 0 && ticks <= 6) ::raise(SIGUSR1);
  });
  loop.Run();
  EXPECT_EQ(signals, 2);
  EXPECT_GE(ticks, 6);
}

// A write over RLIMIT_FSIZE is an error of the write, and the descriptors that the system allows are used.
TEST_F(RuntimeTest, AProcessIsPreparedForItsLimits) {
  pid_t child = ::fork();
  if (child == 0) {
    rlimit descriptors{};
    ::getrlimit(RLIMIT_NOFILE, &descriptors);
    rlim_t hard = descriptors.rlim_max;
    descriptors.rlim_cur = 100;
    ::setrlimit(RLIMIT_NOFILE, &descriptors);
    PrepareProcess();
    if (DescriptorsMax() != std::min<uint64_t>(hard, 1 << 20)) ::_exit(1);
    rlimit bytes{10, 10};
    ::setrlimit(RLIMIT_FSIZE, &bytes);
    int fd = ::open((dir_ + "/file").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (::pwrite(fd, "x", 1, 100) != -1 || errno != EFBIG) ::_exit(2);
    ::_exit(0);
  }
  int state = 0;
  ASSERT_EQ(::waitpid(child, &state, 0), child);
  EXPECT_EQ(state, 0);
}

}  // namespace
}  // namespace firn
