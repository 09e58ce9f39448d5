// firn: the command line of FirnKV. docs/cli.md is its manual.

#include <CLI/CLI.hpp>
#include <cstdio>

#include "client/cli/commands/commands.h"

int main(int argc, char** argv) {
  firn::cli::Context context;
  int code = firn::cli::kExitOk;
  CLI::App app(
      "Talks to a FirnKV daemon. Exit codes: 0 done, 1 some blocks missed or refused, 2 wrong command line or file,\n"
      "3 no daemon or no answer in time, 4 verify found a difference, 5 the daemon refused or failed.",
      "firn");
  app.add_option("--socket", context.socket,
                 "unix:PATH, a path, or HOST:PORT (default: $FIRN_SOCKET, else the daemon's default)");
  app.add_option("--timeout", context.timeout,
                 "Longest wait for one answer, with a unit: 500ms, 30s (default: 10s, with payload 60s)");
  app.add_flag("--json", context.json, "One JSON document on stdout");
  app.add_flag("-q,--quiet", context.quiet, "No progress, no remarks");
  app.require_subcommand(1);
  app.fallthrough();  // Global options may follow the command.
  firn::cli::AddPut(&app, &context, &code);
  firn::cli::AddGet(&app, &context, &code);
  firn::cli::AddKeys(&app, &context, &code);
  firn::cli::AddInspect(&app, &context, &code);
  firn::cli::AddTiers(&app, &context, &code);
  firn::cli::AddMoves(&app, &context, &code);
  firn::cli::AddRemoval(&app, &context, &code);
  firn::cli::AddWatch(&app, &context, &code);
  firn::cli::AddCalibrate(&app, &context, &code);
  firn::cli::AddBench(&app, &context, &code);
  firn::cli::AddDemo(&app, &context, &code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? firn::cli::kExitOk : firn::cli::kExitUsage;
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    std::fprintf(stderr, "firn: cannot write to standard output\n");
    return firn::cli::kExitFailed;
  }
  return code;
}
