// A record as a tier keeps it, in one image of bytes: the header and each run, parity behind each of them, as
// tiers/warm/arena_tier.cc lays them out. Reading is the tier's and the store's too: correct, parse, compare checks,
// and use what is intact and of use without what is lost.
//
// Threads: immutable. Ownership: keeps the block that it was made of.
#pragma once

#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "codecs/ecc/ecc.h"
#include "codecs/encoded_block.h"

namespace firn::bench {

struct Protection {
  std::string_view name;
  // False: no checks and no header worth damaging. What a store without them would have: the fields are known from
  // elsewhere, codes and scales are decoded as they come.
  bool checked = true;
  EccPolicy ecc;
};
// What is compared, from nothing to Reed-Solomon.
std::span<const Protection> AllProtections();
const Protection* FindProtection(std::string_view name);  // Null when there is none.

struct ReadBack {
  bool missed = false;  // Nothing of it can be served.
  RunMask used;         // Runs that the served values come from.
  bool coarser = false;
  bool corrected = false;  // Parity had something to say.
  EncodedBlock block;      // Views the image.
};

class StoredRecord {
 public:
  StoredRecord(EncodedBlock block, const Protection& protection);

  const EncodedBlock& block() const { return block_; }
  const std::vector<uint8_t>& image() const { return image_; }
  // All that is kept, and of that: the header without parity, and parity. An unchecked header counts without checks.
  uint64_t total_bytes() const { return header_bytes_ + run_bytes_ + parity_bytes_; }
  uint64_t header_bytes() const { return header_bytes_; }
  uint64_t run_bytes() const { return run_bytes_; }
  uint64_t parity_bytes() const { return parity_bytes_; }

  // Reads a damaged copy of image(), correcting it in place.
  ReadBack Read(MutableByteSpan image) const;
  // What the probabilities of expectation.h make of it.
  struct Shares {
    double missed = 0, coarser = 0;
  };
  Shares Expected(double rate) const;

 private:
  struct Piece {
    EccCode code = EccCode::kNone;
    uint64_t offset = 0, data_bytes = 0, parity_bytes = 0;
  };
  static constexpr uint32_t kHeader = kRunIds;
  void Append(uint32_t index, EccCode code, const RunBytes& data);

  const EncodedBlock block_;
  const Protection& protection_;
  std::array<Piece, kRunIds + 1> pieces_{};
  std::vector<uint8_t> image_;
  uint64_t header_bytes_ = 0, run_bytes_ = 0, parity_bytes_ = 0;
};

}  // namespace firn::bench
