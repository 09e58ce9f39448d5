// `firn chaos` against the daemon of this build: faults at random, and nothing lost or wrong; and that it says so when
// something is.
//
// FIRN_CHAOS_SECONDS sets how long faults are injected in all (default 30; the long run asks for 1,200),
// FIRN_CHAOS_SEED repeats a run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "tests/support/run_command.h"

namespace firn {
namespace {

namespace fs = std::filesystem;

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

class Chaos : public ::testing::Test {
 protected:
  Chaos() {
    std::string pattern = (fs::temp_directory_path() / "firn-chaos-test-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~Chaos() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  Ended Run(const std::string& arguments) const {
    return RunCommand(std::string(FIRN_BINARY_DIR) + "/client/cli/firn chaos --dir '" + (folder_ / "run").string() +
                      "' " + arguments);
  }

  // A share of the time with these options; nothing may be wrong.
  void ExpectGood(const std::string& options, uint64_t share_percent) const {
    const uint64_t seed = FromEnvironment("FIRN_CHAOS_SEED", std::random_device{}());
    const uint64_t seconds = std::max<uint64_t>(1, FromEnvironment("FIRN_CHAOS_SECONDS", 30) * share_percent / 100);
    const std::string arguments =
        options + " --seconds " + std::to_string(seconds) + " --seed " + std::to_string(seed) + " --json";
    std::printf("firn chaos %s\n", arguments.c_str());
    std::fflush(stdout);
    Ended ended = Run(arguments);
    auto report = nlohmann::json::parse(ended.text, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(report.is_object()) << ended.text;
    EXPECT_EQ(ended.code, 0) << ended.text;
    EXPECT_TRUE(report.value("good", false)) << ended.text;
    EXPECT_FALSE(report["faults"].empty()) << ended.text;
    EXPECT_GT(report["operations"].value("hits", 0), 10) << ended.text;
    EXPECT_TRUE(fs::is_empty(folder_ / "run")) << "files stay";
    std::printf("%s\n", report["faults"].dump().c_str());
  }

  fs::path folder_;
};

TEST_F(Chaos, C19_C38_nothing_is_lost_or_wrong_with_error_correction) { ExpectGood("--ecc graded", 50); }
TEST_F(Chaos, C19_C38_nothing_is_lost_or_wrong_without) { ExpectGood("--ecc none", 30); }
TEST_F(Chaos, C19_C38_nothing_is_lost_or_wrong_with_a_gpu_child_that_dies) {
  ExpectGood("--ecc rs --gpu cpu --clients 3", 20);
}

// Files in the folder get damaged.
TEST_F(Chaos, TakesNoFolderWithAnythingInIt) {
  fs::create_directory(folder_ / "run");
  std::ofstream(folder_ / "run" / "precious") << "data";
  Ended ended = Run("--seconds 1 2>&1");
  EXPECT_EQ(ended.code, 2) << ended.text;
  EXPECT_THAT(ended.text, testing::HasSubstr("has precious; a new or an empty folder is wanted"));
  EXPECT_TRUE(fs::exists(folder_ / "run" / "precious"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "run"), fs::directory_iterator()), 1);
}

TEST_F(Chaos, SaysWhatDaemonThereIsNot) {
  Ended ended = Run("--firnd /no/such/firnd 2>&1");
  EXPECT_EQ(ended.code, 2) << ended.text;
  EXPECT_THAT(ended.text, testing::HasSubstr("/no/such/firnd is no program"));
}

}  // namespace
}  // namespace firn
