#include "tiers/cold/index/rocksdb_index.h"

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/listener.h>
#include <rocksdb/options.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "base/status.h"
#include "base/units.h"

namespace firn {
namespace {

absl::Status ToStatus(const rocksdb::Status& status, const std::string& what) {
  if (status.ok()) return absl::OkStatus();
  std::string text = fmt::format("{}: {}", what, status.ToString());
  if (status.IsNoSpace()) return absl::ResourceExhaustedError(text);
  if (status.IsCorruption()) return absl::DataLossError(text);
  // Incomplete: a write that waited for a flush, and the flush has failed.
  if (status.IsIOError() || status.IsIncomplete()) return absl::UnavailableError(text);
  return absl::InternalError(text);
}

// RocksDB's own log would lie on the medium of the index, and the library that distributions build with its assertions
// on ends the process when it writes to a log of which a write has failed: on a full disk that is the second line.
// What the lines say of errors the statuses of calls say too.
class NoLog final : public rocksdb::Logger {
 public:
  NoLog() : Logger(rocksdb::InfoLogLevel::HEADER_LEVEL) {}
  void Logv(const rocksdb::InfoLogLevel, const char*, va_list) override {}
  void Logv(const char*, va_list) override {}
};

// When there is no space RocksDB waits for some on a thread of its own, and closing the database can wait for that
// thread. It also comes back without a new write-ahead log, whose next write then fails, or ends the process as above.
class NoRecovery final : public rocksdb::EventListener {
 public:
  void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason, rocksdb::Status, bool* recovers) override {
    *recovers = false;
  }
};

rocksdb::Slice ToSlice(std::string_view text) { return {text.data(), text.size()}; }

rocksdb::Options MakeOptions(const RocksDbOptions& options) {
  uint64_t buffer_bytes = std::max<uint64_t>(options.memory_bytes / 4, 64 * kKiB);
  rocksdb::Options out;
  out.create_if_missing = true;
  out.paranoid_checks = true;
  out.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;
  out.write_buffer_size = buffer_bytes;
  out.max_write_buffer_number = 2;
  out.max_total_wal_size = 2 * buffer_bytes;
  out.target_file_size_base = std::clamp<uint64_t>(buffer_bytes, kMiB, 8 * kMiB);
  out.max_compaction_bytes = 8 * out.target_file_size_base;
  out.level0_file_num_compaction_trigger = 4;
  out.compression = rocksdb::kNoCompression;  // Digests do not compress.
  out.max_background_jobs = 2;
  out.max_open_files = 64;
  out.allow_fallocate = false;
  out.manifest_preallocation_size = 64 * kKiB;
  out.max_manifest_file_size = kMiB;
  out.info_log = std::make_shared<NoLog>();
  out.stats_dump_period_sec = 0;
  out.persist_stats_to_disk = false;
  out.delete_obsolete_files_period_micros = 0;  // Freed space counts at once.
  out.enable_pipelined_write = false;
  // The cold tier reopens by itself, which also works where nothing is left to flush.
  out.max_bgerror_resume_count = 0;
  out.listeners.push_back(std::make_shared<NoRecovery>());
  if (options.env != nullptr) out.env = options.env;
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = rocksdb::NewLRUCache(options.memory_bytes / 4);
  table.cache_index_and_filter_blocks = true;
  table.block_size = 16 * kKiB;
  table.format_version = 5;
  out.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return out;
}

class RocksDbIndex final : public KeyValueIndex {
 public:
  explicit RocksDbIndex(const RocksDbOptions& options) : options_(options) {}

  absl::Status Open() {
    std::unique_lock lock(mu_);
    return OpenLocked();
  }

  absl::Status Apply(const IndexBatch& batch) override {
    std::shared_lock lock(mu_);
    FIRN_RETURN_IF_ERROR(CheckTakesWrites());
    rocksdb::WriteBatch writes;
    for (const IndexBatch::Op& op : batch.ops()) {
      switch (op.kind) {
        case IndexBatch::OpKind::kPut:
          writes.Put(op.key, op.value);
          break;
        case IndexBatch::OpKind::kDelete:
          writes.Delete(op.key);
          break;
        case IndexBatch::OpKind::kDeletePrefix:
          writes.DeleteRange(op.key, PrefixEnd(op.key));
          break;
      }
    }
    return Noted(ToStatus(db_->Write(rocksdb::WriteOptions(), &writes), "write to " + options_.directory));
  }

