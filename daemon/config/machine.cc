#include "daemon/config/machine.h"

#include <dirent.h>
#include <fmt/format.h>
#include <grp.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/read_file.h"
#include "base/status.h"
#include "daemon/config/check/address.h"
#include "daemon/config/config.h"
#include "tiers/cxl/mapped_region.h"

namespace firn {
namespace {

uint64_t RamBytes() {
  uint64_t bytes = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream file(path);
    uint64_t limit = 0;
    if (file >> limit && limit > 0) bytes = std::min(bytes, limit);  // "max" does not parse: no limit.
  }
  return bytes;
}

std::vector<int> NumaNodes() {
  std::vector<int> nodes;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/devices/system/node", error)) {
    int node = 0, end = 0;
    std::string name = entry.path().filename();
    if (std::sscanf(name.c_str(), "node%d%n", &node, &end) == 1 && end == static_cast<int>(name.size())) {
      nodes.push_back(node);
    }
  }
  if (nodes.empty()) nodes.push_back(0);
  std::sort(nodes.begin(), nodes.end());
  return nodes;
}

// What the file at `path`, or everything below it, takes.
uint64_t BytesAt(const std::string& path) {
  uint64_t bytes = 0;
  struct stat itself;
  if (::stat(path.c_str(), &itself) == 0 && S_ISREG(itself.st_mode)) {
    return static_cast<uint64_t>(itself.st_blocks) * 512;
  }
  std::error_code error;
  std::filesystem::recursive_directory_iterator it(path, std::filesystem::directory_options::skip_permission_denied,
                                                   error);
  for (; !error && it != std::filesystem::recursive_directory_iterator(); it.increment(error)) {
    struct stat facts;
    if (::lstat(it->path().c_str(), &facts) == 0) bytes += static_cast<uint64_t>(facts.st_blocks) * 512;
  }
  return bytes;
}

absl::StatusOr<DiskFacts> DiskOf(const std::string& path) {
  std::filesystem::path existing(path);
  struct stat here, root;
  while (::stat(existing.c_str(), &here) != 0) {
    if (errno != ENOENT || !existing.has_parent_path() || existing == existing.parent_path()) {
      return ErrnoStatus(errno, fmt::format("stat {}", existing.string()));
    }
    existing = existing.parent_path();
  }
  struct statvfs space;
  if (::statvfs(existing.c_str(), &space) != 0) return ErrnoStatus(errno, fmt::format("statvfs {}", existing.string()));
  DiskFacts facts;
  facts.total_bytes = uint64_t{space.f_blocks} * space.f_frsize;
  facts.available_bytes = uint64_t{space.f_bavail} * space.f_frsize;
  facts.used_here_bytes = BytesAt(path);
  std::error_code error;
  std::filesystem::directory_iterator log(path + "/log", error);
  facts.holds_data = !error && log != std::filesystem::directory_iterator();
  facts.is_root_disk = ::stat("/", &root) == 0 && root.st_dev == here.st_dev;
  return facts;
}

}  // namespace

namespace {

absl::Status GpuHere(uint32_t device, bool is_cpu) {
  std::string program = GpuProgram();
  if (::access(program.c_str(), X_OK) != 0) return ErrnoStatus(errno, "run " + program);
  if (is_cpu) return absl::OkStatus();
  // Which GPUs there are is the child's to find out: containers number them anew.
  if (::access("/dev/nvidiactl", F_OK) != 0) {
    return ErrnoStatus(errno, fmt::format("no driver for GPU {}: /dev/nvidiactl", device));
  }
  return absl::OkStatus();
}

}  // namespace

std::string GpuProgram() {
  if (const char* program = std::getenv("FIRN_GPU_PROGRAM")) return program;
  std::error_code error;
  std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "/usr/bin/firnd-gpu" : (self.parent_path() / "firnd-gpu").string();
}

Machine ThisMachine() {
  Machine machine;
  machine.ram_bytes = RamBytes();
  machine.numa_nodes = NumaNodes();
  machine.disk = DiskOf;
  machine.group_exists = [](const std::string& group) { return getgrnam(group.c_str()) != nullptr; };
  machine.place = InspectPlace;
  machine.cxl_place = [](const std::string& path, uint64_t bytes) {
    return IsDevicePath(path) ? CheckDaxRegion(path, bytes) : CheckFileRegion(path);
  };
  machine.gpu = GpuHere;
  machine.can_listen_on = CanListenOn;
  machine.read_file = [](const std::string& path) { return ReadSmallFile(path, kPemBytesMax); };
  return machine;
}

}  // namespace firn
