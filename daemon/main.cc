// firnd: reads its configuration, then runs the daemon.
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/status.h"
#include "daemon/config/check/check.h"
#include "daemon/daemon.h"
#include "daemon/runtime/log.h"
#include "daemon/version.h"

namespace firn {
namespace {

void Tell(const ConfigReading& reading, const char* kind, const std::vector<Finding>& findings) {
  const std::string source = reading.source.empty() ? "" : reading.source + ": ";
  for (const std::string& line : FindingLines(findings)) {
    std::fprintf(stderr, "firnd: %s%s%s\n", kind, source.c_str(), line.c_str());
  }
}

int Main(int argc, char** argv) {
  CLI::App app("FirnKV's daemon: a precision-tiering store of KV-cache blocks.", "firnd");
  DaemonOptions options;
  options.places = DefaultPlaces();
  bool check_only = false, print = false;
  app.add_option("-c,--config", options.config_path,
                 "Configuration file (TOML); without one, the built-in default holds");
  app.add_option("--state-dir", options.places.state_dir, "Where what persists lies, unless the file says otherwise")
      ->capture_default_str();
  app.add_option("--runtime-dir", options.places.runtime_dir, "Where the socket lies, unless the file says otherwise")
      ->capture_default_str();
  app.add_flag("--check-config", check_only,
               "Say whether the configuration would be accepted on this machine, and end");
  app.add_flag("--print-config", print, "Print the configuration in force, and end");
  app.set_version_flag("--version", std::string("firnd ") + kFirnVersion);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  absl::StatusOr<ConfigReading> reading = ConfigReading{DefaultConfig(options.places), "", {}, {}};
  if (!options.config_path.empty()) reading = ReadConfigFile(options.config_path, options.places);
  if (!reading.ok()) {
    std::fprintf(stderr, "firnd: %s\n", Message(reading.status()).c_str());
    return kExitBadConfig;
  }
  ConfigVerdict verdict = CheckConfig(*reading, ThisMachine());
  Tell(*reading, "warning: ", verdict.warnings);
  Tell(*reading, "", verdict.errors);
  if (!verdict.errors.empty()) return kExitBadConfig;
  if (print) std::fputs(PrintConfig(reading->config).c_str(), stdout);
  if (check_only) std::fputs("firnd: the configuration is accepted\n", stderr);
  if (print || check_only) return kExitOk;
  options.config = std::move(reading->config);
  return RunDaemon(std::move(options));
}

}  // namespace
}  // namespace firn

int main(int argc, char** argv) {
  // Receive buffers of a megabyte come and go all the time: kept in the heap, they are not mapped, faulted in and
  // zeroed anew for every message. What is kept is bounded, an arena at a time.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 32 << 20);
  mallopt(M_ARENA_MAX, 4);
  return firn::Main(argc, argv);
}
