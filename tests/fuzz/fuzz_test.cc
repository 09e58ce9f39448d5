// Every target over its seeds, over the files of its corpus and over random changes of both. FIRN_FUZZ_ROUNDS sets how
// many, FIRN_FUZZ_SEED repeats a run. tests/fuzz/run looks further, guided by coverage; what it finds becomes a file.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "tests/fuzz/fuzz_target.h"

namespace firn::fuzz {
namespace {

const std::filesystem::path& CorpusFolder() {
  static const std::filesystem::path folder = std::filesystem::path(FIRN_SOURCE_DIR) / "tests/fuzz/corpus";
  return folder;
}

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

struct NamedInput {
  std::string name;
  Bytes bytes;
};

// In the order of their names: FIRN_FUZZ_SEED means the same everywhere.
std::vector<NamedInput> CorpusOf(const std::string& target) {
  std::vector<NamedInput> inputs;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(CorpusFolder() / target, error)) {
    std::ifstream file(entry.path(), std::ios::binary);
    inputs.push_back({entry.path().filename().string(), Bytes(std::istreambuf_iterator<char>(file), {})});
  }
  std::ranges::sort(inputs, {}, &NamedInput::name);
  return inputs;
}

class Fuzz : public testing::TestWithParam<Target> {};

TEST_P(Fuzz, TakesItsCorpus) {
  for (const NamedInput& input : CorpusOf(GetParam().name)) {
    // Before the run: a crash says nothing more.
    std::printf("%s/%s\n", GetParam().name.c_str(), input.name.c_str());
    std::fflush(stdout);
    GetParam().run(input.bytes);
  }
}

TEST_P(Fuzz, TakesAnyBytes) {
  const Target& target = GetParam();
  uint64_t seed = FromEnvironment("FIRN_FUZZ_SEED", std::random_device{}());
  uint64_t rounds = FromEnvironment("FIRN_FUZZ_ROUNDS", 3000);
  // Printed at once: a crash says nothing more.
  std::printf("%s: seed %llu, %llu rounds\n", target.name.c_str(), static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(rounds));
  std::fflush(stdout);
  ASSERT_FALSE(target.seeds.empty());
  for (const Bytes& input : target.seeds) target.run(input);
  target.run({});
  std::vector<Bytes> beginnings = target.seeds;
  for (NamedInput& input : CorpusOf(target.name)) beginnings.push_back(std::move(input.bytes));
  std::mt19937_64 random(seed);
  for (uint64_t round = 0; round < rounds; ++round) {
    Bytes input = beginnings[random() % beginnings.size()];
    Mutate(&input, &random);
    if (target.mend != nullptr && random() % 8 != 0) target.mend(&input);
    target.run(input);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Fuzz, testing::ValuesIn(AllTargets()), [](const auto& of) { return of.param.name; });

// A folder that no target reads would be decoration. Builds without the outer targets know fewer.
TEST(Corpus, BelongsToTargets) {
  if (OuterTargets().empty()) GTEST_SKIP() << "not all targets are in this build";
  std::set<std::string> names;
  for (const Target& target : AllTargets()) names.insert(target.name);
  for (const auto& entry : std::filesystem::directory_iterator(CorpusFolder())) {
    EXPECT_TRUE(names.contains(entry.path().filename().string())) << entry.path();
  }
}

}  // namespace
}  // namespace firn::fuzz
