// Opens a cold tier on a directory: its lock, its segments, its RocksDB.
//
//   DIR/LOCK       held while a daemon uses the directory      DIR/segments/  the log      DIR/index/  RocksDB
// A database that is missing or corrupt is made anew from the log, and that is said.
// Errors: AlreadyExists while another process holds the lock; InvalidArgument for options; the errno's status
// otherwise.
#pragma once

#include <memory>
#include <string>

#include "tiers/cold/cold_tier.h"
#include "tiers/cold/device/open_device.h"

namespace firn {

struct ColdDirectoryOptions {
  std::string directory;  // Created if missing.
  IoBackend io = IoBackend::kAutomatic;
  uint32_t io_depth = 32;
  uint64_t index_memory_bytes = uint64_t{32} << 20;
};

// The tier, and the lock that it needs; destroy the tier first (the order of the members does).
class DirectoryLock;
struct OpenedColdTier {
  std::shared_ptr<DirectoryLock> lock;
  std::unique_ptr<ColdTier> tier;
  ColdRecoveryReport report;
};

absl::StatusOr<OpenedColdTier> OpenColdTier(const ColdDirectoryOptions& directory, const ColdOptions& options,
                                            const ColdRecovery& recovery);

}  // namespace firn
