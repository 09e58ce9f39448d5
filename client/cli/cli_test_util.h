// firn against a daemon of its own. Threads: one.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/daemon_process.h"

namespace firn {

struct Outcome {
  int code = -1;
  std::string text;  // stdout and stderr together, or stdout alone with --json.
  nlohmann::json json() const { return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false); }
};

inline Outcome RunFirn(const std::string& socket, const std::string& arguments) {
  bool json = arguments.find("--json") != std::string::npos;
  std::string command = std::string(FIRN_BINARY_DIR) + "/client/cli/firn --socket " + socket + " " + arguments +
                        (json ? " 2>/dev/null" : " 2>&1");
  Outcome outcome;
  FILE* pipe = popen(command.c_str(), "r");
  char buffer[4096];
  while (size_t count = std::fread(buffer, 1, sizeof(buffer), pipe)) outcome.text.append(buffer, count);
  int status = pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

inline const std::string& Sample() {
  static const std::string path = std::string(FIRN_SOURCE_DIR) + "/tests/data/sample_128tok.safetensors";
  return path;
}

class CliTest : public testing::Test {
 protected:
  void SetUp() override {
    absl::Status started = daemon_.Start();
    ASSERT_TRUE(started.ok()) << started << daemon_.Log();
  }
  Outcome Firn(const std::string& arguments) { return RunFirn(daemon_.socket_path(), arguments); }
  std::string Path(const std::string& name) const { return (daemon_.folder() / name).string(); }
  double CheckedError(const std::string& blocks) {
    Outcome got = Firn("--json get " + blocks + " --check");
    EXPECT_EQ(got.code, 0) << got.text;
    return got.json().value("relative_error_k", -1.0);
  }

  static DaemonOptions Options() {
    DaemonOptions options;
    options.extra_toml = "[store]\npromote_on_get = false\n";
    return options;
  }

  DaemonProcess daemon_{Options()};
};

}  // namespace firn
