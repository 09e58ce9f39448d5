// The parts of CheckConfig. Threads: values.
#pragma once

#include <fmt/format.h>

#include <string>

#include "daemon/config/check/check.h"

namespace firn {

// Where the parts report to: adds the line, and the value as it stands in the file.
class FindingSink {
 public:
  FindingSink(const Origins& origins, ConfigVerdict* verdict) : origins_(origins), verdict_(verdict) {}
  // `value` is shown where the file has none. One error a key: the first.
  void Error(const std::string& key, const std::string& value, const std::string& what);
  void Warn(const std::string& key, const std::string& value, const std::string& what);
  bool InFile(const std::string& key) const { return origins_.contains(key); }

 private:
  Finding Make(const std::string& key, const std::string& value, const std::string& what) const;

  const Origins& origins_;
  ConfigVerdict* const verdict_;
};

inline std::string InQuotes(std::string_view text) { return fmt::format("\"{}\"", text); }

void CheckChain(const Config& config, FindingSink* sink);
void CheckMemory(const Config& config, const Machine& machine, FindingSink* sink);
void CheckDirectories(const Config& config, const Machine& machine, FindingSink* sink);
void CheckTierPlaces(const Config& config, const Machine& machine, FindingSink* sink);
void CheckListeners(const Config& config, const Machine& machine, FindingSink* sink);
void CheckAdminHttp(const Config& config, const Machine& machine, FindingSink* sink);

// Nothing where a directory can be had at the path and used; else what is in the way.
std::string DirectoryTrouble(const std::string& path, const Machine& machine);

}  // namespace firn
