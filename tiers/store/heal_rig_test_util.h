// Two arenas and a log, each of which tests can damage, run by hand.
//
// Threads: one. Ownership: the rig's; regions and the log are the store's.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "tiers/cold/cold_test_util.h"
#include "tiers/cold/device/faulty_device.h"
#include "tiers/cold/device/memory_device.h"
#include "tiers/store/real_tiers_test_util.h"
#include "tiers/store/store_harness_test_util.h"
#include "tiers/warm/fake_region.h"

namespace firn {

class HealRig {
 public:
  explicit HealRig(EccPolicy memory, EccPolicy log = {}, uint64_t bytes = 8 * kMiB) {
    HarnessOptions options;
    options.hot_bytes = options.warm_bytes = bytes;
    options.cold_bytes = 4 * bytes;
    options.promote_on_get = false;
    options.make_tier = [&](const std::string& name, uint64_t capacity, bool persistent) -> std::unique_ptr<Tier> {
      if (!persistent) {
        auto region = std::make_unique<FakeRegion>(capacity);
        regions.push_back(region.get());
        auto tier = std::make_unique<ArenaTier>(name, std::move(region), memory);
        EXPECT_TRUE(tier->Populate(capacity).ok());
        return tier;
      }
      device = std::make_unique<MemoryDevice>(4 * capacity);
      faulty = std::make_unique<FaultyDevice>(device.get(), 1);
      auto tier =
          MakeColdTier(name, capacity, &background, std::make_unique<BorrowedDevice>(faulty.get()), Clock::Real(), log);
      cold = tier.get();
      return tier;
    };
    h = std::make_unique<StoreHarness>(options);
    cold->SetEvents(h->store.get());
  }
  ~HealRig() {
    bool closed = false;
    cold->Close([&closed](absl::Status) { closed = true; });
    while (!closed) Run();
    cold->SetEvents(nullptr);
  }

  // Until nothing is left to do on either executor.
  void Run() {
    for (int i = 0; i < 50; ++i) {
      background.RunAll();
      h->manual.RunAll();
    }
  }
  void Put(uint64_t key, uint8_t tier) {
    ASSERT_TRUE(h->Put(key).ok());
    if (tier == 0) return;
    std::optional<absl::StatusOr<ClassPair>> moved;
    h->store->Demote(h->ns, TestKey(key), tier, [&](absl::StatusOr<ClassPair> got) { moved = std::move(got); });
    Run();
    ASSERT_TRUE(moved.has_value() && moved->ok()) << key;
  }
  absl::StatusOr<GetResult> Get(uint64_t key, ClassPair least = {}) {
    GetSpec spec;
    spec.address = {h->ns, TestKey(key), 0};
    spec.least = least;
    std::optional<absl::StatusOr<GetResult>> result;
    h->store->Get(spec, [&](absl::StatusOr<GetResult> got) { result = std::move(got); });
    Run();
    return result.has_value() ? *std::move(result) : absl::InternalError("no answer");
  }
  // The bytes of one run where a memory tier keeps them; of a block that is not damaged.
  MutableByteSpan RunInMemory(uint64_t key, RunKind kind, Part part) {
    auto got = Get(key);
    EXPECT_TRUE(got.ok()) << Message(got.status());
    ByteSpan span = got->block.runs[RunIndex(kind, part)].spans()[0];
    return {const_cast<uint8_t*>(span.data()), span.size()};
  }
  // Flips bits of `bytes` wherever the log has them.
  void FlipInLog(ByteSpan bytes, std::vector<uint64_t> bits) {
    int found = 0;
    const std::vector<FileEntry> files = *device->List();
    for (const FileEntry& file : files) {
      std::vector<uint8_t> image = device->Peek(file.name);
      auto at = std::search(image.begin(), image.end(), bytes.begin(), bytes.end());
      if (at == image.end()) continue;
      ++found;
      for (uint64_t bit : bits) at[static_cast<ptrdiff_t>(bit / 8)] ^= static_cast<uint8_t>(1u << bit % 8);
      device->Poke(file.name, 0, image);
    }
    ASSERT_EQ(found, 1);
  }
  std::vector<uint8_t> RunBytesOf(uint64_t key, RunKind kind, Part part) {
    auto got = Get(key);
    EXPECT_TRUE(got.ok()) << Message(got.status());
    const RunBytes& run = got->block.runs[RunIndex(kind, part)];
    std::vector<uint8_t> out(run.size());
    CopyScattered(run, MutableRunBytes(MutableByteSpan(out)));
    return out;
  }
  ScrubReport Scrub() {
    std::optional<absl::StatusOr<ScrubReport>> report;
    h->store->Scrub(0, [&](absl::StatusOr<ScrubReport> got) { report = std::move(got); });
    for (int i = 0; i < 1000 && !report.has_value(); ++i) {
      Run();
      h->clock.AdvanceMs(10);
      h->store->Tick();
    }
    EXPECT_TRUE(report.has_value() && report->ok());
    return report.has_value() && report->ok() ? **report : ScrubReport();
  }
  TierStats StatsOf(size_t tier) const { return h->store->Stats().tiers[tier]; }

  ManualExecutor background;
  std::vector<FakeRegion*> regions;
  std::unique_ptr<MemoryDevice> device;
  std::unique_ptr<FaultyDevice> faulty;  // Before `device`, for faults of the medium.
  ColdTier* cold = nullptr;
  std::unique_ptr<StoreHarness> h;
};

inline void Flip(MutableByteSpan bytes, uint64_t bit) { bytes[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8); }

}  // namespace firn
