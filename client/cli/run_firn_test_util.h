// The firn program as a command, for tests.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/run_command.h"

namespace firn {

inline std::string FirnProgram() { return std::string(FIRN_BINARY_DIR) + "/client/cli/firn"; }

struct Outcome {
  int code = -1;
  std::string text;  // stdout and stderr together, or stdout alone with --json.
  nlohmann::json json() const { return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false); }
};

inline Outcome RunFirn(const std::string& arguments) {
  bool json = arguments.find("--json") != std::string::npos;
  Ended ended = RunCommand(FirnProgram() + " " + arguments + (json ? " 2>/dev/null" : " 2>&1"));
  return {ended.code, std::move(ended.text)};
}

// Against the daemon that listens there.
inline Outcome RunFirn(const std::string& socket, const std::string& arguments) {
  return RunFirn("--socket " + socket + " " + arguments);
}

inline const std::string& Sample() {
  static const std::string path = std::string(FIRN_SOURCE_DIR) + "/tests/data/sample_128tok.safetensors";
  return path;
}

}  // namespace firn
