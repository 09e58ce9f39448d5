#include "tests/fuzz/fuzz_target.h"

namespace firn::fuzz {

std::vector<Target> OuterTargets() { return {}; }

}  // namespace firn::fuzz
