// The daemon's configuration: what a file may say, with the values that hold where it says nothing.
//
// ReadConfig takes TOML and finds unknown keys, wrong types, missing units and values out of range; CheckConfig
// (check/check.h) adds what the machine has to say. Both name the key, the value, what is allowed and the line, and
// report everything that is wrong at once. Threads: values. docs/configuration.md is the reference.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/toml/finding.h"
#include "base/units.h"
#include "codecs/ecc/ecc.h"
#include "codecs/types.h"

namespace firn {

// Of a certificate, a key or a bundle of authorities.
inline constexpr uint64_t kPemBytesMax = kMiB;

enum class Medium : uint8_t { kDram, kCxl, kNvme, kGpu };
std::string_view MediumName(Medium medium);

struct TierSettings {
  std::string name;
  Medium medium = Medium::kDram;
  uint64_t capacity_bytes = 0;
  std::string path;              // nvme: a directory; cxl: a DAX device or a file.
  std::optional<int> numa_node;  // dram: where its memory is bound; cxl: the node that the memory is.
  ClassPair precision{PrecisionClass::kExact, PrecisionClass::kExact};
  ClassPair least;       // Degrading stops here; kNone: as the lowest code.
  bool use_fp8 = false;  // The 8-bit class is FP8.
  double high_watermark = 0.90;
  double low_watermark = 0.80;
  EccPolicy ecc = {};                    // Beside what is stored from now on.
  bool shrink_on_memory_failure = true;  // dram, cxl: serve with what could be had, instead of ending.
  // gpu alone.
  uint32_t gpu_device = 0;
  bool gpu_is_cpu = false;              // The processor in the GPU's place.
  uint64_t staging_bytes = 256 * kMiB;  // Host memory that blocks pass through.
  uint64_t scratch_bytes = 256 * kMiB;  // GPU memory, beside the capacity, for blocks that are being coded.
  bool operator==(const TierSettings&) const = default;
};

struct ListenerSettings {
  std::string uds;       // A path; or empty, and `tcp` is set.
  std::string tcp;       // "127.0.0.1:7411"
  uint32_t mode = 0660;  // Of the socket file.
  std::string group;     // Of the socket file; empty: the daemon's own.
  std::string tenant = "default";
  bool admin = false;                               // Offers the Admin service.
  std::string certificate, private_key, client_ca;  // PEM files for mutual TLS: all or none.
  bool operator==(const ListenerSettings&) const = default;
  std::string Address() const { return uds.empty() ? tcp : "unix:" + uds; }
};

// What limits.keys may be at most: a status for each of them fits one message.
inline constexpr uint64_t kKeysLimitMax = uint64_t{1} << 17;

struct LimitSettings {
  uint64_t transport_budget_bytes =
      kGiB;  // Memory of the transport: messages being received, decoded chunks being sent.
  uint64_t block_bytes_max = kBlockBytesMax;
  uint32_t chunk_bytes_max = kMiB;
  uint32_t keys_max = 65536;        // In one batch.
  uint32_t connections_max = 4096;  // On all listeners; never more than 3/4 of the descriptors the process may have.
  uint32_t streams_max = 256;       // Concurrent calls on one connection.
  uint32_t sessions_max = 4096;
  uint32_t leases_max = 4096;         // In one session.
  int64_t put_idle_ms = 30'000;       // A half-made put ends when nothing arrives for so long.
  int64_t read_stall_ms = 30'000;     // A stream ends when its client takes nothing for so long.
  int64_t read_deadline_ms = 30'000;  // A block that could not be read in this time is a miss.
  int64_t disk_stall_ms = 10'000;     // A tier whose disk owes an answer for longer is unhealthy.
  uint64_t held_bytes_max = kGiB;     // Of removed blocks, that one session may keep alive.
  uint64_t puts_in_flight_bytes_max = kGiB;
  uint32_t namespaces_max = 1024;            // Registered, of all tenants.
  uint64_t artifacts_bytes_max = 64 * kMiB;  // Of all tenants; never more than 1/16 of the persistent tier.
  bool operator==(const LimitSettings&) const = default;
};

// "dram", "gpu:0": the medium as the configuration names it.
std::string MediumOf(const TierSettings& tier);

// Under /dev, except /dev/shm, which is a file system in memory.
bool IsDevicePath(std::string_view path);

struct StoreSettings {
  uint32_t moves_in_flight = 8;
  uint32_t events_kept = 65536;
  bool promote_on_get = true;
  uint32_t demotion_nice = 10;  // Added to the niceness of the threads that demote, so that they give way to requests.
  bool operator==(const StoreSettings&) const = default;
};

struct ScrubSettings {
  uint64_t bytes_per_second = 32 * kMiB;  // Of all tiers together; 0: nothing is scrubbed but what is asked for.
  int64_t interval_ms = 3'600'000;        // From one pass to the next, at least.
  bool operator==(const ScrubSettings&) const = default;
};

struct Config {
  std::string state_dir;            // Lock, and default places of what persists.
  std::string runtime_dir;          // Default place of the socket.
  uint32_t threads = 0;             // Of the executor; 0: one a core, at least 2.
  std::vector<TierSettings> tiers;  // Hot to cold.
  std::vector<ListenerSettings> listeners;
  LimitSettings limits;
  StoreSettings store;
  ScrubSettings scrub;
  std::string admin_http = "127.0.0.1:9411";  // /metrics, /healthz, /readyz; "off": not offered.
  bool admin_http_expose = false;             // Allows an address that is not loopback.
  int64_t shutdown_budget_ms = 20'000;
  std::string log_level = "info";
  std::string log_format = "text";
  bool operator==(const Config&) const = default;
};

// Directories given on the command line or by the environment; a file may set its own.
struct ConfigPlaces {
  std::string state_dir;
  std::string runtime_dir;
};
// $STATE_DIRECTORY, $RUNTIME_DIRECTORY (set by systemd), else /var/lib/firnkv and /run/firnkv for root, else the user's
// own.
ConfigPlaces DefaultPlaces();

// What holds without a file: 256 MiB FP16 and 256 MiB INT8 (down to INT4) in DRAM, 1 GiB INT4 (down to INT2) in the
// state directory, one Unix socket in the runtime directory.
Config DefaultConfig(const ConfigPlaces& places);

// Those of the executor that this machine gets: as set, or one a core and at least 2.
uint32_t ThreadsInForce(const Config& config);

// What a file says. With errors, `config` holds the default in place of each value that is wrong.
struct ConfigReading {
  Config config;
  std::string source;  // Names the file in messages; empty: the built-in default.
  std::vector<Finding> errors;
  Origins origins;
};
// A file that has no tier or no listener gets the default ones. An error: this is no TOML at all, or too much of it.
absl::StatusOr<ConfigReading> ReadConfig(std::string_view text, std::string_view source, const ConfigPlaces& places);
absl::StatusOr<ConfigReading> ReadConfigFile(const std::string& path, const ConfigPlaces& places);

// For those who want all or nothing: errors of reading are one status.
absl::StatusOr<Config> ParseConfig(std::string_view text, std::string_view source, const ConfigPlaces& places);
absl::StatusOr<Config> LoadConfig(const std::string& path, const ConfigPlaces& places);

// The configuration in force, as TOML that ParseConfig reads back to the same values.
std::string PrintConfig(const Config& config);

// "exact", "fp8", "int8", "int4", "int2", or "{ k = ..., v = ... }".
std::string PrintPrecision(const ClassPair& classes, bool use_fp8);

// What a running daemon would need a restart for, one line each; empty: all of `next` can be taken over.
std::vector<std::string> UnchangeableDifferences(const Config& now, const Config& next);

}  // namespace firn
