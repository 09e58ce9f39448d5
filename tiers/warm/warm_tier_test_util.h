// A warm tier of tests, populated, without huge pages.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/check.h"
#include "tiers/warm/warm_tier.h"

namespace firn {

inline std::unique_ptr<ArenaTier> MakeWarmTier(const std::string& name, uint64_t bytes) {
  auto tier = OpenWarmTier({.name = name, .capacity_bytes = bytes, .huge_pages = HugePages::kOff, .numa_node = {}});
  FIRN_CHECK(tier.ok());
  FIRN_CHECK(PopulateInSteps(tier->get(), bytes, [](uint64_t, uint64_t) { return true; }).ok());
  return *std::move(tier);
}

}  // namespace firn
