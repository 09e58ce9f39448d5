#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "daemon/config/config.h"

namespace firn {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// systemd gives several directories joined by ':'; the first is ours.
std::string FirstOf(const std::string& list) { return list.substr(0, list.find(':')); }

TierSettings DefaultTier(const char* name, Medium medium, uint64_t capacity, PrecisionClass precision,
                         PrecisionClass least) {
  TierSettings tier;
  tier.name = name;
  tier.medium = medium;
  tier.capacity_bytes = capacity;
  tier.precision = {precision, precision};
  tier.least = {least, least};
  return tier;
}

}  // namespace

std::string_view MediumName(Medium medium) {
  switch (medium) {
    case Medium::kDram:
      return "dram";
    case Medium::kCxl:
      return "cxl";
    case Medium::kNvme:
      return "nvme";
    case Medium::kGpu:
      return "gpu";
  }
  return "unknown";
}

std::string MediumOf(const TierSettings& tier) {
  std::string name(MediumName(tier.medium));
  return tier.medium == Medium::kGpu ? name + ":" + std::to_string(tier.gpu_device) : name;
}

bool IsDevicePath(std::string_view path) { return path.starts_with("/dev/") && !path.starts_with("/dev/shm/"); }

ConfigPlaces DefaultPlaces() {
  ConfigPlaces places;
  bool root = geteuid() == 0;
  places.state_dir = FirstOf(Environment("STATE_DIRECTORY"));
  if (places.state_dir.empty()) {
    std::string home = Environment("XDG_STATE_HOME");
    if (home.empty() && !Environment("HOME").empty()) home = Environment("HOME") + "/.local/state";
    places.state_dir = root || home.empty() ? "/var/lib/firnkv" : home + "/firnkv";
  }
  places.runtime_dir = FirstOf(Environment("RUNTIME_DIRECTORY"));
  if (places.runtime_dir.empty()) {
    std::string home = Environment("XDG_RUNTIME_DIR");
    places.runtime_dir = root || home.empty() ? "/run/firnkv" : home + "/firnkv";
  }
  return places;
}

uint32_t ThreadsInForce(const Config& config) {
  return config.threads != 0 ? config.threads : std::max(2u, std::thread::hardware_concurrency());
}

Config DefaultConfig(const ConfigPlaces& places) {
  using enum PrecisionClass;
  Config config;
  config.state_dir = places.state_dir;
  config.runtime_dir = places.runtime_dir;
  config.tiers.push_back(DefaultTier("hot", Medium::kDram, 256 * kMiB, kExact, kExact));
  config.tiers.push_back(DefaultTier("warm", Medium::kDram, 256 * kMiB, k8Bit, k4Bit));
  config.tiers.push_back(DefaultTier("cold", Medium::kNvme, kGiB, k4Bit, k2Bit));
  config.tiers.back().path = places.state_dir + "/cold";
  ListenerSettings listener;
  listener.uds = places.runtime_dir + "/firnd.sock";
  listener.admin = true;
  config.listeners.push_back(listener);
  return config;
}

std::vector<std::string> UnchangeableDifferences(const Config& now, const Config& next) {
  std::vector<std::string> out;
  auto differs = [&out](const char* key, bool different) {
    if (different) out.push_back(std::string(key) + " is read at start only; restart to change it");
  };
  differs("state_dir", now.state_dir != next.state_dir);
  differs("runtime_dir", now.runtime_dir != next.runtime_dir);
  differs("threads", now.threads != next.threads);
  differs("[[tier]]", now.tiers != next.tiers);
  differs("[[listener]]", now.listeners != next.listeners);
  differs("[limits]", now.limits != next.limits);
  differs("[store]", now.store != next.store);
  differs("[scrub]", now.scrub != next.scrub);
  differs("[admin]", now.admin_http != next.admin_http || now.admin_http_expose != next.admin_http_expose);
  differs("log.format", now.log_format != next.log_format);
  return out;
}

}  // namespace firn
