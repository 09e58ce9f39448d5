// Sizes with units, as people write them in configurations: "64GiB", "512 MiB", "1.5GB", "4096B".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace firn {

inline constexpr uint64_t kKiB = uint64_t{1} << 10;
inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr uint64_t kGiB = uint64_t{1} << 30;

// A number and a unit (B, KB, MB, GB, TB, KiB, MiB, GiB, TiB). A bare number is refused, since "64" is how a size is
// mistaken for another; so are negative numbers, fractions of a byte and anything over 2^63 - 1.
absl::StatusOr<uint64_t> ParseBytes(std::string_view text);

// A number and a unit (ms, s, m, h, d), in milliseconds. A bare number is refused.
absl::StatusOr<int64_t> ParseDurationMs(std::string_view text);

// "1.50 GiB", "512 B": for people, not for parsing.
std::string FormatBytes(uint64_t bytes);

}  // namespace firn
