#include "daemon/tier_factory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/status.h"
#include "daemon/config/machine.h"
#include "daemon/runtime/instance_lock.h"
#include "daemon/runtime/log.h"
#include "tiers/cold/device/open_device.h"
#include "tiers/cold/index/rocksdb_index.h"
#include "tiers/cxl/cxl_tier.h"
#include "tiers/warm/warm_tier.h"

namespace firn {
namespace {

TierConfig ConfigOf(const TierSettings& settings, std::unique_ptr<Tier> tier) {
  TierConfig config;
  config.name = settings.name;
  config.tier = std::move(tier);
  config.precision = settings.precision;
  config.least = settings.least;
  config.use_fp8 = settings.use_fp8;
  config.high_watermark = settings.high_watermark;
  config.low_watermark = settings.low_watermark;
  return config;
}

absl::StatusOr<std::unique_ptr<ArenaTier>> OpenArena(const TierSettings& settings) {
  if (settings.medium == Medium::kDram) {
    WarmTierOptions options;
    options.name = settings.name;
    options.capacity_bytes = settings.capacity_bytes;
    options.numa_node = settings.numa_node;
    options.ecc = settings.ecc;
    return OpenWarmTier(options);
  }
  CxlTierOptions options;
  options.name = settings.name;
  options.capacity_bytes = settings.capacity_bytes;
  options.numa_node = settings.numa_node;
  options.ecc = settings.ecc;
  (IsDevicePath(settings.path) ? options.dax_device : options.file) = settings.path;
  return OpenCxlTier(options);
}

std::string IndexDirectory(const TierSettings& settings) { return settings.path + "/index"; }

// The log is the truth: an index that cannot be read is made anew from it.
absl::Status RemoveDamagedIndex(const TierSettings& settings, const absl::Status& damage) {
  Log(LogLevel::kWarning, "the index of a cold tier is damaged and is rebuilt from the log",
      {{"tier", settings.name}, {"error", Message(damage)}});
  return DestroyRocksDbIndex(IndexDirectory(settings));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TierDirectoryLock>> TierDirectoryLock::Acquire(const std::string& directory) {
  // Of the directory itself: a file could not be made on a disk that is full.
  int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, "open " + directory);
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return std::unique_ptr<TierDirectoryLock>(new TierDirectoryLock(fd));
  int error = errno;
  ::close(fd);
  if (error == EWOULDBLOCK) return AlreadyExists("another instance uses {}", directory);
  return ErrnoStatus(error, "lock " + directory);
}

TierDirectoryLock::~TierDirectoryLock() { ::close(fd_); }

namespace {

absl::Status RecoverCold(const TierSettings& settings, Executor* executor, const Clock* clock, OpenedTier* opened) {
  auto notice = [name = settings.name](std::string_view text) {
    Log(LogLevel::kWarning, "notice of a tier's device", {{"tier", name}, {"notice", text}});
  };
  DirectoryOptions directory;
  directory.directory = settings.path + "/log";
  directory.notice = notice;
  FIRN_ASSIGN_OR_RETURN(auto device, OpenDevice(directory, IoBackend::kAutomatic));
  RocksDbOptions index_options;
  index_options.directory = IndexDirectory(settings);
  FIRN_ASSIGN_OR_RETURN(auto index, OpenRocksDbIndex(index_options));
  ColdOptions options;
  options.name = settings.name;
  options.capacity_bytes = settings.capacity_bytes;
  options.staging_bytes = options.read_bytes = PoolBytesFor(settings.capacity_bytes);
  // Reclaiming goes by whole segments: a small tier has small ones, so that it has enough to choose from.
  while (options.segment_bytes > kMiB && options.segment_bytes * 32 > options.capacity_bytes)
    options.segment_bytes /= 2;
  options.executor = executor;
  options.clock = clock;
  options.notice = notice;
  options.ecc = settings.ecc;
  ColdRecovery recovery;
  recovery.on_copy = [opened](RecoveredCopy copy) { opened->copies.push_back(std::move(copy)); };
  recovery.on_fact = [opened](RecoveredFact fact) { opened->facts.push_back(std::move(fact)); };
  FIRN_ASSIGN_OR_RETURN(auto tier,
                        ColdTier::Open(options, std::move(device), std::move(index), recovery, &opened->report));
  opened->cold = tier.get();
  opened->config = ConfigOf(settings, std::move(tier));
  return absl::OkStatus();
}

absl::StatusOr<OpenedTier> OpenCold(const TierSettings& settings, Executor* executor, const Clock* clock) {
  OpenedTier opened;
  FIRN_RETURN_IF_ERROR(MakeDirectories(settings.path));
  FIRN_ASSIGN_OR_RETURN(opened.lock, TierDirectoryLock::Acquire(settings.path));
  absl::Status recovered = RecoverCold(settings, executor, clock, &opened);
  if (recovered.code() == absl::StatusCode::kDataLoss) {
    // An index that opens may still turn out damaged when its rows are read. What it told is told anew.
    opened.copies.clear();
    opened.facts.clear();
    opened.report = ColdRecoveryReport();
    FIRN_RETURN_IF_ERROR(RemoveDamagedIndex(settings, recovered));
    recovered = RecoverCold(settings, executor, clock, &opened);
  }
  FIRN_RETURN_IF_ERROR(recovered);
  return opened;
}

}  // namespace

namespace {

absl::StatusOr<OpenedTier> OpenGpu(const TierSettings& settings, const std::vector<const ArenaTier*>& arenas,
                                   Executor* executor) {
  GpuTierOptions options;
  options.name = settings.name;
  options.device = settings.gpu_device;
  options.capacity_bytes = settings.capacity_bytes;
  options.staging_bytes = settings.staging_bytes;
  options.scratch_bytes = settings.scratch_bytes;
  options.executor = executor;
  options.start =
      StartProgram(GpuProgram(), settings.gpu_is_cpu ? std::vector<std::string>{"--cpu"} : std::vector<std::string>{});
  options.notice = [name = settings.name](const std::string& text) {
    Log(LogLevel::kWarning, "notice of a GPU", {{"tier", name}, {"notice", text}});
  };
  for (const ArenaTier* arena : arenas) {
    // Memory without a descriptor cannot be mapped by another process: its tier gets codes by way of staging.
    if (arena->region().fd() < 0) continue;
    options.regions.push_back(RegionOf(arena));
  }
  FIRN_ASSIGN_OR_RETURN(auto tier, GpuTier::Open(std::move(options)));
  OpenedTier opened;
  opened.gpu = tier.get();
  opened.config = ConfigOf(settings, std::move(tier));
  return opened;
}

}  // namespace

absl::StatusOr<OpenedTier> OpenTier(const TierSettings& settings, const std::vector<const ArenaTier*>& arenas,
                                    Executor* executor, const Clock* clock) {
  if (settings.medium == Medium::kGpu) return OpenGpu(settings, arenas, executor);
  if (settings.medium == Medium::kNvme) return OpenCold(settings, executor, clock);
  FIRN_ASSIGN_OR_RETURN(auto arena, OpenArena(settings));
  OpenedTier opened;
  opened.arena = arena.get();
  opened.config = ConfigOf(settings, std::move(arena));
  return opened;
}

}  // namespace firn
