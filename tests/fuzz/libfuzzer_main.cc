// The targets under libFuzzer, whose main() this is linked with: FIRN_FUZZ_TARGET names one, as every process that
// libFuzzer starts inherits. tests/fuzz/run is how it is used.
//
//   FIRN_FUZZ_TARGET=record firn_fuzz [libFuzzer's options] [corpus...]
//   firn_fuzz --targets                 their names
//   firn_fuzz --write-seeds FOLDER      FOLDER/NAME/N: what every target begins with
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>

#include "base/bytes.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t size_max);

namespace firn::fuzz {
namespace {

std::optional<Target> target;

void PrintTargets() {
  for (const Target& each : AllTargets()) std::printf("%s\n", each.name.c_str());
}

bool WriteSeeds(const std::filesystem::path& folder) {
  for (const Target& each : AllTargets()) {
    std::filesystem::create_directories(folder / each.name);
    for (size_t i = 0; i < each.seeds.size(); ++i) {
      std::ofstream file(folder / each.name / std::to_string(i), std::ios::binary);
      file << AsText(each.seeds[i]);
      if (!file.good()) return false;
    }
  }
  return true;
}

// Ends the process where there is nothing to fuzz.
void Initialize(int argc, char** argv) {
  const std::string_view option = argc > 1 ? argv[1] : "";
  if (option == "--targets") {
    PrintTargets();
    std::exit(0);
  }
  if (option == "--write-seeds" && argc == 3) std::exit(WriteSeeds(argv[2]) ? 0 : 1);
  const char* name = std::getenv("FIRN_FUZZ_TARGET");
  for (Target& each : AllTargets()) {
    if (name != nullptr && each.name == name) target = std::move(each);
  }
  if (target.has_value()) return;
  std::fprintf(stderr, "firn_fuzz: FIRN_FUZZ_TARGET is one of\n");
  PrintTargets();
  std::exit(2);
}

// libFuzzer's own changes, which know what was compared with what; now and then ours. Checksums are left wrong once in
// a while, so that what refuses them stays covered.
size_t MutateInPlace(uint8_t* data, size_t size, size_t size_max, unsigned seed) {
  std::mt19937_64 random(seed);
  Bytes bytes;
  if (random() % 4 == 0) {
    bytes.assign(data, data + size);
    Mutate(&bytes, &random);
  } else {
    size = LLVMFuzzerMutate(data, size, size_max);
    bytes.assign(data, data + size);
  }
  if (target->mend != nullptr && random() % 8 != 0) target->mend(&bytes);
  bytes.resize(std::min(bytes.size(), size_max));
  std::copy(bytes.begin(), bytes.end(), data);
  return bytes.size();
}

}  // namespace
}  // namespace firn::fuzz

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  firn::fuzz::Initialize(*argc, *argv);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  firn::fuzz::target->run({data, size});
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max, unsigned seed) {
  return firn::fuzz::MutateInPlace(data, size, size_max, seed);
}
