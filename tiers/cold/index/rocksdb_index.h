// The location index in RocksDB: a bounded one, since it is only written to while the daemon runs and read when it
// starts.
//
// The write-ahead log is not synced for each batch; the segment log is the truth and is replayed. RocksDB's own files
// are small on purpose (no preallocation, a small cache, small write buffers), because they count in the tier's byte
// budget. It keeps no log of its own and does not recover from errors by itself: after a write that failed no more are
// taken until Reopen. Threads: as KeyValueIndex; RocksDB's threads call nothing of the caller's. Errors: DataLoss where
// the database is corrupt (the caller removes it and rebuilds from the log).
#pragma once

#include <memory>
#include <string>

#include "tiers/cold/index/key_value_index.h"

namespace rocksdb {
class Env;
}

namespace firn {

struct RocksDbOptions {
  std::string directory;
  uint64_t memory_bytes = uint64_t{32} << 20;  // Write buffers and cache together.
  rocksdb::Env* env = nullptr;                 // The files it lies in; null: those of the system. Outlives the index.
};

absl::StatusOr<std::unique_ptr<KeyValueIndex>> OpenRocksDbIndex(const RocksDbOptions& options);
// Removes the database and everything in its directory.
absl::Status DestroyRocksDbIndex(const std::string& directory);

}  // namespace firn
