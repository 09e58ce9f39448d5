#include "daemon/runtime/process_limits.h"

#include <sys/resource.h>

#include <algorithm>
#include <csignal>

namespace firn {
namespace {
constexpr rlim_t kDescriptorsMax = 1 << 20;
}  // namespace

void PrepareProcess() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  rlim_t wanted = std::min(limit.rlim_max, kDescriptorsMax);
  if (wanted <= limit.rlim_cur) return;
  limit.rlim_cur = wanted;
  ::setrlimit(RLIMIT_NOFILE, &limit);  // What it does not give, limits.connections takes into account.
}

uint64_t DescriptorsMax() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? std::min(limit.rlim_cur, kDescriptorsMax) : 1024;
}

}  // namespace firn
