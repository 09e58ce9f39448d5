// firn: the command line of FirnKV. docs/cli.md is its manual.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <sstream>
#include <string_view>

#include "client/cli/commands/commands.h"

namespace {

// Options are not read where the command line is wrong.
bool AsksForJson(int argc, char** argv) {
  return std::any_of(argv + 1, argv + argc,
                     [](const char* argument) { return std::string_view(argument) == "--json"; });
}

// Help that was asked for, and what is wrong: for people, and as one document on stdout for scripts.
int Explain(CLI::App* app, const CLI::ParseError& error, int argc, char** argv) {
  std::ostringstream help, complaint;
  bool wrong = app->exit(error, help, complaint) != 0;
  const bool json = AsksForJson(argc, argv);
  std::string message = error.what();
  std::vector<std::string> unknown = app->remaining();
  if (wrong && app->get_subcommands().empty() && !unknown.empty()) message = "no such command or option: " + unknown[0];
  if (wrong) std::fprintf(stderr, "firn: %s\nRun with --help for more information.\n", message.c_str());
  firn::cli::Context context;
  context.json = json;
  if (json && wrong) {
    context.Print({{"error", {{"code", "INVALID_ARGUMENT"}, {"message", message}}}});
  } else if (json && error.get_name() == "CallForVersion") {
    context.Print({{"version", FIRN_VERSION}});
  } else if (json) {
    context.Print({{"help", help.str()}});
  } else {
    std::fputs(help.str().c_str(), stdout);
  }
  return wrong ? firn::cli::kExitUsage : firn::cli::kExitOk;
}

// An unset variable in a script must not pass for an option that was left out.
void RefuseEmptyValues(CLI::App* app) {
  for (CLI::Option* option : app->get_options([](CLI::Option*) { return true; })) {
    if (option->get_items_expected_max() == 0) continue;
    option->check(CLI::Validator(
        [](const std::string& value) { return value.empty() ? std::string("is empty") : std::string(); }, ""));
  }
  for (CLI::App* command : app->get_subcommands([](CLI::App*) { return true; })) RefuseEmptyValues(command);
}

}  // namespace

int main(int argc, char** argv) {
  firn::cli::Context context;
  int code = firn::cli::kExitOk;
  CLI::App app("Talks to a FirnKV daemon. `firn COMMAND --help` explains a command; docs/cli.md is the manual.",
               "firn");
  app.add_option("--socket", context.socket,
                 "Where the daemon listens: unix:PATH, a path, or HOST:PORT (default: $FIRN_SOCKET, else "
                 "$XDG_RUNTIME_DIR/firnkv/firnd.sock where there is one, else /run/firnkv/firnd.sock)")
      ->type_name("PLACE");
  app.add_option(
         "--timeout", context.timeout,
         "Longest wait for one answer, with a unit: 500ms, 30s (default: 10s; where payload moves 60s; wait 30s)")
      ->type_name("DURATION");
  app.add_flag("--json", context.json, "One JSON document on stdout, also for errors and --help");
  app.add_flag("-q,--quiet", context.quiet, "No progress, no remarks");
  app.set_version_flag("--version", "firn " FIRN_VERSION);
  app.require_subcommand(1);
  app.fallthrough();  // Global options may follow the command.
  firn::cli::AddPut(&app, &context, &code);
  firn::cli::AddGet(&app, &context, &code);
  firn::cli::AddKeys(&app, &context, &code);
  firn::cli::AddInspect(&app, &context, &code);
  firn::cli::AddTiers(&app, &context, &code);
  firn::cli::AddScrub(&app, &context, &code);
  firn::cli::AddCopy(&app, &context, &code);
  firn::cli::AddMoves(&app, &context, &code);
  firn::cli::AddRemoval(&app, &context, &code);
  firn::cli::AddWatch(&app, &context, &code);
  firn::cli::AddPlan(&app, &context, &code);
  firn::cli::AddCalibrate(&app, &context, &code);
  firn::cli::AddImportScales(&app, &context, &code);
  firn::cli::AddArtifact(&app, &context, &code);
  firn::cli::AddBench(&app, &context, &code);
  firn::cli::AddChaos(&app, &context, &code);
  firn::cli::AddDemo(&app, &context, &code);
  // Last, as commands take over the footer that there is.
  app.footer(
      "Options of firn may also follow the command. Exit codes: 0 done; 1 done, but blocks were missed or refused, or\n"
      "a plan is wrong; 2 wrong command line or file; 3 no daemon or no answer in time; 4 verify found a difference,\n"
      "or chaos something wrong; 5 the daemon refused or failed.");
  RefuseEmptyValues(&app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return Explain(&app, error, argc, argv);
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    std::fprintf(stderr, "firn: cannot write to standard output\n");
    return firn::cli::kExitFailed;
  }
  return code;
}
