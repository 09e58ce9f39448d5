// The index in RocksDB on a disk that takes no writes: no call ends the process, and all is well once there is room.
//
// The library of Debian, for one, is built with its assertions on; what ends in a status elsewhere is a crash there.
#include "tiers/cold/index/rocksdb_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/env.h>
#include <rocksdb/file_system.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "base/status.h"
#include "base/units.h"

namespace firn {
namespace {

namespace fs = std::filesystem;
using rocksdb::FSWritableFile;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

// Room for so many more writes; none that fails takes anything.
class Room {
 public:
  void Set(int64_t writes) { writes_left_ = writes; }
  bool Take() { return writes_left_.fetch_sub(1) > 0; }
  bool full() const { return writes_left_ <= 0; }

 private:
  std::atomic<int64_t> writes_left_{INT64_MAX / 2};
};

class FileOfFullDisk final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  FileOfFullDisk(std::unique_ptr<FSWritableFile> file, Room* room)
      : FSWritableFileOwnerWrapper(std::move(file)), room_(room) {}
  IOStatus Append(const rocksdb::Slice& data, const IOOptions& options, IODebugContext* debug) override {
    return room_->Take() ? FSWritableFileOwnerWrapper::Append(data, options, debug) : IOStatus::NoSpace("full");
  }
  IOStatus Append(const rocksdb::Slice& data, const IOOptions& options, const rocksdb::DataVerificationInfo& check,
                  IODebugContext* debug) override {
    return room_->Take() ? FSWritableFileOwnerWrapper::Append(data, options, check, debug) : IOStatus::NoSpace("full");
  }
  IOStatus Sync(const IOOptions& options, IODebugContext* debug) override {
    return room_->Take() ? FSWritableFileOwnerWrapper::Sync(options, debug) : IOStatus::NoSpace("full");
  }

 private:
  Room* const room_;
};

// The system's files. New ones can be made on a full disk: that takes no data block.
class FullDisk final : public rocksdb::FileSystemWrapper {
 public:
  explicit FullDisk(Room* room) : FileSystemWrapper(rocksdb::FileSystem::Default()), room_(room) {}
  const char* Name() const override { return "FullDisk"; }
  IOStatus NewWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                           std::unique_ptr<FSWritableFile>* file, IODebugContext* debug) override {
    IOStatus status = FileSystemWrapper::NewWritableFile(name, options, file, debug);
    if (status.ok()) *file = std::make_unique<FileOfFullDisk>(std::move(*file), room_);
    return status;
  }
  IOStatus GetFreeSpace(const std::string& path, const IOOptions& options, uint64_t* bytes,
                        IODebugContext* debug) override {
    IOStatus status = FileSystemWrapper::GetFreeSpace(path, options, bytes, debug);
    if (room_->full()) *bytes = 0;
    return status;
  }
  // In files of this disk, not of the one below it.
  IOStatus NewLogger(const std::string& name, const IOOptions& options, std::shared_ptr<rocksdb::Logger>* logger,
                     IODebugContext* debug) override {
    return FileSystem::NewLogger(name, options, logger, debug);
  }

 private:
  Room* const room_;
};

class RocksDbIndexTest : public ::testing::Test {
 protected:
  RocksDbIndexTest() {
    std::string pattern = (fs::temp_directory_path() / "firn-index-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    // The least there is of write buffers, so that they are flushed in the background all the time.
    auto opened = OpenRocksDbIndex({.directory = folder_ + "/index", .memory_bytes = 64 * kKiB, .env = env_.get()});
    EXPECT_TRUE(opened.ok()) << opened.status();
    index_ = *std::move(opened);
  }
  ~RocksDbIndexTest() override {
    index_ = nullptr;
    fs::remove_all(folder_);
  }

  absl::Status PutOne(int number) {
    IndexBatch batch;
    batch.Put("L" + std::to_string(number % 500), std::to_string(number) + std::string(4 * kKiB, 'x'));
    return index_->Apply(batch);
  }
  // The first write that is refused.
  absl::Status PutUntilRefused(int* number) {
    absl::Status status;
    for (int end = *number + 5000; status.ok() && *number < end;) status = PutOne((*number)++);
    return status;
  }

  Room room_;
  std::unique_ptr<rocksdb::Env> env_ = rocksdb::NewCompositeEnv(std::make_shared<FullDisk>(&room_));
  std::string folder_;
  std::unique_ptr<KeyValueIndex> index_;
};

TEST_F(RocksDbIndexTest, reopens_in_vain_on_a_full_disk_and_well_when_it_has_room) {
  int number = 0;
  ASSERT_TRUE(PutOne(number++).ok());
  room_.Set(0);
  EXPECT_TRUE(absl::IsResourceExhausted(PutOne(number)));
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(index_->Reopen().ok());
  EXPECT_TRUE(absl::IsUnavailable(PutOne(number)));
  room_.Set(INT64_MAX / 2);
  absl::Status reopened = index_->Reopen();
  ASSERT_TRUE(reopened.ok()) << reopened;
  auto first = index_->Get("L0");
  EXPECT_TRUE(first.ok() && first->has_value()) << first.status();
  EXPECT_TRUE(PutOne(number).ok());
}

TEST_F(RocksDbIndexTest, a_disk_that_fills_up_after_a_while) {
  int number = 0;
  ASSERT_TRUE(PutOne(number++).ok());
  room_.Set(0);
  // Not at once, or RocksDB's own log would not be written to yet.
  std::this_thread::sleep_for(std::chrono::milliseconds(5500));
  EXPECT_TRUE(absl::IsResourceExhausted(PutOne(number)));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_TRUE(absl::IsUnavailable(PutOne(number)));
  room_.Set(INT64_MAX / 2);
  ASSERT_TRUE(index_->Reopen().ok());
  EXPECT_TRUE(PutOne(number).ok());
}

// Nothing comes back by itself: what was written in between would be missing behind it.
TEST_F(RocksDbIndexTest, takes_nothing_before_it_is_reopened) {
  int number = 0;
  room_.Set(0);
  EXPECT_TRUE(absl::IsResourceExhausted(PutOne(number)));
  room_.Set(INT64_MAX / 2);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_FALSE(PutOne(number).ok());
  ASSERT_TRUE(index_->Reopen().ok());
  EXPECT_TRUE(PutOne(number).ok());
}

// Whatever write is the first that fails: of the write-ahead log, of a table, of the manifest, here or while it opens.
TEST_F(RocksDbIndexTest, any_write_may_be_the_first_that_fails) {
  constexpr int kRounds = 12;
  int number = 0;
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(round);
    room_.Set(5 * round);
    absl::Status refused = PutUntilRefused(&number);
    ASSERT_TRUE(absl::IsResourceExhausted(refused) || absl::IsUnavailable(refused)) << refused;
    EXPECT_TRUE(absl::IsUnavailable(index_->Sync()));
    room_.Set(3 * round);  // Some open, some do not.
    absl::Status reopened = index_->Reopen();
    for (int i = 0; reopened.ok() && i < 5; ++i) reopened = PutOne(number++);
    room_.Set(INT64_MAX / 2);
    reopened = index_->Reopen();
    ASSERT_TRUE(reopened.ok()) << reopened;
    IndexBatch marker;
    marker.Put("marker", std::to_string(round));
    ASSERT_TRUE(index_->Apply(marker).ok());
    ASSERT_TRUE(index_->Sync().ok());
    auto marked = index_->Get("marker");
    ASSERT_TRUE(marked.ok() && marked->has_value());
    EXPECT_EQ(**marked, std::to_string(round));
  }
}

}  // namespace
}  // namespace firn
