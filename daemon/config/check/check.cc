#include "daemon/config/check/check.h"

#include "daemon/config/check/checks.h"

namespace firn {

void FindingSink::Error(const std::string& key, const std::string& value, const std::string& what) {
  for (const Finding& told : verdict_->errors) {
    if (told.key == key) return;
  }
  verdict_->errors.push_back(Make(key, value, what));
}

void FindingSink::Warn(const std::string& key, const std::string& value, const std::string& what) {
  verdict_->warnings.push_back(Make(key, value, what));
}

Finding FindingSink::Make(const std::string& key, const std::string& value, const std::string& what) const {
  auto origin = origins_.find(key);
  if (origin == origins_.end()) return {key, value, what, 0};
  return {key, origin->second.value.empty() ? value : origin->second.value, what, origin->second.line};
}

ConfigVerdict CheckConfig(const ConfigReading& reading, const Machine& machine) {
  ConfigVerdict verdict{reading.errors, {}};
  FindingSink sink(reading.origins, &verdict);
  CheckChain(reading.config, &sink);
  CheckMemory(reading.config, machine, &sink);
  CheckDirectories(reading.config, machine, &sink);
  CheckTierPlaces(reading.config, machine, &sink);
  CheckListeners(reading.config, machine, &sink);
  CheckAdminHttp(reading.config, machine, &sink);
  return verdict;
}

}  // namespace firn
