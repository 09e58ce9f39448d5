// Every target over its seeds and over random changes of them. FIRN_FUZZ_ROUNDS sets how many, FIRN_FUZZ_SEED repeats a
// run.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/fuzz_target.h"

namespace firn::fuzz {
namespace {

std::vector<Target> AllTargets() {
  std::vector<Target> all;
  for (auto targets : {CodecTargets(), StoreTargets(), OuterTargets()}) {
    all.insert(all.end(), targets.begin(), targets.end());
  }
  return all;
}

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

class Fuzz : public testing::TestWithParam<Target> {};

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
  std::mt19937_64 random(seed);
  for (uint64_t round = 0; round < rounds; ++round) {
    Bytes input = target.seeds[random() % target.seeds.size()];
    Mutate(&input, &random);
    if (target.mend != nullptr && random() % 8 != 0) target.mend(&input);
    target.run(input);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Fuzz, testing::ValuesIn(AllTargets()), [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace firn::fuzz
