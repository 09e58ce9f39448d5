// Connections: how many there may be, and what outlives a listener.
#include <fcntl.h>
#include <grpc/grpc.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "daemon/tests/service_harness_test_util.h"

namespace firn {
namespace {

void ConnectWith(int fd, const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path.c_str());
  EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0) << std::strerror(errno);
}

int ConnectTo(const std::string& path) {
  int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ConnectWith(fd, path);
  return fd;
}

// The last grpc_shutdown of a process may take 10 s, which a stop does not have.
TEST(ServiceConnections, GrpcStaysUpWhenTheLastListenerHasGone) {
  { ServiceHarness harness; }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_NE(grpc_is_initialized(), 0);
}

bool Answers(const std::string& address) {
  RawClient client(address);
  v1::CapabilitiesResponse response;
  return client.Call("KvStore/Capabilities", v1::CapabilitiesRequest(), &response, 2000).ok();
}

TEST(ServiceConnections, OverTheLimitTheyAreClosedAndPlacesComeFree) {
  HarnessOptions options;
  options.limits.connections_max = 5;
  ServiceHarness harness(options);
  ConnectionTable& table = harness.core->connections();
  std::vector<int> held;
  for (int i = 0; i < 5; ++i) held.push_back(ConnectTo(harness.dir + "/firnd.sock"));
  ASSERT_TRUE(Eventually([&] { return table.Count() == 5; }));
  int refused = ConnectTo(harness.dir + "/firnd.sock");
  char byte = 0;
  EXPECT_EQ(::recv(refused, &byte, 1, 0), 0);  // Closed by the daemon.
  ::close(refused);
  EXPECT_EQ(table.refused.load(), 1u);
  EXPECT_FALSE(Answers(harness.address()));
  for (int fd : held) ::close(fd);
  EXPECT_TRUE(Eventually([&] { return Answers(harness.address()); }));
  EXPECT_TRUE(Eventually([&] { return table.Count() == 0; }));
}

TEST(ServiceConnections, AProcessThatRanOutOfDescriptorsAcceptsAgain) {
  ServiceHarness harness;
  std::vector<int> held;
  // All numbers below the limit but a few.
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  int free = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::close(free);
  for (int i = 0; i < 20; ++i) held.push_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  rlimit tight{static_cast<rlim_t>(held.back() + 1), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
  ASSERT_LT(::open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
  for (int fd : held) ConnectWith(fd, harness.dir + "/firnd.sock");
  EXPECT_TRUE(Eventually([&] { return harness.core->connections().accept_failures.load() > 2; }));
  for (int fd : held) ::close(fd);
  EXPECT_TRUE(Eventually([&] { return Answers(harness.address()); }));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(ServiceConnections, TcpListenersServeEveryAddressOfTheirName) {
  ServiceHarness harness;
  for (const char* address : {"localhost:0", "127.0.0.1:0"}) {
    ListenerSettings settings;
    settings.tcp = address;
    auto listener = GrpcListener::Start(harness.core.get(), settings, 1);
    ASSERT_TRUE(listener.ok()) << listener.status();
    // By number: what resolves names in the client keeps some bytes for good.
    EXPECT_TRUE(Answers("127.0.0.1" + (*listener)->address().substr((*listener)->address().rfind(':'))));
    // Nobody else may have the address, and it is free again afterwards.
    settings.tcp = (*listener)->address();
    EXPECT_FALSE(GrpcListener::Start(harness.core.get(), settings, 1).ok());
    (*listener)->Shutdown(0);
    EXPECT_TRUE(GrpcListener::Start(harness.core.get(), settings, 1).ok());
  }
}

TEST(ServiceConnections, TheSocketFileHasItsModeAndGoesWithTheListener) {
  ServiceHarness harness;
  ListenerSettings settings;
  settings.uds = harness.dir + "/other.sock";
  settings.mode = 0600;
  auto listener = GrpcListener::Start(harness.core.get(), settings, 1);
  ASSERT_TRUE(listener.ok()) << listener.status();
  struct stat facts {};
  ASSERT_EQ(::stat(settings.uds.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
  EXPECT_TRUE(Answers((*listener)->address()));
  listener->reset();
  EXPECT_NE(::stat(settings.uds.c_str(), &facts), 0);
  settings.group = "no such group";
  EXPECT_FALSE(GrpcListener::Start(harness.core.get(), settings, 1).ok());
  EXPECT_NE(::stat(settings.uds.c_str(), &facts), 0);
}

}  // namespace
}  // namespace firn
