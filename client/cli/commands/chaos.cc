// chaos: a daemon of its own under load and faults, and whether anything was lost or wrong.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>

#include "base/status.h"
#include "client/cli/chaos/chaos_run.h"
#include "client/cli/commands/commands.h"
#include "client/cli/support/numbers.h"

namespace firn::cli {
namespace {

namespace fs = std::filesystem;

struct ChaosCommand {
  std::string firnd, dir, ecc = "none", gpu = "none";
  uint32_t seconds = 60, clients = 2;
  uint64_t seed = 0;  // 0: any.

  // Beside this program, as packages install it, or where a build has it.
  static absl::StatusOr<std::string> FindDaemon(const std::string& given) {
    std::error_code error;
    const fs::path here = fs::read_symlink("/proc/self/exe", error).parent_path();
    std::vector<fs::path> places = {here / "firnd", here / "../../daemon/firnd"};
    if (!given.empty()) places = {given};
    for (const fs::path& place : places) {
      if (::access(place.c_str(), X_OK) == 0 && fs::is_regular_file(place)) return fs::canonical(place).string();
    }
    return InvalidArgument("--firnd: {} is no program", places.front().string());
  }

  // A folder that is new or empty, so that nobody's data can be hurt; the root of a file system may have its
  // lost+found.
  static absl::StatusOr<fs::path> TakeFolder(const std::string& given) {
    if (given.empty()) {
      std::string pattern = (fs::temp_directory_path() / "firn-chaos-XXXXXX").string();
      if (::mkdtemp(pattern.data()) == nullptr) return ErrnoStatus(errno, "make " + pattern);
      return fs::path(pattern);
    }
    std::error_code error;
    const fs::path folder = fs::absolute(given);
    fs::create_directory(folder, error);
    if (error) return InvalidArgument("--dir {}: {}", given, error.message());
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      if (entry.path().filename() == "lost+found") continue;
      return InvalidArgument("--dir {}: has {}; a new or an empty folder is wanted, as files in it get damaged", given,
                             entry.path().filename().string());
    }
    if (error) return InvalidArgument("--dir {}: {}", given, error.message());
    return folder;
  }

  // What the run left, where nobody needs it to understand what was wrong.
  static void Tidy(const fs::path& folder, bool made_here) {
    std::error_code ignored;
    for (const char* name : {"firnd.toml", "firnd.log", "run", "state"}) fs::remove_all(folder / name, ignored);
    if (made_here) fs::remove(folder, ignored);
  }

  absl::StatusOr<int> Run(Context* context) const {
    ChaosOptions options;
    FIRN_ASSIGN_OR_RETURN(options.firnd, FindDaemon(firnd));
    FIRN_ASSIGN_OR_RETURN(options.folder, TakeFolder(dir));
    options.seconds = seconds;
    options.clients = clients;
    options.ecc = ecc;
    options.gpu = gpu == "none" ? "" : gpu;
    options.seed = seed != 0 ? seed : std::random_device{}();
    const bool shown = !context->json && !context->quiet;
    if (shown) {
      std::fprintf(stderr, "firn chaos --seconds %u --clients %u --ecc %s --gpu %s --seed %llu in %s\n", seconds,
                   clients, ecc.c_str(), gpu.c_str(), static_cast<unsigned long long>(options.seed),
                   options.folder.c_str());
      options.tell = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
    }
    absl::StatusOr<ChaosReport> run = ChaosRun(options).Run();
    if (!run.ok()) {  // It never began, and the error says why.
      Tidy(options.folder, dir.empty());
      return run.status();
    }
    const ChaosReport& report = *run;
    context->json ? context->Print(ToJson(report)) : PrintReport(report);
    if (report.good()) {
      Tidy(options.folder, dir.empty());
      return kExitOk;
    }
    std::fprintf(stderr, "firn: the daemon's log and files stay in %s\n", options.folder.c_str());
    return kExitInconsistent;
  }
};

}  // namespace

void AddChaos(CLI::App* app, Context* context, int* code) {
  auto command = std::make_shared<ChaosCommand>();
  CLI::App* chaos = app->add_subcommand(
      "chaos", "Kills, stalls and damages a daemon of its own under load, and checks that nothing is lost or wrong");
  chaos->add_option("--firnd", command->firnd, "The daemon's program (default: beside firn)")->type_name("PATH");
  chaos
      ->add_option("--dir", command->dir,
                   "A new or empty folder for all of its files; a small file system of its own, on a loop device, is "
                   "also filled up (default: a temporary one)")
      ->type_name("DIR");
  chaos
      ->add_option("--seconds", command->seconds,
                   fmt::format("How long faults are injected, 1 to 86400 (default: {})", command->seconds))
      ->check(WholeNumber<uint32_t>(1, 86'400))
      ->type_name("SECONDS");
  chaos->add_option("--seed", command->seed, "Repeats a run's faults; 0: any (default: 0)")
      ->check(WholeNumber<uint64_t>(0, UINT64_MAX))
      ->type_name("NUMBER");
  chaos->add_option("--clients", command->clients, fmt::format("At once, 1 to 64 (default: {})", command->clients))
      ->check(WholeNumber<uint32_t>(1, 64))
      ->type_name("CLIENTS");
  chaos->add_option("--ecc", command->ecc, "Of the tiers: none, secded, rs or graded (default: none)")
      ->check(CLI::IsMember({"none", "secded", "rs", "graded"}))
      ->type_name("CODE");
  chaos
      ->add_option("--gpu", command->gpu,
                   "The hot tier is on GPU 0 (cuda) or on the processor in its place (cpu), and its child is killed "
                   "too; none: it is in memory (default: none)")
      ->check(CLI::IsMember({"none", "cpu", "cuda"}))
      ->type_name("BACKEND");
  chaos->callback([=] {
    auto result = command->Run(context);
    *code = result.ok() ? *result : context->Report(result.status());
  });
}

}  // namespace firn::cli
