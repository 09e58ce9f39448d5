// The index in RocksDB on a disk that is full, fails or can only be read: no call ends the process, and all is well
// once the disk is.
//
// The library of Debian, for one, is built with its assertions on; what ends in a status elsewhere is a crash there.
#include "tiers/cold/index/rocksdb_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/env.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "base/status.h"
#include "base/units.h"
#include "tiers/cold/index/faulty_file_system.h"

namespace firn {
namespace {

namespace fs = std::filesystem;

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

  FileFaults faults_;
  std::unique_ptr<rocksdb::Env> env_ = NewFaultyEnv(&faults_);
  std::string folder_;
  std::unique_ptr<KeyValueIndex> index_;
};

TEST_F(RocksDbIndexTest, reopens_in_vain_on_a_full_disk_and_well_when_it_has_room) {
  int number = 0;
  ASSERT_TRUE(PutOne(number++).ok());
  faults_.FailAfter(0, FileFault::kNoSpace);
  EXPECT_TRUE(absl::IsResourceExhausted(PutOne(number)));
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(index_->Reopen().ok());
  EXPECT_TRUE(absl::IsUnavailable(PutOne(number)));
  faults_.Mend();
  absl::Status reopened = index_->Reopen();
  ASSERT_TRUE(reopened.ok()) << reopened;
  auto first = index_->Get("L0");
  EXPECT_TRUE(first.ok() && first->has_value()) << first.status();
  EXPECT_TRUE(PutOne(number).ok());
}

TEST_F(RocksDbIndexTest, a_disk_that_fills_up_after_a_while) {
  int number = 0;
  ASSERT_TRUE(PutOne(number++).ok());
  faults_.FailAfter(0, FileFault::kNoSpace);
  // Not at once, or RocksDB's own log would not be written to yet.
  std::this_thread::sleep_for(std::chrono::milliseconds(5500));
  EXPECT_TRUE(absl::IsResourceExhausted(PutOne(number)));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_TRUE(absl::IsUnavailable(PutOne(number)));
  faults_.Mend();
  ASSERT_TRUE(index_->Reopen().ok());
  EXPECT_TRUE(PutOne(number).ok());
}

// Nothing comes back by itself: what was written in between would be missing behind it.
TEST_F(RocksDbIndexTest, takes_nothing_before_it_is_reopened) {
  int number = 0;
  faults_.FailAfter(0, FileFault::kNoSpace);
  EXPECT_TRUE(absl::IsResourceExhausted(PutOne(number)));
  faults_.Mend();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_FALSE(PutOne(number).ok());
  ASSERT_TRUE(index_->Reopen().ok());
  EXPECT_TRUE(PutOne(number).ok());
}

// Whatever call is the first that fails: of the write-ahead log, of a table, of the manifest, here or while it opens.
TEST_F(RocksDbIndexTest, any_call_may_be_the_first_that_fails) {
  struct Case {
    FileFault fault;
    bool reads;
    const char* says;
  };
  for (const Case& c :
       {Case{FileFault::kNoSpace, false, "full"}, Case{FileFault::kIoError, false, "writes fail"},
        Case{FileFault::kIoError, true, "reads and writes fail"}, Case{FileFault::kReadOnly, false, "read-only"}}) {
    constexpr uint64_t kRounds = 6;
    int number = 0;
    for (uint64_t round = 0; round < kRounds; ++round) {
      SCOPED_TRACE(testing::Message() << c.says << ", round " << round);
      faults_.FailAfter(5 * round, c.fault, c.reads);
      absl::Status refused = PutUntilRefused(&number);
      ASSERT_TRUE(absl::IsResourceExhausted(refused) || absl::IsUnavailable(refused)) << refused;
      EXPECT_TRUE(absl::IsUnavailable(index_->Sync()));
      for (int i = 0; i < 500; i += 50) {
        auto read = index_->Get("L" + std::to_string(i));
        EXPECT_TRUE(read.ok() || absl::IsUnavailable(read.status())) << read.status();
      }
      absl::Status visited = index_->Visit("L", "M", [](std::string_view, std::string_view) { return true; });
      EXPECT_TRUE(visited.ok() || absl::IsUnavailable(visited)) << visited;
      faults_.FailAfter(3 * round, c.fault, c.reads);  // Some open, some do not.
      absl::Status reopened = index_->Reopen();
      for (int i = 0; reopened.ok() && i < 5; ++i) reopened = PutOne(number++);
      faults_.Mend();
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
    EXPECT_GT(faults_.refused(), kRounds);
  }
}

}  // namespace
}  // namespace firn
