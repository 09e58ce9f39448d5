// From TOML to Config: names, types, units and ranges. What depends on the machine is in check.cc.
#include <fmt/format.h>

#include <cstdlib>

#include "base/read_file.h"
#include "base/status.h"
#include "base/toml/toml_section.h"
#include "daemon/config/config.h"
#include "daemon/config/read_ecc.h"
#include "daemon/config/read_precision.h"

namespace firn {
namespace {

constexpr uint64_t kCapacityMin = kMiB, kNvmeCapacityMin = 32 * kMiB, kCapacityMax = uint64_t{1} << 50;
constexpr size_t kConfigFileBytesMax = kMiB, kPathBytesMax = 4000;

bool IsName(std::string_view text, std::string_view extra) {
  for (char c : text) {
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!plain && extra.find(c) == std::string_view::npos) return false;
  }
  return !text.empty();
}

constexpr const char* kMedia = "allowed: \"gpu:0\" to \"gpu:63\", \"dram\", \"cxl\", \"nvme\"";

// N of "gpu:N".
std::optional<uint32_t> GpuNumber(std::string_view medium) {
  if (!medium.starts_with("gpu:") || medium.size() < 5 || medium.size() > 6) return std::nullopt;
  uint32_t number = 0;
  for (char c : medium.substr(4)) {
    if (c < '0' || c > '9') return std::nullopt;
    number = number * 10 + static_cast<uint32_t>(c - '0');
  }
  return number < 64 ? std::optional(number) : std::nullopt;
}

void ReadMedium(TomlSection& section, TierSettings* tier) {
  std::string medium;
  section.String("medium", &medium, 32);
  if (!section.Has("medium")) {
    section.Error("medium", std::string("missing; ") + kMedia);
  } else if (medium.empty()) {
    return;  // No string: said already.
  } else if (medium == "dram") {
    tier->medium = Medium::kDram;
  } else if (medium == "cxl") {
    tier->medium = Medium::kCxl;
  } else if (medium == "nvme") {
    tier->medium = Medium::kNvme;
  } else if (auto device = GpuNumber(medium); device.has_value()) {
    tier->medium = Medium::kGpu;
    tier->gpu_device = *device;
  } else {
    section.Error("medium", kMedia);
  }
}

void ReadGpu(TomlSection& section, TierSettings* tier) {
  if (tier->medium != Medium::kGpu) {
    for (const char* key : {"backend", "staging", "scratch"}) {
      if (section.Has(key)) section.Error(key, "allowed: with \"gpu:N\"");
    }
    return;
  }
  std::string backend = "cuda";
  section.Choice("backend", &backend, {"cuda", "cpu"});
  tier->gpu_is_cpu = backend == "cpu";
  section.Bytes("staging", &tier->staging_bytes, 8 * kMiB, kCapacityMax);
  section.Bytes("scratch", &tier->scratch_bytes, 8 * kMiB, 16 * kGiB);
}

void ReadPlace(TomlSection& section, TierSettings* tier) {
  section.String("path", &tier->path, kPathBytesMax);
  if (section.Has("numa_node")) {
    int64_t node = -1;
    section.Int("numa_node", &node, 0, 1023);
    if (node >= 0) tier->numa_node = static_cast<int>(node);
  }
  switch (tier->medium) {
    case Medium::kGpu:
      for (const char* key : {"path", "numa_node"}) {
        if (section.Has(key)) section.Error(key, "a tier on a GPU has none; allowed: with other media");
      }
      break;
    case Medium::kDram:
      if (section.Has("path")) section.Error("path", "a tier on dram has no path; allowed: with \"cxl\" and \"nvme\"");
      break;
    case Medium::kCxl:
      if (section.Has("path") == section.Has("numa_node")) {
        section.Error("path", "allowed: a tier on cxl has either a path (a DAX device or a file) or a numa_node");
      }
      break;
    case Medium::kNvme:
      if (!section.Has("path")) section.Error("path", "missing; allowed: the absolute path of a directory");
      if (section.Has("numa_node"))
        section.Error("numa_node", "a tier on nvme has no numa_node; allowed: with \"dram\" and \"cxl\"");
      break;
  }
  if (!tier->path.empty() && tier->path[0] != '/') section.Error("path", "allowed: an absolute path");
}

TierSettings ReadTier(TomlSection& section) {
  TierSettings tier;
  section.String("name", &tier.name, 32);
  if (!section.Has("name")) section.Error("name", "missing; allowed: 1 to 32 letters, digits, - and _");
  if (!tier.name.empty() && !IsName(tier.name, "_-")) {
    section.Error("name", "allowed: 1 to 32 letters, digits, - and _");
  }
  ReadMedium(section, &tier);
  ReadPlace(section, &tier);
  ReadGpu(section, &tier);
  uint64_t least = tier.medium == Medium::kNvme ? kNvmeCapacityMin : kCapacityMin;
  section.Bytes("capacity", &tier.capacity_bytes, tier.medium == Medium::kGpu ? 0 : least, kCapacityMax);
  if (!section.Has("capacity")) section.Error("capacity", "missing; allowed: a size with a unit, such as \"64GiB\"");
  ReadPrecision(section, "precision", &tier.precision, &tier.use_fp8);
  ReadPrecision(section, "least", &tier.least, nullptr);
  if (!tier.precision.AtLeast(tier.least)) {
    section.Error("least",
                  "finer than the tier's precision; allowed: at most " + PrintPrecision(tier.precision, tier.use_fp8));
  }
  section.Share("high_watermark", &tier.high_watermark);
  section.Share("low_watermark", &tier.low_watermark);
  if (tier.low_watermark >= tier.high_watermark) {
    section.Error("low_watermark", fmt::format("allowed: below high_watermark, {}", tier.high_watermark));
  }
  // On disks what fails are sectors, in memory bits.
  ReadEcc(section, "ecc", tier.medium == Medium::kNvme ? EccCode::kReedSolomon : EccCode::kSecded, &tier.ecc);
  if (tier.medium == Medium::kGpu && tier.ecc.any()) {
    section.Error("ecc", "a tier on a GPU has the GPU's own error correction; allowed: \"none\"");
  }
  std::string on_failure = "shrink";
  section.Choice("on_memory_failure", &on_failure, {"shrink", "exit"});
  tier.shrink_on_memory_failure = on_failure == "shrink";
  return tier;
}

ListenerSettings ReadListener(TomlSection& section) {
  ListenerSettings listener;
  section.String("uds", &listener.uds, 107);
  section.String("tcp", &listener.tcp, 260);
  if (section.Has("uds") == section.Has("tcp")) section.Error("uds", "allowed: a listener has either uds or tcp");
  if (!listener.uds.empty() && listener.uds[0] != '/') section.Error("uds", "allowed: an absolute path");
  std::string mode;
  section.String("mode", &mode, 8);
  if (!mode.empty()) {
    char* end = nullptr;
    unsigned long bits = std::strtoul(mode.c_str(), &end, 8);
    if (*end != 0 || bits > 0770 || (bits & 0600) != 0600 || (bits & 07) != 0) {
      section.Error("mode", "allowed: \"0600\" to \"0770\"; the owner reads and writes, others get nothing");
    } else {
      listener.mode = static_cast<uint32_t>(bits);
    }
  }
  section.String("group", &listener.group, 64);
  section.String("tenant", &listener.tenant, 64);
  if (!IsName(listener.tenant, "._-")) section.Error("tenant", "allowed: 1 to 64 letters, digits, . - and _");
  section.Bool("admin", &listener.admin);
  section.String("certificate", &listener.certificate, kPathBytesMax);
  section.String("private_key", &listener.private_key, kPathBytesMax);
  section.String("client_ca", &listener.client_ca, kPathBytesMax);
  size_t tls_files = section.Has("certificate") + section.Has("private_key") + section.Has("client_ca");
  if (tls_files != 0 && tls_files != 3) {
    section.Error("certificate", "allowed: none or all of certificate, private_key and client_ca");
  }
  if (tls_files != 0 && section.Has("uds")) section.Error("certificate", "a Unix socket has no TLS; allowed: with tcp");
  if (section.Has("tcp")) {
    for (const char* key : {"mode", "group"}) {
      if (section.Has(key)) section.Error(key, "allowed: with a Unix socket");
    }
  }
  return listener;
}

void ReadLimits(TomlSection& section, LimitSettings* limits) {
  section.Bytes("transport_budget", &limits->transport_budget_bytes, 64 * kMiB, kCapacityMax);
  section.Bytes("block_bytes", &limits->block_bytes_max, uint64_t{4096}, kBlockBytesMax);
  section.Bytes("chunk_bytes", &limits->chunk_bytes_max, uint32_t{4096}, uint32_t{8 * kMiB});
  section.Count("keys", &limits->keys_max, 1, static_cast<uint32_t>(kKeysLimitMax));
  section.Count("namespaces", &limits->namespaces_max, 1, 65536);
  section.Count("connections", &limits->connections_max, 1, 1u << 20);
  section.Count("streams", &limits->streams_max, 1, 1u << 16);
  section.Count("sessions", &limits->sessions_max, 1, 1u << 20);
  section.Count("leases", &limits->leases_max, 1, 1u << 20);
  section.Duration("put_idle", &limits->put_idle_ms, 100, 3'600'000);
  section.Duration("read_stall", &limits->read_stall_ms, 100, 3'600'000);
  section.Duration("read_deadline", &limits->read_deadline_ms, 10, 3'600'000);
  section.Duration("disk_stall", &limits->disk_stall_ms, 10, 3'600'000);
  section.Bytes("held_bytes", &limits->held_bytes_max, kMiB, kCapacityMax);
  section.Bytes("artifacts", &limits->artifacts_bytes_max, kMiB, kCapacityMax);
  section.Bytes("puts_in_flight", &limits->puts_in_flight_bytes_max, kMiB, kCapacityMax);
}

void ReadRoot(TomlSection& root, Config* config) {
  root.Count("threads", &config->threads, 1, 1024);
  if (root.Has("tier")) config->tiers.clear();
  root.Sections("tier", [config](TomlSection& s) { config->tiers.push_back(ReadTier(s)); });
  if (root.Has("listener")) config->listeners.clear();
  root.Sections("listener", [config](TomlSection& s) { config->listeners.push_back(ReadListener(s)); });
  root.Section("limits", [config](TomlSection& s) { ReadLimits(s, &config->limits); });
  root.Section("store", [config](TomlSection& s) {
    s.Count("moves_in_flight", &config->store.moves_in_flight, 1, 256);
    s.Count("events_kept", &config->store.events_kept, 1024, 1u << 24);
    s.Bool("promote_on_get", &config->store.promote_on_get);
    s.Count("demotion_nice", &config->store.demotion_nice, 0, 19);
  });
  root.Section("scrub", [config](TomlSection& s) {
    s.Bytes("rate", &config->scrub.bytes_per_second, 0, kCapacityMax);
    s.Duration("interval", &config->scrub.interval_ms, 1000, 365LL * 24 * 3'600'000);
  });
  root.Section("admin", [config](TomlSection& s) {
    s.String("http", &config->admin_http, 260);
    s.Bool("expose", &config->admin_http_expose);
  });
  root.Section("shutdown",
               [config](TomlSection& s) { s.Duration("budget", &config->shutdown_budget_ms, 0, 3'600'000); });
  root.Section("log", [config](TomlSection& s) {
    s.Choice("level", &config->log_level, {"debug", "info", "warning", "error"});
    s.Choice("format", &config->log_format, {"text", "json"});
  });
  root.Finish();
}

}  // namespace

