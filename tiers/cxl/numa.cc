#include "tiers/cxl/numa.h"

#include <fmt/ranges.h>
#include <numa.h>
#include <numaif.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/status.h"

namespace firn {

absl::StatusOr<std::vector<int>> MemoryNodes() {
  if (numa_available() < 0)
    return Unavailable("this machine offers no NUMA calls (get_mempolicy is refused or missing)");
  std::vector<int> nodes;
  for (int node = 0; node <= numa_max_node(); ++node) {
    if (numa_bitmask_isbitset(numa_all_nodes_ptr, static_cast<unsigned>(node)) && numa_node_size64(node, nullptr) > 0) {
      nodes.push_back(node);
    }
  }
  return nodes;
}

absl::Status CheckMemoryNode(int node) {
  FIRN_ASSIGN_OR_RETURN(std::vector<int> nodes, MemoryNodes());
  if (std::find(nodes.begin(), nodes.end(), node) != nodes.end()) return absl::OkStatus();
  return NotFound("NUMA node {} has no memory here; nodes with memory: {}", node, fmt::join(nodes, ", "));
}

absl::Status BindToNode(void* address, uint64_t bytes, int node) {
  FIRN_RETURN_IF_ERROR(CheckMemoryNode(node));
  bitmask* mask = numa_allocate_nodemask();
  numa_bitmask_setbit(mask, static_cast<unsigned>(node));
  long result = mbind(address, bytes, MPOL_BIND, mask->maskp, mask->size + 1, MPOL_MF_STRICT);
  int error = errno;
  numa_bitmask_free(mask);
  if (result == 0) return absl::OkStatus();
  return ErrnoStatus(error, fmt::format("bind {} bytes to NUMA node {}", bytes, node));
}

absl::Status VerifyOnNode(const void* address, uint64_t bytes, int node, uint64_t stride_bytes) {
  if (bytes == 0) return absl::OkStatus();
  std::vector<void*> pages;
  auto* base = static_cast<uint8_t*>(const_cast<void*>(address));
  for (uint64_t at = 0; at < bytes; at += stride_bytes) pages.push_back(base + at);
  auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  pages.push_back(base + (bytes - 1) / page_bytes * page_bytes);
  std::vector<int> where(pages.size(), -1);
  if (move_pages(0, pages.size(), pages.data(), nullptr, where.data(), 0) != 0) {
    return ErrnoStatus(errno, fmt::format("ask on which NUMA node {} pages lie", pages.size()));
  }
  for (size_t i = 0; i < where.size(); ++i) {
    if (where[i] == node) continue;
    uint64_t offset = static_cast<uint64_t>(static_cast<uint8_t*>(pages[i]) - base);
    if (where[i] < 0) return ErrnoStatus(-where[i], fmt::format("ask on which NUMA node byte {} lies", offset));
    return FailedPrecondition("byte {} lies on NUMA node {}, not on node {}", offset, where[i], node);
  }
  return absl::OkStatus();
}

}  // namespace firn
