// Tiers that are real, on memory: what tests of the store put in place of fake ones.
//
// Threads: as the tiers. Ownership: the caller's; the executor and the device's memory are not the tier's.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/executor.h"
#include "base/status.h"
#include "base/units.h"
#include "tiers/cold/cold_tier.h"
#include "tiers/cold/index/memory_index.h"
#include "tiers/warm/warm_tier_test_util.h"

namespace firn {

// An empty one, on `device` and an index in memory.
inline std::unique_ptr<ColdTier> MakeColdTier(const std::string& name, uint64_t bytes, Executor* executor,
                                              std::unique_ptr<BlockDevice> device, const Clock* clock = Clock::Real(),
                                              EccPolicy ecc = {}) {
  ColdOptions options;
  options.name = name;
  options.capacity_bytes = bytes;
  options.segment_bytes = kMiB;
  options.chunk_bytes = 128 * kKiB;
  options.staging_bytes = options.read_bytes = 16 * kMiB;
  options.executor = executor;
  options.clock = clock;
  options.ecc = ecc;
  ColdRecovery nothing{.on_copy = [](RecoveredCopy) {}, .on_fact = [](RecoveredFact) {}};
  ColdRecoveryReport report;
  auto tier = ColdTier::Open(options, std::move(device), std::make_unique<MemoryIndex>(), nothing, &report);
  EXPECT_TRUE(tier.ok()) << Message(tier.status());
  return *std::move(tier);
}

}  // namespace firn
