// The program and its configuration file: what --check-config says, a start does, and no file makes it crash.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/support/daemon_process.h"
#include "tests/support/run_command.h"

namespace firn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kExitBadConfig = 78;

Ended RunFirnd(const std::string& arguments) {
  return RunCommand("timeout 20 " FIRND_PROGRAM " " + arguments + " 2>&1");
}

class FirndConfigTest : public testing::Test {
 protected:
  FirndConfigTest() {
    char folder[] = "/tmp/firn-config-XXXXXX";
    folder_ = mkdtemp(folder);
  }
  ~FirndConfigTest() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  // A start and --check-config must say the same and end the same.
  Ended RunBoth(const std::string& toml) {
    std::ofstream(Path("c.toml")) << "state_dir = \"" << Path("state") << "\"\nruntime_dir = \"" << Path("run")
                                  << "\"\n"
                                  << toml;
    Ended checked = RunFirnd("--check-config --config " + Path("c.toml"));
    Ended started = RunFirnd("--config " + Path("c.toml"));
    EXPECT_EQ(started.code, checked.code) << toml << started.text;
    EXPECT_EQ(started.text, checked.text) << toml;
    return checked;
  }
  std::string folder_;
};

TEST_F(FirndConfigTest, WhatIsNoRegularFileIsRefused) {
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  for (const std::string& path : {folder_, Path("fifo"), std::string("/dev/zero")}) {
    Ended ended = RunFirnd("--config " + path);
    EXPECT_EQ(ended.code, kExitBadConfig) << ended.text;
    EXPECT_THAT(ended.text, AllOf(HasSubstr(path), HasSubstr("a regular file of at most")));
  }
  for (const std::string& path : {folder_, Path("fifo"), std::string("/dev/zero")}) {
    Ended ended = RunBoth("[[listener]]\ntcp = \"127.0.0.1:0\"\ncertificate = \"" + path + "\"\nprivate_key = \"" +
                          path + "\"\nclient_ca = \"" + path + "\"\n");
    EXPECT_EQ(ended.code, kExitBadConfig) << ended.text;
    EXPECT_THAT(ended.text, AllOf(HasSubstr("listener[0].certificate"), HasSubstr("listener[0].private_key"),
                                  HasSubstr("listener[0].client_ca")));
  }
}

TEST_F(FirndConfigTest, C62_everything_a_start_would_refuse_is_said_at_once) {
  std::ofstream(Path("file")) << "precious";
  Ended ended =
      RunBoth("threads = 0\n[[tier]]\nname = \"hot\"\nmedium = \"cxl\"\ncapacity = \"8MiB\"\npath = \"" + Path("file") +
              "\"\n[[tier]]\nname = \"hot\"\nmedium = \"nvme\"\ncapacity = \"64MiB\"\npath = \"" + Path("file") +
              "/cold\"\n[[listener]]\nuds = \"" + folder_ + "\"\n");
  EXPECT_EQ(ended.code, kExitBadConfig);
  for (const char* part :
       {"threads = 0", "tier[0].path", "tier[1].name = \"hot\"", "tier[1].path", "listener[0].uds"}) {
    EXPECT_THAT(ended.text, HasSubstr(part));
  }
  std::ifstream file(Path("file"));
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "precious");
  EXPECT_FALSE(std::filesystem::exists(Path("state"))) << "a refused start makes nothing";
}

TEST_F(FirndConfigTest, ADirectoryOfATierHasOneUser) {
  DaemonProcess daemon;
  ASSERT_TRUE(daemon.Start().ok()) << daemon.Log();
  std::ofstream(Path("c.toml")) << "state_dir = \"" << Path("state") << "\"\nruntime_dir = \"" << Path("run")
                                << "\"\n[admin]\nhttp = \"off\"\n[[tier]]\nname = \"h\"\nmedium = \"dram\"\n"
                                << "capacity = \"8MiB\"\n[[tier]]\nname = \"c\"\nmedium = \"nvme\"\n"
                                << "capacity = \"64MiB\"\npath = " << daemon.cold_path() << "\n";
  Ended ended = RunFirnd("--config " + Path("c.toml"));
  EXPECT_EQ(ended.code, 73) << ended.text;
  EXPECT_THAT(ended.text, HasSubstr("another instance uses " + daemon.cold_path().string()));
  EXPECT_EQ(daemon.Terminate(), 0);
}

TEST_F(FirndConfigTest, AReloadOfSomethingElseIsAnErrorInTheLog) {
  DaemonProcess daemon;
  ASSERT_TRUE(daemon.Start().ok()) << daemon.Log();
  std::filesystem::path config;
  for (const auto& entry : std::filesystem::directory_iterator(daemon.folder())) {
    if (entry.path().extension() == ".toml") config = entry.path();
  }
  ASSERT_FALSE(config.empty());
  std::filesystem::remove(config);
  std::filesystem::create_directory(config);
  ASSERT_EQ(kill(daemon.pid(), SIGHUP), 0);
  for (int i = 0; i < 1000 && daemon.Log().find("was not reloaded") == std::string::npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_THAT(daemon.Log(), AllOf(HasSubstr("the configuration was not reloaded"), HasSubstr("is a directory")));
  EXPECT_EQ(daemon.Terminate(), 0);
}

}  // namespace
}  // namespace firn
