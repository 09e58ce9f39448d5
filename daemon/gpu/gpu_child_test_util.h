// The child's program as tests start it: with the processor or with a GPU.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tiers/hot/gpu_tier.h"

namespace firn {

struct ChildKind {
  std::string name;  // Letters and digits.
  bool cuda = false;
};
inline void PrintTo(const ChildKind& kind, std::ostream* out) { *out << kind.name; }
inline std::string ChildKindName(const testing::TestParamInfo<ChildKind>& info) { return info.param.name; }

inline std::string ChildProgram() {
  const char* program = std::getenv("FIRN_GPU_PROGRAM");
  return program != nullptr ? program : FIRND_GPU_PROGRAM;
}

inline GpuChildStarter StartChild(const ChildKind& kind, std::vector<std::string> arguments = {}) {
  if (!kind.cuda) arguments.insert(arguments.begin(), "--cpu");
  return StartProgram(ChildProgram(), std::move(arguments));
}

// Why tests of this kind cannot run here; empty: they can.
inline std::string WhyNot(const ChildKind& kind) {
  if (!kind.cuda || std::system("test -e /dev/nvidiactl") == 0) return "";
  return "NOT RUN: this machine has no GPU";
}

}  // namespace firn
