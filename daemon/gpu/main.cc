// firnd-gpu: one GPU's child of firnd, started by it with a socket as descriptor 3.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "daemon/version.h"
#include "tiers/hot/child/child.h"
#include "tiers/hot/child/cpu_device.h"
#ifdef FIRN_WITH_CUDA
#include "daemon/gpu/cuda_device.h"
#endif

namespace firn {
namespace {

constexpr int kSocket = 3;
constexpr int kExitUsage = 64;

int Main(int argc, char** argv) {
  CLI::App app("The process of one GPU; firnd starts it.", "firnd-gpu");
  bool cpu = false;
  gpu::CpuFaults faults;
  uint64_t illegal_address_at_job = 0;
  app.add_flag("--cpu", cpu, "The processor in place of a GPU: for tests and trials");
  app.add_option("--fault-fatal-at", faults.fatal_at_job, "With --cpu: this job loses the GPU")->group("Faults");
  app.add_option("--fault-code", faults.fatal_code, "With --cpu: CUDA's code for it")->group("Faults");
  app.add_option("--fault-exit-at", faults.exit_at_job, "With --cpu: the process ends in this job")->group("Faults");
  app.add_option("--fault-hang-at", faults.hang_at_job, "With --cpu: this job never ends")->group("Faults");
  app.add_option("--fault-fail-at", faults.fail_at_job, "With --cpu: this job finds no memory")->group("Faults");
  app.add_option("--fault-pool", faults.pool_bytes_max, "With --cpu: bytes that the GPU has for a pool")
      ->group("Faults");
  app.add_option("--fault-illegal-address-at", illegal_address_at_job, "On a GPU: this job reads where nothing is")
      ->group("Faults");
  app.set_version_flag("--version", std::string("firnd-gpu ") + kFirnVersion);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  // Whatever ends the daemon ends this; no core dumps of what clients put.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::prctl(PR_SET_DUMPABLE, 0);
  ::signal(SIGINT, SIG_IGN);  // A terminal's is for firnd, which ends this when it is done.
  struct rlimit none {};
  ::setrlimit(RLIMIT_CORE, &none);
  std::unique_ptr<gpu::Device> device;
  if (cpu) device = gpu::MakeCpuDevice(faults);
#ifdef FIRN_WITH_CUDA
  if (!cpu) device = gpu::MakeCudaDevice({.illegal_address_at_job = illegal_address_at_job});
#endif
  if (device == nullptr) {
    std::fputs("firnd-gpu: built without CUDA; allowed: --cpu\n", stderr);
    return kExitUsage;
  }
  int code = gpu::RunChild(UniqueFd(kSocket), device.get());
  // A lost GPU's calls need not come back: nothing is left to tidy up.
  std::fflush(nullptr);
  ::_exit(code);
}

}  // namespace
}  // namespace firn

int main(int argc, char** argv) { return firn::Main(argc, argv); }
