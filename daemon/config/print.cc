// The configuration in force as TOML. Sizes and durations are printed in their smallest unit, so that they read back
// exactly.
#include <fmt/format.h>

#include "base/toml/toml_section.h"
#include "daemon/config/config.h"

namespace firn {
namespace {

std::string ClassWord(PrecisionClass c, bool use_fp8) {
  switch (c) {
    case PrecisionClass::kExact:
      return "fp16";
    case PrecisionClass::k8Bit:
      return use_fp8 ? "fp8" : "int8";
    case PrecisionClass::k4Bit:
      return "int4";
    default:
      return "int2";
  }
}

// A size in the largest unit that divides it.
std::string Size(uint64_t bytes) {
  for (auto [unit, name] : {std::pair{kGiB, "GiB"}, std::pair{kMiB, "MiB"}, std::pair{kKiB, "KiB"}}) {
    if (bytes != 0 && bytes % unit == 0) return fmt::format("\"{}{}\"", bytes / unit, name);
  }
  return fmt::format("\"{}B\"", bytes);
}

std::string Duration(int64_t ms) {
  return ms % 1000 == 0 ? fmt::format("\"{}s\"", ms / 1000) : fmt::format("\"{}ms\"", ms);
}

void PrintTier(const TierSettings& tier, std::string* out) {
  *out += "\n[[tier]]\n";
  *out += fmt::format("name = {}\nmedium = \"{}\"\n", TomlQuoted(tier.name), MediumOf(tier));
  *out += fmt::format("capacity = {}\n", Size(tier.capacity_bytes));
  if (!tier.path.empty()) *out += fmt::format("path = {}\n", TomlQuoted(tier.path));
  if (tier.numa_node.has_value()) *out += fmt::format("numa_node = {}\n", *tier.numa_node);
  *out += fmt::format("precision = {}\n", PrintPrecision(tier.precision, tier.use_fp8));
  if (tier.least != ClassPair{}) *out += fmt::format("least = {}\n", PrintPrecision(tier.least, false));
  *out += fmt::format("high_watermark = {}\nlow_watermark = {}\n", tier.high_watermark, tier.low_watermark);
  *out += fmt::format("ecc = \"{}\"\n", tier.ecc.ToString());
  if (tier.medium == Medium::kGpu) {
    *out += fmt::format("backend = \"{}\"\nstaging = {}\nscratch = {}\n", tier.gpu_is_cpu ? "cpu" : "cuda",
                        Size(tier.staging_bytes), Size(tier.scratch_bytes));
  }
  *out += fmt::format("on_memory_failure = \"{}\"\n", tier.shrink_on_memory_failure ? "shrink" : "exit");
}

void PrintListener(const ListenerSettings& listener, std::string* out) {
  *out += "\n[[listener]]\n";
  if (!listener.uds.empty()) {
    *out += fmt::format("uds = {}\nmode = \"{:04o}\"\n", TomlQuoted(listener.uds), listener.mode);
    if (!listener.group.empty()) *out += fmt::format("group = {}\n", TomlQuoted(listener.group));
  } else {
    *out += fmt::format("tcp = {}\n", TomlQuoted(listener.tcp));
  }
  *out += fmt::format("tenant = {}\nadmin = {}\n", TomlQuoted(listener.tenant), listener.admin);
  if (!listener.certificate.empty()) {
    *out += fmt::format("certificate = {}\nprivate_key = {}\nclient_ca = {}\n", TomlQuoted(listener.certificate),
                        TomlQuoted(listener.private_key), TomlQuoted(listener.client_ca));
  }
}

}  // namespace

std::string PrintPrecision(const ClassPair& classes, bool use_fp8) {
  if (classes.k == classes.v) return "\"" + ClassWord(classes.k, use_fp8) + "\"";
  return fmt::format("{{ k = \"{}\", v = \"{}\" }}", ClassWord(classes.k, use_fp8), ClassWord(classes.v, use_fp8));
}

std::string PrintConfig(const Config& config) {
  std::string out;
  out +=
      fmt::format("state_dir = {}\nruntime_dir = {}\n", TomlQuoted(config.state_dir), TomlQuoted(config.runtime_dir));
  // Where it is left out a comment, so that what is printed reads back to the same on any machine.
  out += fmt::format("{}threads = {}\n", config.threads != 0 ? "" : "# One a core: ", ThreadsInForce(config));
  const LimitSettings& l = config.limits;
  out += fmt::format(
      "\n[limits]\ntransport_budget = {}\nblock_bytes = {}\nchunk_bytes = {}\nkeys = {}\nstreams = {}\nsessions = {}\n"
      "leases = {}\nput_idle = {}\nread_stall = {}\nread_deadline = {}\ndisk_stall = {}\nheld_bytes = "
      "{}\nputs_in_flight = {}\nnamespaces = {}\nartifacts = {}\nconnections = {}\n",
      Size(l.transport_budget_bytes), Size(l.block_bytes_max), Size(l.chunk_bytes_max), l.keys_max, l.streams_max,
      l.sessions_max, l.leases_max, Duration(l.put_idle_ms), Duration(l.read_stall_ms), Duration(l.read_deadline_ms),
      Duration(l.disk_stall_ms), Size(l.held_bytes_max), Size(l.puts_in_flight_bytes_max), l.namespaces_max,
      Size(l.artifacts_bytes_max), l.connections_max);
  out += fmt::format("\n[store]\nmoves_in_flight = {}\nevents_kept = {}\npromote_on_get = {}\ndemotion_nice = {}\n",
                     config.store.moves_in_flight, config.store.events_kept, config.store.promote_on_get,
                     config.store.demotion_nice);
  out += fmt::format("\n[scrub]\nrate = {}\ninterval = {}\n", Size(config.scrub.bytes_per_second),
                     Duration(config.scrub.interval_ms));
  out += fmt::format("\n[admin]\nhttp = {}\nexpose = {}\n", TomlQuoted(config.admin_http), config.admin_http_expose);
  out += fmt::format("\n[shutdown]\nbudget = {}\n", Duration(config.shutdown_budget_ms));
  out += fmt::format("\n[log]\nlevel = \"{}\"\nformat = \"{}\"\n", config.log_level, config.log_format);
  for (const TierSettings& tier : config.tiers) PrintTier(tier, &out);
  for (const ListenerSettings& listener : config.listeners) PrintListener(listener, &out);
  return out;
}

}  // namespace firn
