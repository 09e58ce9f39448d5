#include "base/units.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "base/status.h"

namespace firn {
namespace {

struct Unit {
  std::string_view name;
  double scale;
};

constexpr Unit kByteUnits[] = {{"B", 1},         {"KB", 1e3},         {"MB", 1e6},
                               {"GB", 1e9},      {"TB", 1e12},        {"KiB", 1024},
                               {"MiB", 1048576}, {"GiB", 1073741824}, {"TiB", 1099511627776.0}};
constexpr Unit kTimeUnits[] = {{"ms", 1}, {"s", 1e3}, {"m", 6e4}, {"h", 3.6e6}, {"d", 8.64e7}};

template <size_t N>
absl::StatusOr<int64_t> Parse(std::string_view text, const Unit (&units)[N], const char* kind, const char* allowed) {
  double number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number)) {
    return InvalidArgument("\"{}\" is not a {}: a number and one of {}", text, kind, allowed);
  }
  std::string_view rest = text.substr(static_cast<size_t>(end - text.data()));
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  std::optional<double> scale;
  for (const Unit& unit : units) {
    if (unit.name == rest) scale = unit.scale;
  }
  if (!scale.has_value()) {
    return InvalidArgument("\"{}\" has {} as its unit; a {} has one of {}", text,
                           rest.empty() ? std::string("nothing") : fmt::format("\"{}\"", rest), kind, allowed);
  }
  double value = number * *scale;
  if (value < 0) return InvalidArgument("\"{}\" is negative; the least {} is 0", text, kind);
  if (value != std::floor(value)) return InvalidArgument("\"{}\" is not a whole number of {}", text, units[0].name);
  if (value >= 9.2e18) return InvalidArgument("\"{}\" is larger than 2^63 - 1", text);
  return static_cast<int64_t>(value);
}

}  // namespace

absl::StatusOr<uint64_t> ParseBytes(std::string_view text) {
  FIRN_ASSIGN_OR_RETURN(int64_t bytes, Parse(text, kByteUnits, "size", "B, KB, MB, GB, TB, KiB, MiB, GiB, TiB"));
  return static_cast<uint64_t>(bytes);
}

absl::StatusOr<int64_t> ParseDurationMs(std::string_view text) {
  return Parse(text, kTimeUnits, "duration", "ms, s, m, h, d");
}

std::string FormatBytes(uint64_t bytes) {
  static constexpr const char* kNames[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kNames)) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.2f} {}", value, kNames[unit]);
}

}  // namespace firn
