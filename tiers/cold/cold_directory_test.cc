// The cold tier on a real directory with RocksDB: kills, budgets as `du` sees them, a full file system, a lost or
// corrupt index.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "base/status.h"
#include "base/units.h"
#include "tiers/cold/open_cold_tier.h"
#include "tiers/conformance/test_blocks.h"
#include "tiers/conformance/tier_conformance.h"

namespace firn {
namespace {

namespace fs = std::filesystem;

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (fs::temp_directory_path() / "firn-cold-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string path() const { return path_; }

 private:
  std::string path_;
};

uint64_t DiskUse(const std::string& directory) {
  uint64_t bytes = 0;
  std::error_code error;
  for (auto entry = fs::recursive_directory_iterator(directory, error);
       !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    struct stat info {};
    if (lstat(entry->path().c_str(), &info) == 0) bytes += static_cast<uint64_t>(info.st_blocks) * 512;
  }
  return bytes;
}

EncodedBlock Block(uint64_t number, uint32_t kib) {
  TestBlockSpec spec{
      "block", {.layers = 4, .heads = 2, .k_width = 64, .v_width = 64, .tokens = kib}, CodecFamily::kNested};
  return MakeTestBlock(spec, TestIdentity(number), number);
}

// A tier on a directory, with threads of its own.
class Rig final : public TierHarness {
 public:
  explicit Rig(std::string directory, uint64_t capacity_bytes = 64 * kMiB) : executor_(2) {
    where.directory = std::move(directory);
    where.index_memory_bytes = kMiB;
    options.capacity_bytes = capacity_bytes;
    options.segment_bytes = kMiB;
    options.chunk_bytes = 128 * kKiB;
    options.staging_bytes = options.read_bytes = 32 * kMiB;
    options.executor = &executor_;
    options.clock = Clock::Real();
    options.probe_interval_ms = 200;
  }
  ~Rig() override { CloseTier(); }
  absl::Status Open() {
    recovered.clear();
    ColdRecovery recovery;
    recovery.on_copy = [this](RecoveredCopy copy) { recovered.push_back(std::move(copy)); };
    FIRN_ASSIGN_OR_RETURN(opened, OpenColdTier(where, options, recovery));
    return absl::OkStatus();
  }
  void CloseTier() {
    recovered.clear();
    opened.tier.reset();
    opened.lock.reset();
  }
  absl::Status Close() {
    Awaited<absl::Status> closed;
    opened.tier->Close(closed.Done());
    absl::Status status = closed.Wait(this).value_or(InternalError("never closed"));
    CloseTier();
    return status;
  }
  Tier& tier() override { return *opened.tier; }
  absl::StatusOr<CopyPtr> Put(const EncodedBlock& block) {
    FIRN_ASSIGN_OR_RETURN(std::unique_ptr<Draft> draft, tier().Reserve(block.Layout(block.present)));
    tier().Fill(draft.get(), block);
    Awaited<absl::StatusOr<CopyPtr>> copy;
    tier().Commit(std::move(draft), block.header, {}, copy.Done());
    auto result = copy.Wait(this);
    if (!result.has_value()) return InternalError("the commit never completed");
    return *std::move(result);
  }
  absl::StatusOr<EncodedBlock> Get(const CopyPtr& copy, const Identity& identity) {
    Awaited<absl::StatusOr<EncodedBlock>> block;
    tier().Read(copy, identity, RunMask::All(), block.Done());
    auto result = block.Wait(this);
    if (!result.has_value()) return InternalError("the read never completed");
    return *std::move(result);
  }

  ColdDirectoryOptions where;
  ColdOptions options;
  OpenedColdTier opened;
  std::vector<RecoveredCopy> recovered;

