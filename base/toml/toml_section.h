// One table of a TOML file, read key by key: whatever was not asked for is an unknown key, whatever does not fit is an
// error. The one place that knows the TOML library.
//
// Threads: not safe. Ownership: borrows the table and what it reports to. Every error names key, value, what is
// allowed, and the line.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/toml/finding.h"

namespace toml {
inline namespace v3 {
class node;
class table;
}  // namespace v3
}  // namespace toml

namespace firn {

class TomlSection {
 public:
  // What reading finds.
  struct Report {
    std::vector<Finding> errors;
    Origins origins;
  };
  // `prefix` is the section's name in messages ("tier[0]."); empty for the root.
  TomlSection(const toml::table& table, std::string prefix, Report* report);

  // Makes the key a known one.
  bool Has(std::string_view key);
  // Each leaves `*out` as it is when the key is absent or wrong. Ranges are inclusive.
  void Bytes(std::string_view key, uint64_t* out, uint64_t least, uint64_t most);
  void Bytes(std::string_view key, uint32_t* out, uint32_t least, uint32_t most);
  void Duration(std::string_view key, int64_t* out_ms, int64_t least_ms, int64_t most_ms);
  void Count(std::string_view key, uint32_t* out, uint32_t least, uint32_t most);
  void Int(std::string_view key, int64_t* out, int64_t least, int64_t most);
  void Share(std::string_view key, double* out);                             // In (0, 1].
  void Number(std::string_view key, float* out, double least, double most);  // Whole numbers are numbers, too.
  void Bool(std::string_view key, bool* out);
  void String(std::string_view key, std::string* out, size_t bytes_max);
  void Choice(std::string_view key, std::string* out, const std::vector<std::string>& allowed);
  void Strings(std::string_view key, std::vector<std::string>* out, size_t items_max);
  // "int8", or { k = "int8", v = "int4" }: the words for K and V. False where the key is absent or something else,
  // which is then reported as `allowed`.
  bool Pair(std::string_view key, std::string* k, std::string* v, const std::string& allowed);
  bool IsTable(std::string_view key);
  // All keys of the section, whether asked for or not: where keys are names of the caller's.
  std::vector<std::string> Keys() const;
  void Sections(std::string_view key, const std::function<void(TomlSection&)>& each);  // [[key]]
  void Section(std::string_view key, const std::function<void(TomlSection&)>& read);   // [key]
  // Reports the keys that nobody asked for.
  void Finish();

  // One error a key: the first.
  void Error(std::string_view key, const std::string& what);
  const std::string& prefix() const { return prefix_; }
  uint32_t line() const;  // Where the section begins.

 private:
  const toml::node* Find(std::string_view key);

  const toml::table& table_;
  const std::string prefix_;
  Report* const report_;
  std::set<std::string, std::less<>> known_, told_;
};

// Reads a document of at most `bytes_max` bytes: `read` gets its root. What it finds goes to `report`; InvalidArgument
// where this is no TOML at all, or too much of it. `source` names it in messages.
absl::Status ReadToml(std::string_view text, std::string_view source, size_t bytes_max, TomlSection::Report* report,
                      absl::FunctionRef<void(TomlSection&)> read);

// A string as TOML.
std::string TomlQuoted(std::string_view text);

}  // namespace firn
