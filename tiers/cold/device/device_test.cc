// Every device behaves the same: one suite over memory, pread, io_uring, and over memory with faults that must not be
// seen.
#include "tiers/cold/device/device.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <mutex>
#include <random>
#include <thread>

#include "base/status.h"
#include "tiers/cold/device/aligned_buffer.h"
#include "tiers/cold/device/faulty_device.h"
#include "tiers/cold/device/memory_device.h"
#include "tiers/cold/device/posix_device.h"
#include "tiers/cold/device/uring_device.h"

namespace firn {
namespace {

using ::testing::HasSubstr;

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "firn-device-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_; }

 private:
  std::string path_;
};

AlignedBuffer Pattern(uint64_t bytes, uint64_t seed) {
  AlignedBuffer buffer(bytes);
  std::mt19937_64 random(seed);
  for (uint64_t at = 0; at < buffer.size(); at += 8) StoreLe<uint64_t>(buffer.data() + at, random());
  return buffer;
}

bool Same(const AlignedBuffer& a, const AlignedBuffer& b) {
  return a.size() == b.size() && std::equal(a.data(), a.data() + a.size(), b.data());
}

// A device under test and whatever it stands on.
struct Rig {
  std::unique_ptr<TemporaryDirectory> directory;
  std::unique_ptr<BlockDevice> base;
  std::unique_ptr<BlockDevice> device;
};

struct RigCase {
  const char* name;
  std::function<Rig()> make;
};

DirectoryOptions OptionsIn(const TemporaryDirectory& directory, uint32_t depth = 8) {
  DirectoryOptions options;
  options.directory = directory.path() + "/log";
  options.depth = depth;
  return options;
}

std::unique_ptr<BlockDevice> Uring(const DirectoryOptions& options) {
  auto device = UringDevice::Open(options);
  if (!device.ok()) return nullptr;
  return *std::move(device);
}

std::unique_ptr<BlockDevice> Stuttering(BlockDevice* base) {
  auto faulty = std::make_unique<FaultyDevice>(base, 7);
  FaultRates rates;
  rates.short_transfer = 0.4;
  rates.interrupted = rates.again = 0.1;
  faulty->SetRates(rates);
  return faulty;
}

const RigCase kCases[] = {
    {"memory",
     [] {
       return Rig{nullptr, nullptr, std::make_unique<MemoryDevice>(uint64_t{1} << 30)};
     }},
    {"pread",
     [] {
       Rig rig{std::make_unique<TemporaryDirectory>(), nullptr, nullptr};
       rig.device = *PosixDevice::Open(OptionsIn(*rig.directory));
       return rig;
     }},
    {"io_uring",
     [] {
       Rig rig{std::make_unique<TemporaryDirectory>(), nullptr, nullptr};
       rig.device = Uring(OptionsIn(*rig.directory));
       return rig;
     }},
    {"io_uring_depth_1",
     [] {
       Rig rig{std::make_unique<TemporaryDirectory>(), nullptr, nullptr};
       rig.device = Uring(OptionsIn(*rig.directory, 1));
       return rig;
     }},
    {"stuttering_memory",
     [] {
       Rig rig{nullptr, std::make_unique<MemoryDevice>(uint64_t{1} << 30), nullptr};
       rig.device = Stuttering(rig.base.get());
       return rig;
     }},
    {"stuttering_io_uring",
     [] {
       Rig rig{std::make_unique<TemporaryDirectory>(), nullptr, nullptr};
       rig.base = Uring(OptionsIn(*rig.directory));
       if (rig.base != nullptr) rig.device = Stuttering(rig.base.get());
       return rig;
     }},
};

class DeviceConformance : public ::testing::TestWithParam<RigCase> {
 protected:
  void SetUp() override {
    rig_ = GetParam().make();
    if (rig_.device == nullptr) GTEST_SKIP() << "io_uring is not to be had on this machine";
  }
  BlockDevice& device() { return *rig_.device; }
  Rig rig_;
};

TEST_P(DeviceConformance, KeepsWhatIsWritten) {
  FilePtr file = *device().Create("a", 4 << 20);
  EXPECT_EQ(file->size(), 4u << 20);
  EXPECT_GE(file->allocated_bytes(), 4u << 20);
  AlignedBuffer whole = Pattern(4 << 20, 1);
  ASSERT_TRUE(device().WriteBlocking(file, 0, whole.span()).ok());
  ASSERT_TRUE(device().SyncBlocking(file).ok());
  AlignedBuffer back(4 << 20);
  ASSERT_EQ(*device().ReadBlocking(file, 0, back.span()), back.size());
  EXPECT_TRUE(Same(whole, back));
  AlignedBuffer part(8192);
  ASSERT_EQ(*device().ReadBlocking(file, 1036288, part.span()), 8192u);
  EXPECT_TRUE(std::equal(part.data(), part.data() + 8192, whole.data() + 1036288));
}

TEST_P(DeviceConformance, NewFilesReadAsZeros) {
  FilePtr file = *device().Create("z", 64 << 10);
  AlignedBuffer back = Pattern(64 << 10, 2);
  ASSERT_EQ(*device().ReadBlocking(file, 0, back.span()), back.size());
  EXPECT_TRUE(Same(back, AlignedBuffer(64 << 10)));
}

TEST_P(DeviceConformance, ManyTransfersInFlightFromManyThreads) {
  constexpr int kThreads = 4, kEach = 64;
  constexpr uint64_t kBytes = 16 << 10;
  FilePtr file = *device().Create("m", kThreads * kEach * kBytes);
  AlignedBuffer source = Pattern(kThreads * kEach * kBytes, 3);
  std::atomic<int> left{kThreads * kEach}, failures{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    // The submitting threads end before their transfers do.
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        uint64_t at = static_cast<uint64_t>(t * kEach + i) * kBytes;
        device().Write(file, at, source.span().subspan(at, kBytes), [&](IoResult result) {
          if (!result.status.ok() || result.bytes != kBytes) ++failures;
          --left;
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  while (left > 0) std::this_thread::yield();
  EXPECT_EQ(failures, 0);
  AlignedBuffer back(source.size());
  ASSERT_EQ(*device().ReadBlocking(file, 0, back.span()), back.size());
  EXPECT_TRUE(Same(source, back));
}

TEST_P(DeviceConformance, RefusesMisalignmentAndBounds) {
  FilePtr file = *device().Create("b", 8192);
  AlignedBuffer buffer(16384);
  auto refused = [&](uint64_t offset, MutableByteSpan span) {
    return device().WriteBlocking(file, offset, span).code() == absl::StatusCode::kInvalidArgument &&
           device().ReadBlocking(file, offset, span).status().code() == absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused(512, buffer.span().first(4096)));
  EXPECT_TRUE(refused(0, buffer.span().first(100)));
  EXPECT_TRUE(refused(0, buffer.span().subspan(1, 4096)));
  EXPECT_TRUE(refused(8192, buffer.span().first(4096)));
  EXPECT_TRUE(refused(0, buffer.span()));
  EXPECT_TRUE(refused(0, MutableByteSpan()));
  EXPECT_FALSE(device().Create("c", 1000).ok());
  for (const char* name : {"", "../x", "a/b", ".hidden"}) EXPECT_FALSE(device().Create(name, 4096).ok()) << name;
  EXPECT_THAT(Message(device().WriteBlocking(file, 512, buffer.span().first(4096))), HasSubstr("512"));
}

TEST_P(DeviceConformance, ListsRemovesAndTruncates) {
  FilePtr a = *device().Create("a", 64 << 10);
  FilePtr b = *device().Create("b", 64 << 10);
  EXPECT_EQ(device().Create("a", 4096).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(device().List()->size(), 2u);
  ASSERT_TRUE(device().Truncate(b, 8192).ok());
  EXPECT_EQ(b->size(), 8192u);
  EXPECT_LT(b->allocated_bytes(), 32u << 10);
  AlignedBuffer buffer = Pattern(4096, 9);
  ASSERT_TRUE(device().WriteBlocking(a, 0, buffer.span()).ok());
  ASSERT_TRUE(device().Remove("a").ok());
  EXPECT_TRUE(device().Remove("a").ok());
  // Who has it open still reads it.
  AlignedBuffer back(4096);
  ASSERT_EQ(*device().ReadBlocking(a, 0, back.span()), 4096u);
  EXPECT_TRUE(Same(buffer, back));
  auto files = *device().List();
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0].name, "b");
  EXPECT_EQ(files[0].size_bytes, 8192u);
  EXPECT_EQ(device().Open("a").status().code(), absl::StatusCode::kNotFound);
  FilePtr again = *device().Open("b");
  EXPECT_EQ(again->size(), 8192u);
}

TEST_P(DeviceConformance, RegisteredMemoryWorksLikeAnyOther) {
  AlignedBuffer pool = Pattern(1 << 20, 4);
  device().RegisterBuffer(pool.span());
  FilePtr file = *device().Create("r", 1 << 20);
  ASSERT_TRUE(device().WriteBlocking(file, 0, pool.span()).ok());
  AlignedBuffer back(1 << 20);
  ASSERT_EQ(*device().ReadBlocking(file, 0, back.span()), back.size());
  EXPECT_TRUE(Same(pool, back));
  std::fill(pool.data(), pool.data() + pool.size(), 0);
  ASSERT_EQ(*device().ReadBlocking(file, 0, pool.span()), pool.size());
  EXPECT_TRUE(Same(pool, back));
  // The device goes before the memory does.
  file.reset();
  rig_.device.reset();
  rig_.base.reset();
}

INSTANTIATE_TEST_SUITE_P(All, DeviceConformance, ::testing::ValuesIn(kCases),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(Device, C27_shortTransfersResumeFromAnAlignedPoint) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    MemoryDevice memory(uint64_t{1} << 26);
    FaultyDevice device(&memory, seed);
    FaultRates rates;
    rates.short_transfer = 0.7;
    rates.interrupted = rates.again = 0.2;
    device.SetRates(rates);
    FilePtr file = *device.Create("s", 1 << 20);
    AlignedBuffer source = Pattern(1 << 20, seed);
    ASSERT_TRUE(device.WriteBlocking(file, 0, source.span()).ok());
    AlignedBuffer back(1 << 20);
    ASSERT_EQ(*device.ReadBlocking(file, 0, back.span()), back.size());
    ASSERT_TRUE(Same(source, back));
    EXPECT_GT(device.Counters().resumed, 0u);
  }
}

TEST(Device, C27_theEndOfAFileInsideABlockIsShortNotEndless) {
  for (uint64_t end : {uint64_t{4864}, uint64_t{4095}, uint64_t{4096}, uint64_t{1}, uint64_t{0}}) {
    MemoryDevice memory(uint64_t{1} << 26);
    FilePtr file = *memory.Create("e", 64 << 10);
    memory.Shorten("e", end);
    AlignedBuffer back(16 << 10);
    EXPECT_EQ(*memory.ReadBlocking(file, 0, back.span()), std::min<uint64_t>(end, 16 << 10)) << end;
  }
}

TEST(Device, C27_theEndOfARealFileInsideABlock) {
  TemporaryDirectory directory;
  for (bool uring : {false, true}) {
    std::unique_ptr<BlockDevice> device;
    if (uring) {
      device = Uring(OptionsIn(directory));
      if (device == nullptr) GTEST_SKIP() << "io_uring is not to be had on this machine";
    } else {
      device = *PosixDevice::Open(OptionsIn(directory));
    }
    FilePtr file = *device->Create(uring ? "u" : "p", 16 << 10);
    ASSERT_EQ(truncate((directory.path() + "/log/" + file->name()).c_str(), 4864), 0);
    AlignedBuffer back(16 << 10);
    EXPECT_EQ(*device->ReadBlocking(file, 0, back.span()), 4864u);
    EXPECT_EQ(*device->ReadBlocking(file, 8192, back.span().first(4096)), 0u);
  }
}

TEST(Device, ErrorsKeepTheirErrnoAndRetriesAreBounded) {
  MemoryDevice memory(uint64_t{1} << 26);
  FaultyDevice device(&memory, 1);
  FilePtr file = *device.Create("x", 64 << 10);
  AlignedBuffer buffer(64 << 10);
  device.SetHook([](const RawIo&) { return std::optional<int64_t>(-ENOSPC); });
  EXPECT_EQ(StatusErrno(device.WriteBlocking(file, 0, buffer.span())), ENOSPC);
  device.SetHook([](const RawIo&) { return std::optional<int64_t>(-EINVAL); });
  EXPECT_EQ(StatusErrno(device.ReadBlocking(file, 0, buffer.span()).status()), EINVAL);
  // Nothing but EAGAIN: pread and pwrite have a last try.
  std::atomic<int> calls{0};
  device.SetHook([&](const RawIo&) {
    ++calls;
    return std::optional<int64_t>(-EAGAIN);
  });
  EXPECT_TRUE(device.WriteBlocking(file, 0, buffer.span()).ok());
  EXPECT_LE(calls, BlockDevice::kStallsMax + 1);
  EXPECT_EQ(device.Counters().last_resort, 1u);
  // A sync that failed is not tried again.
  calls = 0;
  device.SetHook([&](const RawIo&) {
    ++calls;
    return std::optional<int64_t>(-EIO);
  });
  EXPECT_EQ(StatusErrno(device.SyncBlocking(file)), EIO);
  EXPECT_EQ(calls, 1);
}

TEST(Device, C54_aFullLockedMemoryLimitIsSaidOnceAndDoneWithout) {
  TemporaryDirectory directory;
  std::vector<std::string> notices;
  std::mutex mu;
  DirectoryOptions options = OptionsIn(directory);
  options.notice = [&](std::string_view text) {
    std::lock_guard lock(mu);
    notices.emplace_back(text);
  };
  auto device = UringDevice::Open(options);
  if (!device.ok()) GTEST_SKIP() << Message(device.status());
  // An unmapped address range cannot be registered whatever the limit: the same path as ENOMEM, without changing
  // limits.
  (*device)->RegisterBuffer({reinterpret_cast<uint8_t*>(uintptr_t{4096}), 1 << 20});
  (*device)->RegisterBuffer({reinterpret_cast<uint8_t*>(uintptr_t{4096}), 1 << 20});
  EXPECT_FALSE((*device)->buffers_registered());
  {
    std::lock_guard lock(mu);
    ASSERT_EQ(notices.size(), 1u);
    EXPECT_THAT(notices[0], HasSubstr("LimitMEMLOCK"));
    EXPECT_THAT(notices[0], HasSubstr("errno"));
  }
  FilePtr file = *(*device)->Create("a", 4096);
  EXPECT_TRUE((*device)->WriteBlocking(file, 0, AlignedBuffer(4096).span()).ok());
}

TEST(Device, LeftoversOfInterruptedCreationsAreRemoved) {
  TemporaryDirectory directory;
  std::filesystem::create_directory(directory.path() + "/log");
  int fd = open((directory.path() + "/log/00000001.seg.new").c_str(), O_CREAT | O_WRONLY, 0600);
  ASSERT_GE(fd, 0);
  close(fd);
  auto device = *PosixDevice::Open(OptionsIn(directory));
  EXPECT_TRUE(device->List()->empty());
  EXPECT_FALSE(std::filesystem::exists(directory.path() + "/log/00000001.seg.new"));
}

TEST(MemoryDevice, APowerCutKeepsWhatWasSyncedAndPartsOfTheRest) {
  bool some_kept = false, some_lost = false;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    std::mt19937_64 random(seed);
    MemoryDevice device(uint64_t{1} << 26);
    FilePtr file = *device.Create("p", 32 << 10);
    AlignedBuffer first = Pattern(16 << 10, 1), second = Pattern(16 << 10, 2);
    ASSERT_TRUE(device.WriteBlocking(file, 0, first.span()).ok());
    ASSERT_TRUE(device.SyncBlocking(file).ok());
    ASSERT_TRUE(device.WriteBlocking(file, 16 << 10, second.span()).ok());
    device.CutPower(&random);
    std::vector<uint8_t> left = device.Peek("p");
    ASSERT_TRUE(std::equal(first.data(), first.data() + first.size(), left.begin())) << "seed " << seed;
    for (uint64_t at = 0; at < second.size(); at += 512) {
      bool kept = std::equal(second.data() + at, second.data() + at + 512,
                             left.begin() + static_cast<ptrdiff_t>(first.size() + at));
      (kept ? some_kept : some_lost) = true;
    }
  }
  EXPECT_TRUE(some_kept && some_lost);
}

}  // namespace
}  // namespace firn
