// firnd: reads its configuration, then runs the daemon.
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/status.h"
#include "daemon/config/machine.h"
#include "daemon/daemon.h"
#include "daemon/runtime/log.h"
#include "daemon/version.h"

namespace firn {
namespace {

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
  absl::StatusOr<Config> config = DefaultConfig(options.places);
  if (!options.config_path.empty()) config = LoadConfig(options.config_path, options.places);
  if (!config.ok()) {
    std::fprintf(stderr, "firnd: %s\n", Message(config.status()).c_str());
    return kExitBadConfig;
  }
  ConfigVerdict verdict = CheckConfig(*config, ThisMachine());
  for (const std::string& warning : verdict.warnings) std::fprintf(stderr, "firnd: warning: %s\n", warning.c_str());
  for (const std::string& error : verdict.errors) std::fprintf(stderr, "firnd: %s\n", error.c_str());
  if (!verdict.errors.empty()) return kExitBadConfig;
  if (print) std::fputs(PrintConfig(*config).c_str(), stdout);
  if (check_only) std::fputs("firnd: the configuration is accepted\n", stderr);
  if (print || check_only) return kExitOk;
  options.config = *std::move(config);
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