 private:
  ThreadPoolExecutor executor_;
};

// Writes `count` blocks with many on their way at once; returns how many were acknowledged.
uint64_t PutMany(Rig* rig, uint64_t first, uint64_t count, uint32_t kib) {
  std::atomic<uint64_t> in_flight{0}, stored{0};
  for (uint64_t i = first; i < first + count; ++i) {
    EncodedBlock block = Block(i, kib);
    for (int tries = 0; tries < 20'000; ++tries) {
      auto draft = rig->tier().Reserve(block.Layout(block.present));
      if (!draft.ok()) {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        continue;
      }
      rig->tier().Fill(draft->get(), block);
      ++in_flight;
      rig->tier().Commit(*std::move(draft), block.header, {}, [&](auto copy) {
        stored += copy.ok() ? 1 : 0;
        --in_flight;
      });
      break;
    }
  }
  while (in_flight > 0) std::this_thread::yield();
  return stored;
}

void ExpectRecovered(Rig* rig, uint64_t count, uint32_t kib) {
  EXPECT_EQ(rig->recovered.size(), count);
  for (size_t i = 0; i < rig->recovered.size(); i += 37) {
    const RecoveredCopy& copy = rig->recovered[i];
    auto read = rig->Get(copy.copy, copy.identity);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(SameBlock(*read, Block(copy.identity.generation, kib)));
  }
}

TEST(ColdDirectory, C24_tenThousandBlocksSurviveStopsKillsAndALostIndex) {
  TemporaryDirectory directory;
  constexpr uint64_t kBlocks = 10'000;
  std::string path = directory.path() + "/cold";
  pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Rig rig(path, 128 * kMiB);
    bool good = rig.Open().ok() && PutMany(&rig, 0, kBlocks, 2) == kBlocks;
    // Ended as by kill -9, without any closing, in the middle of its life.
    if (good) raise(SIGKILL);
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status)) << "the writer failed";
  Rig rig(path, 128 * kMiB);
  ASSERT_TRUE(rig.Open().ok());
  ExpectRecovered(&rig, kBlocks, 2);
  ASSERT_TRUE(rig.Close().ok());
  ASSERT_TRUE(rig.Open().ok());
  EXPECT_EQ(rig.opened.report.replayed_extents, 0u);
  ExpectRecovered(&rig, kBlocks, 2);
  rig.CloseTier();
  fs::remove_all(path + "/index");
  ASSERT_TRUE(rig.Open().ok());
  EXPECT_TRUE(rig.opened.report.rebuilt);
  ExpectRecovered(&rig, kBlocks, 2);
  // Bytes of the database itself are damaged: found, said, made anew.
  ASSERT_TRUE(rig.Close().ok());
  for (const auto& entry : fs::directory_iterator(path + "/index")) {
    std::string name = entry.path().filename().string();
    if (!name.starts_with("MANIFEST") && !name.ends_with(".sst")) continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(entry.file_size() / 2));
    for (int i = 0; i < 64; ++i) file.put('\x5a');
  }
  std::vector<std::string> notices;
  rig.options.notice = [&](std::string_view text) { notices.emplace_back(text); };
  ASSERT_TRUE(rig.Open().ok());
  EXPECT_TRUE(rig.opened.report.rebuilt);
  EXPECT_FALSE(notices.empty());
  ExpectRecovered(&rig, kBlocks, 2);
  rig.CloseTier();
  fs::remove_all(path + "/segments");
  ASSERT_TRUE(rig.Open().ok());
  EXPECT_TRUE(rig.recovered.empty());
  EXPECT_TRUE(rig.Put(Block(1, 2)).ok());
}

