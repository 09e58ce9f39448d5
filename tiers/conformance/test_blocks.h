// Encoded blocks of random bytes with true headers and checksums, for tests that move blocks and do not decode them.
//
// Threads: any. The same spec and seed give the same block.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "codecs/encoded_block.h"
#include "codecs/record.h"

namespace firn {

struct TestBlockSpec {
  std::string name;  // For failure messages.
  BlockShape shape;
  CodecFamily family = CodecFamily::kSource;  // kSource: one kWhole run a part. kNested: kMeta, kP2, kP4, kP8.
  uint32_t exact_tokens = 0;                  // With kNested.
  DType dtype = DType::kFp16;
  bool exact_last = false;  // The exact tokens are the last ones instead of the first: a set.
};

// An identity that no other number shares.
Identity TestIdentity(uint64_t number, uint64_t namespace_number = 0);

EncodedBlock MakeTestBlock(const TestBlockSpec& spec, const Identity& identity, uint64_t seed);

// From 2 KB to 32 MiB: odd widths, head counts and layer counts, K or V alone, tails, sinks, runs of no bytes.
std::vector<TestBlockSpec> TestBlockSpecs();

// Whether both hold the same header and the same bytes in the same runs.
bool SameBlock(const EncodedBlock& a, const EncodedBlock& b);

}  // namespace firn
