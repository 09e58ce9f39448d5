// firn against a daemon of its own. Threads: one.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "client/cli/run_firn_test_util.h"
#include "tests/support/daemon_process.h"

namespace firn {

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