  absl::Status Sync() override {
    std::shared_lock lock(mu_);
    FIRN_RETURN_IF_ERROR(CheckTakesWrites());
    return Noted(ToStatus(db_->FlushWAL(true), "sync " + options_.directory));
  }

  absl::StatusOr<std::optional<std::string>> Get(const std::string& key) override {
    std::shared_lock lock(mu_);
    FIRN_RETURN_IF_ERROR(CheckOpen());
    std::string value;
    rocksdb::Status status = db_->Get(rocksdb::ReadOptions(), key, &value);
    if (status.IsNotFound()) return std::optional<std::string>();
    FIRN_RETURN_IF_ERROR(ToStatus(status, "read from " + options_.directory));
    return std::optional<std::string>(std::move(value));
  }

  absl::Status Visit(const std::string& first, const std::string& last, const Visitor& visit) override {
    std::shared_lock lock(mu_);
    FIRN_RETURN_IF_ERROR(CheckOpen());
    rocksdb::ReadOptions read;
    rocksdb::Slice bound = ToSlice(last);
    read.iterate_upper_bound = &bound;
    read.readahead_size = kMiB;
    read.fill_cache = false;
    std::unique_ptr<rocksdb::Iterator> rows(db_->NewIterator(read));
    for (rows->Seek(first); rows->Valid(); rows->Next()) {
      if (!visit({rows->key().data(), rows->key().size()}, {rows->value().data(), rows->value().size()})) break;
    }
    return ToStatus(rows->status(), "scan " + options_.directory);
  }

  absl::StatusOr<uint64_t> FileBytes() override {
    std::error_code error;
    uint64_t bytes = 0;
    for (auto entry = std::filesystem::recursive_directory_iterator(options_.directory, error);
         !error && entry != std::filesystem::recursive_directory_iterator(); entry.increment(error)) {
      struct stat info {};
      // A file may go while it is looked at.
      if (lstat(entry->path().c_str(), &info) == 0) bytes += static_cast<uint64_t>(info.st_blocks) * 512;
    }
    if (error) return ErrnoStatus(error.value(), "measure " + options_.directory);
    return bytes;
  }

  absl::Status Reopen() override {
    std::unique_lock lock(mu_);
    db_.reset();
    return OpenLocked();
  }

 private:
  absl::Status OpenLocked() {
    rocksdb::DB* db = nullptr;
    rocksdb::Status status = rocksdb::DB::Open(MakeOptions(options_), options_.directory, &db);
    FIRN_RETURN_IF_ERROR(ToStatus(status, "open " + options_.directory));
    db_.reset(db);
    failed_ = false;
    return absl::OkStatus();
  }
  absl::Status CheckOpen() const {
    if (db_ == nullptr) return Unavailable("{} is not open", options_.directory);
    return absl::OkStatus();
  }
  absl::Status CheckTakesWrites() const {
    FIRN_RETURN_IF_ERROR(CheckOpen());
    if (failed_)
      return Unavailable("{} takes no writes after one that failed, until it is reopened", options_.directory);
    return absl::OkStatus();
  }
  absl::Status Noted(absl::Status status) {
    if (!status.ok()) failed_ = true;
    return status;
  }

  const RocksDbOptions options_;
  std::shared_mutex mu_;             // Exclusive while the database is closed and opened.
  std::unique_ptr<rocksdb::DB> db_;  // Guarded by mu_.
  // A file of which a write has failed is not to be written to or synced any more: RocksDB asserts it.
  std::atomic<bool> failed_{false};
};

}  // namespace

absl::StatusOr<std::unique_ptr<KeyValueIndex>> OpenRocksDbIndex(const RocksDbOptions& options) {
  auto index = std::make_unique<RocksDbIndex>(options);
  FIRN_RETURN_IF_ERROR(index->Open());
  return std::unique_ptr<KeyValueIndex>(std::move(index));
}

absl::Status DestroyRocksDbIndex(const std::string& directory) {
  std::error_code error;
  std::filesystem::remove_all(directory, error);
  if (error) return ErrnoStatus(error.value(), "remove " + directory);
  return absl::OkStatus();
}

}  // namespace firn
