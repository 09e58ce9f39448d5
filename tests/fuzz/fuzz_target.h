// What a fuzz target is: a function that must take any bytes, and bytes to begin with.
//
// A target's `mend` puts right the checksums that a mutation broke, so that what lies behind them is reached. Targets
// are pure; a fault shows as a crash, a failed check, or a finding of a sanitizer.
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
// Of what needs the protocol and the command line's libraries; empty in builds without them.
std::vector<Target> OuterTargets();

// One to eight random changes: bits, bytes, numbers at the edge of their range, stretches moved, left out or doubled.
void Mutate(Bytes* bytes, std::mt19937_64* random);

// Writes the CRC-64 with `seed` of everything before it into the last eight of the first `length` bytes.
void MendCrc(Bytes* bytes, size_t length, uint64_t seed);

}  // namespace firn::fuzz
