#include "tests/fuzz/fuzz_target.h"

namespace firn::fuzz {

std::vector<Target> OuterTargets() { return {}; }
std::vector<Target> PlanTargets() { return {}; }
std::vector<Target> RequestTargets() { return {}; }

}  // namespace firn::fuzz
