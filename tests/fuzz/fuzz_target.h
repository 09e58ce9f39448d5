// What a fuzz target is: a function that must take any bytes, and bytes to begin with.
//
// A target's `mend` puts right the checksums that a mutation broke, so that what lies behind them is reached. Targets
// are pure; a fault shows as a crash, a failed check, or a finding of a sanitizer. fuzz_test.cc runs them over random
// changes and over the files of corpus/NAME, in every build; libfuzzer_main.cc runs them under libFuzzer.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace firn::fuzz {

using Bytes = std::vector<uint8_t>;

struct Target {
  std::string name;
  std::function<void(ByteSpan)> run;
  std::vector<Bytes> seeds;
  std::function<void(Bytes*)> mend;  // May be null.
};

std::vector<Target> CodecTargets();
std::vector<Target> StoreTargets();
std::vector<Target> StreamTargets();
// Of what needs the protocol and the command line's libraries; empty in builds without them.
std::vector<Target> OuterTargets();
std::vector<Target> PlanTargets();
std::vector<Target> RequestTargets();
std::vector<Target> AllTargets();

// One to eight random changes: bits, bytes, numbers at the edge of their range, stretches moved, left out or doubled.
void Mutate(Bytes* bytes, std::mt19937_64* random);

// Writes the CRC-64 with `seed` of everything before them into the last eight bytes; shorter ones are left alone.
void MendCrc(MutableByteSpan bytes, uint64_t seed);

}  // namespace firn::fuzz
