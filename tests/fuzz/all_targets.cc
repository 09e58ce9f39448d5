#include "tests/fuzz/fuzz_target.h"

namespace firn::fuzz {

std::vector<Target> AllTargets() {
  std::vector<Target> all;
  for (auto targets :
       {CodecTargets(), StoreTargets(), StreamTargets(), OuterTargets(), PlanTargets(), RequestTargets()}) {
    all.insert(all.end(), targets.begin(), targets.end());
  }
  return all;
}

}  // namespace firn::fuzz
