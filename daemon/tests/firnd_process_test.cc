// The program itself: what it refuses, what it answers while starting, how it stops, what Prometheus sees.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "daemon/daemon.h"
#include "daemon/tests/raw_client_test_util.h"
#include "daemon/tests/service_harness_test_util.h"
#include "firn/v1/kv.pb.h"
#include "tests/support/free_port.h"

namespace firn {
namespace {

using ::testing::HasSubstr;

// A daemon as a child process; its log goes to a file.
class Firnd {
 public:
  Firnd(const std::string& dir, std::vector<std::string> arguments, const std::string& notify_socket = "")
      : log_(dir + "/log") {
    arguments.insert(arguments.begin(), FIRND_PROGRAM);
    pid_ = ::fork();
    if (pid_ == 0) {
      int out = ::open(log_.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      ::dup2(out, 1);
      ::dup2(out, 2);
      if (!notify_socket.empty()) ::setenv("NOTIFY_SOCKET", notify_socket.c_str(), 1);
      std::vector<char*> argv;
      for (std::string& argument : arguments) argv.push_back(argument.data());
      argv.push_back(nullptr);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
  }
  ~Firnd() {
    if (pid_ > 0) {
      Signal(SIGKILL);
      Wait();
    }
  }
  void Signal(int signal) { ::kill(pid_, signal); }
  // The exit code; 128 + the signal that ended it; -1 when it still runs after 30 s.
  int Wait() {
    for (int i = 0; i < 6000; ++i) {
      int state = 0;
      if (::waitpid(pid_, &state, WNOHANG) == pid_) {
        pid_ = -1;
        return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return -1;
  }
  std::string Log() const {
    std::ifstream file(log_);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

 private:
  const std::string log_;
  pid_t pid_ = -1;
};

class FirndTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/firnd-test-XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    dir_ = path;
    port_ = FreePort();
    config_ = dir_ + "/firnd.toml";
    WriteConfig("");
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  void WriteConfig(const std::string& more) {
    std::ofstream(config_)
        << "state_dir = \"" << dir_ << "/state\"\nruntime_dir = \"" << dir_ << "/run\"\n"
        << "[admin]\nhttp = \"127.0.0.1:" << port_ << "\"\n"
        << "[[tier]]\nname = \"hot\"\nmedium = \"dram\"\ncapacity = \"32MiB\"\n"
        << "[[tier]]\nname = \"warm\"\nmedium = \"dram\"\ncapacity = \"16MiB\"\nprecision = \"int8\"\n"
        << "[[tier]]\nname = \"cold\"\nmedium = \"nvme\"\ncapacity = \"64MiB\"\nprecision = \"int4\"\n"
        << "path = \"" << dir_ << "/cold\"\n"
        << more;
  }

  // Answer of the admin endpoint, head and body; empty when nobody answers.
  std::string Http(const std::string& path) {
    int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port_);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    std::string out;
    if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
      std::string request = "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
      EXPECT_EQ(::write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
      char buffer[4096];
      for (ssize_t got; (got = ::read(fd, buffer, sizeof(buffer))) > 0;) out.append(buffer, static_cast<size_t>(got));
    }
    ::close(fd);
    return out;
  }
  bool WaitFor(const std::string& path, const std::string& text) {
    for (int i = 0; i < 4000; ++i) {
      if (Http(path).find(text) != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  std::string dir_, config_;
  uint16_t port_ = 0;
};

TEST_F(FirndTest, StartsServesAndStops) {
  Firnd firnd(dir_, {"--config", config_});
  ASSERT_TRUE(WaitFor("/readyz", "200 OK")) << firnd.Log();
  EXPECT_THAT(Http("/healthz"), HasSubstr("ok"));
  EXPECT_THAT(Http("/nothing"), HasSubstr("404"));
  struct stat facts;
  ASSERT_EQ(::stat((dir_ + "/run/firnd.sock").c_str(), &facts), 0);
  EXPECT_TRUE(S_ISSOCK(facts.st_mode));
  EXPECT_EQ(facts.st_mode & 0777, 0660u);
  RawClient client("unix:" + dir_ + "/run/firnd.sock");
  v1::CapabilitiesResponse capabilities;
  ASSERT_TRUE(client.Call("KvStore/Capabilities", v1::CapabilitiesRequest(), &capabilities).ok());
  EXPECT_EQ(capabilities.tiers(2).medium(), "nvme");
  EXPECT_TRUE(capabilities.tiers(2).persistent());
  // A session that its client keeps open does not hold up the end.
  auto session = client.Open("KvStore/Session");
  session->Write(std::string());
  std::string bytes;
  ASSERT_TRUE(session->Read(&bytes));
  auto before = std::chrono::steady_clock::now();
  firnd.Signal(SIGTERM);
  firnd.Signal(SIGTERM);  // A second one is harmless.
  EXPECT_EQ(firnd.Wait(), 0) << firnd.Log();
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(20));
  EXPECT_FALSE(session->Read(&bytes));
  EXPECT_EQ(session->Finish().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/run/firnd.sock"));
}

TEST_F(FirndTest, ASecondInstanceIsRefusedAndAStaleSocketReplaced) {
  auto first = std::make_unique<Firnd>(dir_, std::vector<std::string>{"--config", config_});
  ASSERT_TRUE(WaitFor("/readyz", "200 OK")) << first->Log();
  {
    std::filesystem::create_directory(dir_ + "/second");
    Firnd second(dir_ + "/second", {"--config", config_});
    EXPECT_EQ(second.Wait(), kExitCannotListen);
    EXPECT_THAT(second.Log(), HasSubstr("another firnd"));
  }
  EXPECT_THAT(Http("/readyz"), HasSubstr("200 OK"));
  first->Signal(SIGKILL);
  first->Wait();
  ASSERT_TRUE(std::filesystem::exists(dir_ + "/run/firnd.sock"));
  Firnd again(dir_, {"--config", config_});
  ASSERT_TRUE(WaitFor("/readyz", "200 OK")) << again.Log();
  again.Signal(SIGINT);
  EXPECT_EQ(again.Wait(), 0);
}

TEST_F(FirndTest, C60_every_series_is_there_from_the_start) {
  Firnd firnd(dir_, {"--config", config_});
  ASSERT_TRUE(WaitFor("/readyz", "200 OK")) << firnd.Log();
  std::string metrics = Http("/metrics");
  EXPECT_THAT(metrics, HasSubstr("text/plain; version=0.0.4"));
  for (const char* line :
       {"firn_ready 1\n", "firn_gets_total 0\n", "firn_puts_stored_total 0\n", "firn_pins 0\n", "firn_blocks 0\n",
        "firn_misses_total{reason=\"damaged\"} 0\n", "firn_tier_hits_total{tier=\"cold\"} 0\n",
        "firn_tier_commit_failures_total{tier=\"cold\"} 0\n", "firn_tier_blocks{tier=\"warm\",class=\"int8\"} 0\n",
        "firn_rpcs_total{method=\"Put\"} 0\n", "firn_rpc_failures_total{method=\"Verify\"} 0\n",
        "firn_stalled_streams_total 0\n", "firn_tier_healthy{tier=\"cold\"} 1\n",
        "firn_tier_capacity_bytes{tier=\"hot\"} 33554432\n", "# TYPE firn_gets_total counter\n",
        "# TYPE firn_blocks gauge\n"}) {
    EXPECT_THAT(metrics, HasSubstr(line));
  }
  EXPECT_THAT(metrics, HasSubstr("firn_config_info{sha256=\""));
  EXPECT_THAT(metrics, HasSubstr("tier=\"cold\",medium=\"nvme\",precision_k=\"int4\",precision_v=\"int4\",io=\""));
  // The series of a fresh start are those of later: nothing appears with traffic.
  RawClient client("unix:" + dir_ + "/run/firnd.sock");
  std::string response;
  (void)client.Call("KvStore/Exists", std::string(), &response);
  auto names = [](const std::string& text) {
    std::string out;
    std::istringstream lines(text.substr(text.find("\r\n\r\n") + 4));
    for (std::string line; std::getline(lines, line);) out += line.substr(0, line.rfind(' ')) + "\n";
    return out;
  };
  EXPECT_EQ(names(metrics), names(Http("/metrics")));
  EXPECT_THAT(Http("/metrics"), HasSubstr("firn_rpcs_total{method=\"Exists\"} 1\n"));
}

TEST_F(FirndTest, TheMetricsPortInUseIsAClearEnd) {
  int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port_);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(::listen(fd, 1), 0);
  Firnd firnd(dir_, {"--config", config_});
  EXPECT_EQ(firnd.Wait(), kExitCannotListen);
  EXPECT_THAT(firnd.Log(), HasSubstr("admin.http"));
  ::close(fd);
}

TEST_F(FirndTest, C62_check_config_gives_the_verdict_of_the_start) {
  {
    Firnd good(dir_, {"--config", config_, "--check-config"});
    EXPECT_EQ(good.Wait(), 0) << good.Log();
  }
  WriteConfig("[limits]\nkeyz = 3\n");
  for (const char* flag : {"--check-config", "--print-config"}) {
    Firnd bad(dir_, {"--config", config_, flag});
    EXPECT_EQ(bad.Wait(), kExitBadConfig);
    EXPECT_THAT(bad.Log(), HasSubstr("limits.keyz = 3"));
  }
  Firnd bad(dir_, {"--config", config_});
  EXPECT_EQ(bad.Wait(), kExitBadConfig);
}

// What was acknowledged as durable, and what a clean stop could still write, is there after a restart, in the class
// that it had.
TEST_F(FirndTest, BlocksSurviveARestart) {
  std::string address = "unix:" + dir_ + "/run/firnd.sock";
  v1::NamespaceFacts facts = FactsOf(4, 2, 64, 64, 64);
  std::string fingerprint;
  for (bool again : {false, true}) {
    Firnd firnd(dir_, {"--config", config_});
    ASSERT_TRUE(WaitFor("/readyz", "200 OK")) << firnd.Log();
    RawClient raw(address);
    ApiClient api(&raw, facts);
    if (!again) {
      fingerprint = api.fingerprint();
      for (uint64_t i = 0; i < 20; ++i) {
        v1::PutBlock block = api.Block("k" + std::to_string(i), 64);
        if (i % 2 == 0) block.set_ack(v1::ACK_LEVEL_DURABLE);
        v1::PutResponse put = api.Put(block, api.Payload(i, 64));
        ASSERT_EQ(put.outcome(), v1::PUT_OUTCOME_STORED) << put.status().message();
        EXPECT_EQ(put.durable_class().k() >= v1::PRECISION_CLASS_INT4, i % 2 == 0);
      }
    } else {
      EXPECT_EQ(api.fingerprint(), fingerprint);
      v1::ListNamespacesResponse list;
      ASSERT_TRUE(raw.Call("KvStore/ListNamespaces", v1::ListNamespacesRequest(), &list).ok());
      EXPECT_EQ(list.namespaces_size(), 1);
      for (uint64_t i = 0; i < 20; ++i) {
        ApiClient::Got got = api.Get("k" + std::to_string(i));
        ASSERT_TRUE(got.status.ok()) << i << ": " << got.status;
        EXPECT_EQ(got.found.served().k(), v1::PRECISION_CLASS_INT4);
        EXPECT_EQ(got.payload.size(), api.PayloadBytes(64));
      }
      EXPECT_EQ(api.Stats().tiers(2).hits(), 20u);
    }
    firnd.Signal(SIGTERM);
    ASSERT_EQ(firnd.Wait(), 0) << firnd.Log();
  }
}

// The endpoint answers before there is memory to serve from, and a stop does not wait for it.
TEST_F(FirndTest, C53_answers_while_starting_and_stops_at_once) {
  Firnd firnd(dir_, {"--config", config_});
  ASSERT_TRUE(WaitFor("/metrics", "firn_ready "));
  auto before = std::chrono::steady_clock::now();
  firnd.Signal(SIGTERM);
  EXPECT_EQ(firnd.Wait(), 0) << firnd.Log();
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(20));
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/state/firnd.lock"));
}

TEST_F(FirndTest, ReloadSaysWhatItTakesOver) {
  Firnd firnd(dir_, {"--config", config_});
  ASSERT_TRUE(WaitFor("/readyz", "200 OK")) << firnd.Log();
  WriteConfig("[log]\nlevel = \"debug\"\n[limits]\nkeys = 5\n");
  firnd.Signal(SIGHUP);
  for (int i = 0; i < 2000 && firnd.Log().find("reloaded") == std::string::npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_THAT(firnd.Log(), HasSubstr("reloaded"));
  EXPECT_THAT(firnd.Log(), HasSubstr("[limits] is read at start only"));
  firnd.Signal(SIGTERM);
  EXPECT_EQ(firnd.Wait(), 0);
}

TEST_F(FirndTest, TellsSystemdWhenItIsReadyAndWhenItStops) {
  std::string path = dir_ + "/notify";
  int fd = ::socket(AF_UNIX, SOCK_DGRAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path.c_str());
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  timeval patience{20, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  Firnd firnd(dir_, {"--config", config_}, path);
  std::string all;
  auto read_until = [&](const std::string& text) {
    char buffer[1024];
    for (ssize_t got; all.find(text) == std::string::npos && (got = ::recv(fd, buffer, sizeof(buffer), 0)) > 0;) {
      all.append(buffer, static_cast<size_t>(got)).append("\n");
    }
    return all.find(text) != std::string::npos;
  };
  EXPECT_TRUE(read_until("READY=1")) << all;
  EXPECT_THAT(all, HasSubstr("EXTEND_TIMEOUT_USEC="));
  firnd.Signal(SIGTERM);
  EXPECT_TRUE(read_until("STOPPING=1")) << all;
  EXPECT_EQ(firnd.Wait(), 0);
  ::close(fd);
}

}  // namespace
}  // namespace firn
