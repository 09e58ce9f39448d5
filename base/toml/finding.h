// What is wrong, or odd, with one key of a configuration, and how that is told.
//
// Threads: values. A file is somebody's input: what is shown of it is printable and bounded, however it is written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace firn {

struct Finding {
  std::string key;    // "tier[0].capacity"
  std::string value;  // As TOML; empty: the key is not there.
  std::string what;   // What is wrong, and what is allowed.
  uint32_t line = 0;  // 0: not from a file.
};

// Where a value came from.
struct Origin {
  std::string value;
  uint32_t line = 0;
};
// By key; keys that hold their default are not in it. A table is in it by its own name ("tier[0]").
using Origins = std::map<std::string, Origin, std::less<>>;

inline constexpr size_t kShownBytesMax = 200;  // Of a key, and of a value.
inline constexpr size_t kFindingsShownMax = 100;

// Control characters and what is not UTF-8 escaped, and cut after `bytes_max` bytes of the text.
std::string Printable(std::string_view text, size_t bytes_max = kShownBytesMax);

// "tier[0].capacity = "64": has nothing as its unit; allowed: ... (line 5)"
std::string FindingText(const Finding& finding);

// One line each, and "... and 17 more" where there are more than are shown.
std::vector<std::string> FindingLines(const std::vector<Finding>& findings);

}  // namespace firn