TEST(ColdDirectory, C23_duStaysWithinTheCapacityThroughKills) {
  TemporaryDirectory directory;
  std::string path = directory.path() + "/cold";
  constexpr uint64_t kCapacity = 64 * kMiB;
  uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  uint64_t most = 0;
  for (int round = 0; round < 5; ++round) {
    pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      Rig rig(path, kCapacity);
      if (!rig.Open().ok()) _exit(1);
      PutMany(&rig, static_cast<uint64_t>(round) * 100'000, 2500, round % 2 == 0 ? 30 : 150);
      _exit(rig.Close().ok() ? 0 : 2);
    }
    auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(800 + random() % 1500);
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
      most = std::max(most, DiskUse(path));
      if (std::chrono::steady_clock::now() > end) kill(child, SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ASSERT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << "round " << round << ": " << WEXITSTATUS(status);
    std::ofstream(path + "/segments/deadbeef.seg.new") << "left by a crash";
    Rig rig(path, kCapacity);
    ASSERT_TRUE(rig.Open().ok());
    EXPECT_FALSE(fs::exists(path + "/segments/deadbeef.seg.new"));
    uint64_t use = DiskUse(path);
    most = std::max(most, use);
    TierUsage usage = rig.tier().Usage();
    // The tier counts at least what du does; what it counts on top is what the index may take while it is rewritten.
    EXPECT_GE(usage.used_bytes + 256 * kKiB, use);
    EXPECT_LE(usage.used_bytes, use + 8 * kMiB);
    for (size_t i = 0; i < rig.recovered.size(); i += 97) {
      const RecoveredCopy& copy = rig.recovered[i];
      auto read = rig.Get(copy.copy, copy.identity);
      if (!read.ok()) continue;
      EXPECT_EQ(IntactRuns(*read), read->present);
    }
  }
  EXPECT_LE(most, kCapacity + kMiB);
  EXPECT_GT(most, kCapacity / 2);
}

TEST(ColdDirectory, ASecondDaemonIsRefused) {
  TemporaryDirectory directory;
  Rig first(directory.path() + "/cold"), second(directory.path() + "/cold");
  ASSERT_TRUE(first.Open().ok());
  absl::Status status = second.Open();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  first.CloseTier();
  EXPECT_TRUE(second.Open().ok());
}

TEST(ColdDirectory, C54_preadServesWhereAsked) {
  TemporaryDirectory directory;
  Rig rig(directory.path() + "/cold");
  rig.where.io = IoBackend::kPread;
  ASSERT_TRUE(rig.Open().ok());
  EXPECT_EQ(rig.opened.tier->device().backend(), "pread");
  EncodedBlock block = Block(1, 300);
  auto copy = rig.Put(block);
  ASSERT_TRUE(copy.ok());
  EXPECT_TRUE(SameBlock(*rig.Get(*copy, block.header->identity), block));
}

TEST(ColdDirectory, C56_closingIsQuickAndTheNextStartIsClean) {
  TemporaryDirectory directory;
  Rig rig(directory.path() + "/cold");
  ASSERT_TRUE(rig.Open().ok());
  ASSERT_EQ(PutMany(&rig, 0, 200, 30), 200u);
  ASSERT_TRUE(rig.Close().ok());
  ASSERT_TRUE(rig.Open().ok());
  EXPECT_EQ(rig.opened.report.replayed_extents, 0u);
  EXPECT_EQ(rig.opened.report.torn_extents, 0u);
  EXPECT_EQ(rig.recovered.size(), 200u);
}

// A small file system in a file, or nothing where this process may not have one.
class LoopFileSystem {
 public:
  explicit LoopFileSystem(const std::string& directory, uint64_t bytes) : mount_(directory + "/mount") {
    std::string image = directory + "/image";
    std::ofstream(image).close();
    fs::resize_file(image, bytes);
    fs::create_directory(mount_);
    std::string make = "mkfs.ext4 -q -F -m 0 '" + image + "' >/dev/null 2>&1 && mount -o loop '" + image + "' '" +
                       mount_ + "' >/dev/null 2>&1";
    mounted_ = geteuid() == 0 && std::system(make.c_str()) == 0;
  }
  ~LoopFileSystem() {
    if (mounted_) umount2(mount_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  std::string path() const { return mount_; }

 private:
  std::string mount_;
  bool mounted_ = false;
};

TEST(ColdDirectory, C25_aFullFileSystemComesBackByItself) {
  for (bool empty : {false, true}) {
    TemporaryDirectory directory;
    LoopFileSystem loop(directory.path(), 96 * kMiB);
    if (!loop.mounted()) GTEST_SKIP() << "a loop device cannot be mounted here (root and /dev/loop are needed)";
    Rig rig(loop.path() + "/cold", 64 * kMiB);
    ASSERT_TRUE(rig.Open().ok());
    std::vector<std::pair<EncodedBlock, CopyPtr>> kept;
    for (uint64_t i = 0; i < 20 && !empty; ++i) {
      EncodedBlock block = Block(i, 30);
      kept.emplace_back(block, *rig.Put(block));
    }
    std::string filler = loop.path() + "/filler";
    int fd = open(filler.c_str(), O_CREAT | O_WRONLY, 0600);
    std::vector<char> zeros(64 * kKiB);
    for (size_t bytes = zeros.size(); bytes >= 1; bytes /= 2) {
      while (write(fd, zeros.data(), bytes) == static_cast<ssize_t>(bytes)) {
      }
    }
    close(fd);
    absl::Status refused;
    for (uint64_t i = 1000; i < 3000 && refused.ok(); ++i) refused = rig.Put(Block(i, 100)).status();
    EXPECT_FALSE(refused.ok());
    EXPECT_EQ(rig.Put(Block(5000, 100)).status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(rig.opened.tier->Health().state, ColdState::kReadOnly) << rig.opened.tier->Health().reason;
    for (auto& [block, copy] : kept) {
      auto read = rig.Get(copy, block.header->identity);
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_TRUE(SameBlock(*read, block));
    }
    fs::remove(filler);
    auto freed = std::chrono::steady_clock::now();
    while (rig.opened.tier->Health().state != ColdState::kOk &&
           std::chrono::steady_clock::now() - freed < std::chrono::seconds(30)) {
      rig.opened.tier->Tick();
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    EXPECT_EQ(rig.opened.tier->Health().state, ColdState::kOk) << rig.opened.tier->Health().reason;
    EncodedBlock last = Block(9000, 30);
    ASSERT_TRUE(rig.Put(last).ok());
    ASSERT_TRUE(rig.Close().ok());
    ASSERT_TRUE(rig.Open().ok());
    bool there = false;
    for (const RecoveredCopy& copy : rig.recovered) there |= copy.identity == last.header->identity;
    EXPECT_TRUE(there);
    rig.CloseTier();
  }
}

}  // namespace
}  // namespace firn
