// The admin endpoint among clients that send nonsense, or nothing, or do not read.
#include "daemon/http/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <thread>
#include <vector>

#include "base/status.h"
#include "daemon/runtime/asio_executor.h"

namespace firn {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class HttpServerTest : public ::testing::Test {
 protected:
  HttpServerTest() {
    auto server = HttpServer::Start(&loop_, "127.0.0.1:0", [](const std::string& path) {
      return path == "/long" ? HttpAnswer{.body = std::string(8 << 20, 'x')} : HttpAnswer{.body = path + "\n"};
    });
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    thread_ = std::thread([this] { loop_.Run(); });
  }
  ~HttpServerTest() override {
    loop_.Stop();
    thread_.join();
    for (int fd : open_) ::close(fd);
  }

  int Connect() {
    int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    timeval patience{8, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(server_->port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    open_.push_back(fd);
    return fd;
  }
  static void Send(int fd, const std::string& bytes) {
    for (size_t sent = 0; sent < bytes.size();) {
      ssize_t more = ::send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (more <= 0) return;
      sent += static_cast<size_t>(more);
    }
  }
  // All until the server closes, which it does long before this gives up.
  static std::string ReadAll(int fd) {
    std::string out;
    char buffer[65536];
    ssize_t got;
    while ((got = ::recv(fd, buffer, sizeof(buffer), 0)) > 0) out.append(buffer, static_cast<size_t>(got));
    EXPECT_FALSE(got < 0 && errno == EAGAIN) << "the server did not close the connection";
    return out;
  }
  std::string Ask(const std::string& request) {
    int fd = Connect();
    Send(fd, request);
    return ReadAll(fd);
  }

  ControlLoop loop_;
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
  std::vector<int> open_;
};

constexpr char kGet[] = "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

TEST_F(HttpServerTest, WhatIsNoRequestIsAnsweredSo) {
  EXPECT_THAT(Ask(kGet), HasSubstr("\r\n\r\n/healthz\n"));
  EXPECT_THAT(Ask(std::string(kGet).replace(0, 3, "HEAD")), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Ask("GET /a?b=c HTTP/1.0\r\n\r\n"), HasSubstr("\r\n\r\n/a\n"));
  for (const char* bad :
       {"\x01\x02\x03\r\n\r\n", "GET /metrics\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET / HTTP/1.1\r\nno colon\r\n\r\n",
        "GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"}) {
    EXPECT_THAT(Ask(bad), StartsWith("HTTP/1.1 400")) << bad;
  }
  std::string filler(100'000, 'a');
  EXPECT_THAT(Ask("GET /" + filler + " HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(Ask("GET / HTTP/1.1\r\nX: " + filler + "\r\n\r\n"), StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(Ask("POST / HTTP/1.1\r\nContent-Length: 1000000000000\r\n\r\n" + filler), StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(Ask(kGet), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, RequestsFollowEachOtherOnAConnection) {
  int fd = Connect();
  Send(fd, std::string("GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n") + kGet);
  std::string all = ReadAll(fd);
  for (const char* body : {"/a\n", "/b\n", "/healthz\n"}) EXPECT_THAT(all, HasSubstr(body));
}

TEST_F(HttpServerTest, ARequestThatDoesNotComeToItsEndIsClosedSoon) { EXPECT_THAT(Ask("GET /met"), IsEmpty()); }

TEST_F(HttpServerTest, AProbeIsAnsweredHoweverManyOthersWait) {
  for (int i = 0; i < 200; ++i) Send(Connect(), "GET /met");
  EXPECT_THAT(Ask(kGet), StartsWith("HTTP/1.1 200"));
  for (int i = 0; i < 70; ++i) Send(Connect(), "GET /long HTTP/1.1\r\nHost: x\r\n\r\n");  // And never read.
  EXPECT_THAT(Ask(kGet), StartsWith("HTTP/1.1 200"));
}

}  // namespace
}  // namespace firn