absl::StatusOr<ConfigReading> ReadConfig(std::string_view text, std::string_view source, const ConfigPlaces& places) {
  ConfigReading reading;
  TomlSection::Report report;
  FIRN_RETURN_IF_ERROR(ReadToml(text, source, kConfigFileBytesMax, &report, [&](TomlSection& root) {
    // The directories come first: the default tiers and the default listener lie in them.
    ConfigPlaces chosen = places;
    for (auto [key, folder] :
         {std::pair{"state_dir", &chosen.state_dir}, std::pair{"runtime_dir", &chosen.runtime_dir}}) {
      std::string given;
      root.String(key, &given, kPathBytesMax);
      if (given.starts_with('/')) *folder = given;
      if (!given.empty() && given[0] != '/') root.Error(key, "allowed: an absolute path");
    }
    reading.config = DefaultConfig(chosen);
    ReadRoot(root, &reading.config);
  }));
  reading.source = Printable(source);
  reading.errors = std::move(report.errors);
  reading.origins = std::move(report.origins);
  return reading;
}

absl::StatusOr<ConfigReading> ReadConfigFile(const std::string& path, const ConfigPlaces& places) {
  auto text = ReadSmallFile(path, kConfigFileBytesMax);
  if (!text.ok()) {
    return absl::Status(text.status().code(), fmt::format("configuration: {}", Message(text.status())));
  }
  return ReadConfig(*text, path, places);
}

namespace {

absl::StatusOr<Config> AllOrNothing(absl::StatusOr<ConfigReading> reading) {
  if (!reading.ok()) return reading.status();
  if (reading->errors.empty()) return std::move(reading->config);
  return InvalidArgument("{}: {}", reading->source,
                         fmt::join(FindingLines(reading->errors), "\n" + reading->source + ": "));
}

}  // namespace

absl::StatusOr<Config> ParseConfig(std::string_view text, std::string_view source, const ConfigPlaces& places) {
  return AllOrNothing(ReadConfig(text, source, places));
}

absl::StatusOr<Config> LoadConfig(const std::string& path, const ConfigPlaces& places) {
  return AllOrNothing(ReadConfigFile(path, places));
}

}  // namespace firn
