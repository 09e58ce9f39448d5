// What tests of plan files start from. Threads: one.
#pragma once

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "firnkv/plan_file.h"

namespace firnkv {

inline constexpr Precision k8 = Precision::kInt8, k4 = Precision::kInt4, k3 = Precision::kInt3, k2 = Precision::kInt2;

inline PlanFile Parsed(std::string_view toml) {
  auto file = ParsePlanFile(toml);
  EXPECT_TRUE(file.ok()) << file.status() << "\n" << toml;
  return file.ok() ? *file : PlanFile{};
}

inline NamespaceFacts Facts(uint32_t layers, uint32_t heads) {
  return {.model_id = "m", .layer_last = layers, .kv_heads = heads, .k_width = 64, .v_width = 64, .block_tokens = 64};
}

inline std::vector<TierInfo> Tiers() {
  return {{.name = "hot", .precision = {Precision::kExact, Precision::kExact}},
          {.name = "warm", .precision = {k8, k4}},
          {.name = "cold", .precision = {k4, k2}}};
}

}  // namespace firnkv
