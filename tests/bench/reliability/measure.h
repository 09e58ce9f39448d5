// Damages stored records at a rate, reads them back, and says what became of the values.
//
// Every point is measured on records with at least one flip and weighted with the exact share of those; the others are
// what they were (bit_flips.h). What checked records serve is compared, byte for byte, with what the undamaged record
// decodes to from the same runs. Threads: one.
#pragma once

#include <array>
#include <map>
#include <vector>

#include "tests/bench/reliability/real_blocks.h"
#include "tests/bench/reliability/stored_record.h"

namespace firn::bench {

// Sums over values; not finite ones are counted apart.
struct ErrorSum {
  double difference = 0, norm = 0;
  uint64_t values = 0, not_finite = 0;
};

struct Served {
  std::array<std::vector<uint8_t>, 2> values;  // FP16, by Part.
  std::array<ErrorSum, 2> errors;
};

// Blocks of one coding and class with what they decode to.
class CodedBlocks {
 public:
  CodedBlocks(const RealBlocks* real, Ladder ladder, PrecisionClass at);

  size_t size() const { return blocks_.size(); }
  const EncodedBlock& block(size_t i) const { return blocks_[i]; }
  // False where the runs decode to nothing.
  bool Decode(size_t i, const EncodedBlock& block, RunMask use, Served* out) const;
  // How far served values are from the source's.
  std::array<ErrorSum, 2> Errors(size_t i, const Served& served) const;
  // Of the block as it was encoded.
  const Served& Undamaged(size_t i, RunMask use);

 private:
  const RealBlocks& real_;
  std::vector<EncodedBlock> blocks_;
  std::vector<std::array<std::vector<float>, 2>> sources_;
  std::map<std::pair<size_t, uint16_t>, Served> undamaged_;
};

struct Point {
  double rate = 0;
  double damaged_share = 0;                                                               // Records with a flip.
  uint64_t tried = 0, corrected = 0, missed = 0, coarser = 0, wrong = 0, not_finite = 0;  // Of damaged ones.
  // Of all records.
  double missed_share = 0, coarser_share = 0;
  StoredRecord::Shares expected;
  // By Part, of what is served, and of all reads where the worker computes what is missed anew, exactly.
  std::array<double, 2> served_error{}, read_error{};
};

// `records` are the coded blocks under one protection, in order.
Point Measure(CodedBlocks* coded, const std::vector<StoredRecord>& records, bool checked, double rate, uint64_t tries,
              uint64_t seed);

}  // namespace firn::bench
