// One run of `firn chaos`: a daemon of its own under load, a fault, a look whether all promises hold, the next fault.
//
// Threads: one drives it and injects; the clients run on threads of their own and end with Run. Errors: the daemon
// could not be started in the first place. What goes wrong later is in the report.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/chaos/chaos_options.h"
#include "client/cli/chaos/chaos_report.h"
#include "client/cli/chaos/load.h"
#include "client/trial/trial_daemon.h"

namespace firn::cli {

class ChaosRun {
 public:
  explicit ChaosRun(ChaosOptions options);
  ~ChaosRun();

  absl::StatusOr<ChaosReport> Run();

 private:
  struct Fault {
    const char* name;
    // What it did; NotFound when there was nothing to do it to, and then nothing was done.
    absl::StatusOr<std::string> (ChaosRun::*inject)(std::mt19937_64& random);
  };
  static const std::vector<Fault>& AllFaults();
  std::vector<Fault> FaultsHere();

  absl::StatusOr<std::string> Kill(std::mt19937_64& random);
  absl::StatusOr<std::string> Restart(std::mt19937_64& random);
  absl::StatusOr<std::string> Stall(std::mt19937_64& random);
  template <int kHow>
  absl::StatusOr<std::string> Segment(std::mt19937_64& random);
  absl::StatusOr<std::string> Index(std::mt19937_64& random);
  absl::StatusOr<std::string> FillDisk(std::mt19937_64& random);
  absl::StatusOr<std::string> KillGpuChild(std::mt19937_64& random);

  // False: the daemon is gone, and the run is over.
  bool InjectOne(const Fault& fault, std::mt19937_64& random);
  // Ends the daemon with `end`, does `meanwhile`, starts it again.
  template <typename End, typename Meanwhile>
  absl::StatusOr<std::string> Cycle(End end, Meanwhile meanwhile);
  absl::Status Start();
  bool IsReady();
  void StartClients();
  void StopClients();
  // Reads what was promised, while the clients are held still: one of `one_in` blocks.
  void CheckPromises(uint64_t one_in, std::mt19937_64& random);
  void ScrubAndVerify();
  void TakeStats();
  std::string At(const std::string& line) const;

  const ChaosOptions options_;
  LoadState state_;
  TrialDaemon daemon_;
  ChaosReport report_;
  StatsSum stats_;
  std::unique_ptr<BlockClient> checker_;
  std::vector<std::thread> clients_;
  const int64_t begun_ns_;
};

}  // namespace firn::cli
