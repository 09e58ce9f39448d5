#include "tiers/warm/memory/memory_limits.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

#include "base/status.h"

namespace firn {
namespace {

std::optional<uint64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (!(file >> value)) return std::nullopt;  // "max", or no file.
  return value;
}

uint64_t MachineAvailable(const std::string& proc_root) {
  std::ifstream file(proc_root + "/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string name;
    uint64_t kib = 0;
    if (fields >> name >> kib && name == "MemAvailable:") return kib * 1024;
  }
  return std::numeric_limits<uint64_t>::max();
}

// This process's group in the unified hierarchy: the path after "0::".
std::string OwnGroup(const std::string& proc_root) {
  std::ifstream file(proc_root + "/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("0::", 0) == 0) return line.substr(3);
  }
  return "";
}

}  // namespace

uint64_t AvailableMemoryBytes(const std::string& proc_root, const std::string& cgroup_root) {
  uint64_t available = MachineAvailable(proc_root);
  std::string group = OwnGroup(proc_root);
  while (true) {
    auto limit = ReadNumber(cgroup_root + group + "/memory.max");
    auto current = ReadNumber(cgroup_root + group + "/memory.current");
    if (limit.has_value() && current.has_value()) {
      available = std::min(available, *limit > *current ? *limit - *current : 0);
    }
    size_t slash = group.rfind('/');
    if (slash == std::string::npos) return available;
    group.resize(slash);
  }
}

absl::Status CheckMemoryAvailable(uint64_t bytes, uint64_t available_bytes) {
  uint64_t usable = available_bytes > kMemoryReserveBytes ? available_bytes - kMemoryReserveBytes : 0;
  if (bytes <= usable) return absl::OkStatus();
  return ResourceExhausted("{} more bytes of memory asked for; {} are available, of which {} stay free", bytes,
                           available_bytes, kMemoryReserveBytes);
}

}  // namespace firn
