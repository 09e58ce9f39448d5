// What the tiers and listeners must agree on among themselves, and with the machine.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/units.h"
#include "daemon/config/address.h"
#include "daemon/config/machine.h"

namespace firn {
namespace {

class Checker {
 public:
  Checker(const Config& config, const Machine& machine) : config_(config), machine_(machine) {}

  ConfigVerdict Run() {
    CheckChain();
    CheckMemory();
    for (size_t i = 0; i < config_.tiers.size(); ++i) CheckTierPlace(i);
    CheckListeners();
    CheckAdminHttp();
    return std::move(verdict_);
  }

 private:
  void Error(std::string text) { verdict_.errors.push_back(std::move(text)); }
  void Warn(std::string text) { verdict_.warnings.push_back(std::move(text)); }

  void CheckChain() {
    const auto& tiers = config_.tiers;
    if (tiers.empty() || tiers.size() > 8) Error(fmt::format("tier: {} tiers; allowed: 1 to 8", tiers.size()));
    std::set<std::string> names, paths;
    for (size_t i = 0; i < tiers.size(); ++i) {
      const TierSettings& tier = tiers[i];
      if (!names.insert(tier.name).second) {
        Error(fmt::format("tier[{}].name = \"{}\": another tier has this name", i, tier.name));
      }
      if (!tier.path.empty() && !paths.insert(tier.path).second) {
        Error(fmt::format("tier[{}].path = \"{}\": another tier has this path", i, tier.path));
      }
      if (i > 0 && !tiers[i - 1].precision.AtLeast(tier.precision)) {
        Error(fmt::format("tier[{}].precision = {}: finer than the hotter tier \"{}\", {}; allowed: at most that", i,
                          PrintPrecision(tier.precision, tier.use_fp8), tiers[i - 1].name,
                          PrintPrecision(tiers[i - 1].precision, tiers[i - 1].use_fp8)));
      }
      if (i > 0 && tier.medium == Medium::kDram && tiers[i - 1].medium == Medium::kNvme) {
        Error(fmt::format("tier[{}].medium = \"dram\": colder than \"{}\" on nvme; the chain goes hot to cold", i,
                          tiers[i - 1].name));
      }
    }
    if (!tiers.empty() && tiers[0].medium == Medium::kNvme) {
      Error("tier[0].medium = \"nvme\": the hottest tier must be memory; allowed: \"dram\", \"cxl\"");
    }
  }

  void CheckMemory() {
    uint64_t total = 0;
    for (size_t i = 0; i < config_.tiers.size(); ++i) {
      const TierSettings& tier = config_.tiers[i];
      bool in_ram = tier.medium == Medium::kDram || (tier.medium == Medium::kCxl && tier.numa_node.has_value());
      if (!in_ram) continue;
      total += tier.capacity_bytes;
      if (total > machine_.ram_bytes) {
        Error(
            fmt::format("tier[{}].capacity = \"{}\": with the tiers before it {}, more than this machine's memory; "
                        "allowed: {} in all",
                        i, FormatBytes(tier.capacity_bytes), FormatBytes(total), FormatBytes(machine_.ram_bytes)));
        return;
      }
    }
    uint64_t with_transport = total + config_.limits.transport_budget_bytes + 256 * kMiB;
    if (with_transport > machine_.ram_bytes) {
      Warn(fmt::format("tiers, transport budget and the daemon itself may take {} of {} of memory",
                       FormatBytes(with_transport), FormatBytes(machine_.ram_bytes)));
    }
  }

  void CheckTierPlace(size_t i) {
    const TierSettings& tier = config_.tiers[i];
    const auto& nodes = machine_.numa_nodes;
    if (tier.numa_node.has_value() && std::find(nodes.begin(), nodes.end(), *tier.numa_node) == nodes.end()) {
      Error(fmt::format("tier[{}].numa_node = {}: no such node; allowed: {}", i, *tier.numa_node,
                        fmt::join(nodes, ", ")));
    }
    if (tier.path.empty() || IsDevicePath(tier.path)) return;
    auto disk = machine_.disk(tier.path);
    if (!disk.ok()) {
      Error(fmt::format("tier[{}].path = \"{}\": {}", i, tier.path, std::string(disk.status().message())));
      return;
    }
    // A full root disk takes the whole machine down, so a tenth of it stays free.
    uint64_t reserve = disk->is_root_disk ? disk->total_bytes / 10 : 0;
    uint64_t room = disk->available_bytes + disk->used_here_bytes;
    room = room > reserve ? room - reserve : 0;
    if (tier.capacity_bytes > room) {
      Error(fmt::format("tier[{}].capacity = \"{}\": more than {} has room for{}; allowed: {}", i,
                        FormatBytes(tier.capacity_bytes), tier.path,
                        disk->is_root_disk ? ", a tenth of the root disk kept free" : "", FormatBytes(room)));
    } else if (disk->is_root_disk) {
      Warn(fmt::format("tier[{}].path = \"{}\" is on the root disk; give it a disk of its own", i, tier.path));
    }
  }

  void CheckListeners() {
    const auto& listeners = config_.listeners;
    if (listeners.empty() || listeners.size() > 64) {
      Error(fmt::format("listener: {} listeners; allowed: 1 to 64", listeners.size()));
    }
    std::set<std::string> addresses;
    for (size_t i = 0; i < listeners.size(); ++i) {
      const ListenerSettings& listener = listeners[i];
      if (!addresses.insert(listener.Address()).second) {
        Error(fmt::format("listener[{}] = \"{}\": another listener has this address", i, listener.Address()));
      }
      if (!listener.group.empty() && !machine_.group_exists(listener.group)) {
        Error(fmt::format("listener[{}].group = \"{}\": no such group on this machine", i, listener.group));
      }
      if (listener.uds.size() > 107) {
        Error(fmt::format("listener[{}].uds = \"{}\": has {} bytes; allowed: at most 107", i, listener.uds,
                          listener.uds.size()));
      }
      if (listener.tcp.empty()) continue;
      auto address = SplitAddress(listener.tcp);
      if (!address.has_value()) {
        Error(fmt::format("listener[{}].tcp = \"{}\": allowed: \"host:port\", port 0 to 65535", i, listener.tcp));
      } else if (!IsLoopback(address->host) && listener.certificate.empty()) {
        Error(
            fmt::format("listener[{}].tcp = \"{}\": an address that is not loopback needs mutual TLS: certificate, "
                        "private_key and client_ca; allowed without: 127.0.0.0/8, [::1], localhost",
                        i, listener.tcp));
      }
    }
  }

  void CheckAdminHttp() {
    if (config_.admin_http == "off") return;
    auto address = SplitAddress(config_.admin_http);
    if (!address.has_value()) {
      Error(fmt::format("admin.http = \"{}\": allowed: \"host:port\" or \"off\"", config_.admin_http));
    } else if (!IsLoopback(address->host) && !config_.admin_http_expose) {
      Error(
          fmt::format("admin.http = \"{}\": not loopback, and it has no authentication; allowed: loopback, or any "
                      "address with admin.expose = true",
                      config_.admin_http));
    }
  }

  const Config& config_;
  const Machine& machine_;
  ConfigVerdict verdict_;
};

}  // namespace

bool IsDevicePath(std::string_view path) { return path.starts_with("/dev/") && !path.starts_with("/dev/shm/"); }

ConfigVerdict CheckConfig(const Config& config, const Machine& machine) { return Checker(config, machine).Run(); }

}  // namespace firn
