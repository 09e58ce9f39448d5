#include "tests/support/observe.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "base/check.h"

namespace firn {
namespace {

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

}  // namespace

uint64_t OpenDescriptors(pid_t pid, const std::filesystem::path& except) {
  uint64_t count = 0;
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd", error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    std::error_code closed;
    std::string place = std::filesystem::read_symlink(entry->path(), closed).string();
    if (except.empty() || !place.starts_with(except.string())) ++count;
  }
  return count;
}

uint64_t DiskBytes(const std::filesystem::path& folder) {
  uint64_t bytes = 0;
  struct stat facts {};
  if (::lstat(folder.c_str(), &facts) == 0) bytes += static_cast<uint64_t>(facts.st_blocks) * 512;
  std::error_code error;
  for (auto entry = std::filesystem::recursive_directory_iterator(folder, error);
       !error && entry != std::filesystem::recursive_directory_iterator(); entry.increment(error)) {
    if (::lstat(entry->path().c_str(), &facts) == 0) bytes += static_cast<uint64_t>(facts.st_blocks) * 512;
  }
  return bytes;
}

bool Eventually(const std::function<bool()>& holds, int64_t limit_ms) {
  auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

std::string HttpGet(uint16_t port, const std::string& path) {
  int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  FIRN_CHECK(fd >= 0);
  sockaddr_in address = Loopback(port);
  std::string answer;
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
    std::string request = "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    ssize_t sent = ::send(fd, request.data(), request.size(), MSG_NOSIGNAL);
    char buffer[4096];
    for (ssize_t got; sent > 0 && (got = ::read(fd, buffer, sizeof(buffer))) > 0;) {
      answer.append(buffer, static_cast<size_t>(got));
    }
  }
  ::close(fd);
  size_t body = answer.find("\r\n\r\n");
  return body == std::string::npos ? "" : answer.substr(body + 4);
}

double MetricValue(const std::string& metrics, const std::string& series) {
  std::string line = "\n" + series + " ";
  size_t at = ("\n" + metrics).find(line);
  return at == std::string::npos ? NAN : std::strtod(metrics.c_str() + at + line.size() - 1, nullptr);
}

}  // namespace firn
