// How much each token of a file matters (accumulated attention, say), from a file of its own: what Put takes with a
// block and a plan's important_fraction goes by (docs/plan.md).
//
// Shape: F32, one value a token of the file, (tokens) or (blocks, block_tokens) or (blocks * block_tokens): of the last
// block the places that no token fills are not looked at. Threads: pure but for the file.
// Errors: InvalidArgument with file, count and what is allowed; for a value that is NaN, infinite or below 0 its token.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace firn::cli {

// One value a token.
absl::StatusOr<std::vector<float>> ReadImportance(const std::string& path, uint32_t tokens, uint32_t block_tokens);

}  // namespace firn::cli
