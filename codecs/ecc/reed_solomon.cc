#include "codecs/ecc/reed_solomon.h"

#include <isa-l/erasure_code.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "absl/container/inlined_vector.h"
#include "base/check.h"
#include "base/checksum.h"
#include "codecs/ecc/span_cursor.h"

namespace firn::rs {
namespace {

using ecc::SpanCursor;

// ISA-L expands each coefficient to 32 bytes and takes pointers to what it does not change without const.
constexpr size_t kTableBytes = 32;

struct Code {
  std::array<uint8_t, kShardsMax * kDataShardsMax> matrix;  // A row a shard: the identity, then the parity rows.
  std::array<uint8_t, kTableBytes * kDataShardsMax * kParityShards> parity_tables;
};

const Code& CodeFor(uint32_t data_shards) {
  static const std::array<Code, kDataShardsMax + 1> codes = [] {
    std::array<Code, kDataShardsMax + 1> made{};
    for (uint32_t k = 1; k <= kDataShardsMax; ++k) {
      const int columns = static_cast<int>(k);
      gf_gen_cauchy1_matrix(made[k].matrix.data(), columns + int{kParityShards}, columns);
      ec_init_tables(columns, kParityShards, made[k].matrix.data() + k * k, made[k].parity_tables.data());
    }
    return made;
  }();
  return codes[data_shards];
}

void Multiply(uint32_t bytes, uint32_t inputs, uint32_t outputs, const uint8_t* tables, const uint8_t* const* in,
              uint8_t* const* out) {
  ec_encode_data(static_cast<int>(bytes), static_cast<int>(inputs), static_cast<int>(outputs),
                 const_cast<uint8_t*>(tables), const_cast<uint8_t**>(in), const_cast<uint8_t**>(out));
}

// Room for whole shards, taken when the first is needed: bytes in one piece need none.
class Scratch {
 public:
  uint8_t* Of(uint32_t shard) {
    if (memory_ == nullptr) memory_ = std::make_unique_for_overwrite<uint8_t[]>(size_t{kShardsMax} * kShardBytesMax);
    return memory_.get() + size_t{shard} * kShardBytesMax;
  }

 private:
  std::unique_ptr<uint8_t[]> memory_;
};

// One stripe: its shards, in place or as copies, and the checksums kept for them.
struct Stripe {
  StripeShape shape;
  uint64_t seed = 0;  // Of shard 0.
  const uint8_t* shards[kShardsMax];
  uint64_t checksums[kShardsMax];

  uint64_t ChecksumOf(uint32_t shard, const uint8_t* bytes) const {
    return Crc64({bytes, shape.BytesOf(shard)}, seed + shard);
  }
  uint64_t ChecksumOf(uint32_t shard) const { return ChecksumOf(shard, shards[shard]); }
};

template <typename Byte>
void ViewData(SpanCursor<Byte>* at, Scratch* scratch, Stripe* stripe) {
  const StripeShape& shape = stripe->shape;
  for (uint32_t shard = 0; shard < shape.data_shards; ++shard) {
    const uint32_t bytes = shape.BytesOf(shard);
    if (bytes == shape.shard_bytes) {
      const bool whole = at->Rest().size() >= bytes;
      stripe->shards[shard] = at->View(bytes, whole ? nullptr : scratch->Of(shard));
      continue;
    }
    uint8_t* padded = scratch->Of(shard);
    FIRN_CHECK(at->Read(bytes, padded) == bytes);
    std::memset(padded + bytes, 0, shape.shard_bytes - bytes);
    stripe->shards[shard] = padded;
  }
}

template <typename Byte>
void ViewParity(SpanCursor<Byte>* at, Scratch* scratch, Stripe* stripe) {
  const StripeShape& shape = stripe->shape;
  for (uint32_t shard = shape.data_shards; shard < shape.shards(); ++shard) {
    const bool whole = at->Rest().size() >= shape.shard_bytes;
    stripe->shards[shard] = at->View(shape.shard_bytes, whole ? nullptr : scratch->Of(shard));
  }
  uint8_t checksums[kShardsMax * 8];
  at->Read(shape.shards() * 8, checksums);
  for (uint32_t shard = 0; shard < shape.shards(); ++shard) {
    stripe->checksums[shard] = LoadLe<uint64_t>(checksums + shard * 8);
  }
}

// Calls visit(stripe, data cursor, parity cursor), both cursors at the stripe's start, until it says false.
template <typename Byte, typename ParityByte, typename Visit>
void VisitStripes(const Scattered<Byte>& data, const Scattered<ParityByte>& parity, Visit visit) {
  SpanCursor<Byte> at(data);
  SpanCursor<ParityByte> parity_at(parity);
  Stripe stripe;
  stripe.seed = kChecksumSeed;
  for (uint64_t left = data.size(); left > 0; left -= stripe.shape.data_bytes, stripe.seed += kShardsMax) {
    stripe.shape = StripeShape::Of(left);
    if (!visit(&stripe, &at, &parity_at)) return;
  }
}

using Wrong = absl::InlinedVector<uint32_t, kShardsMax>;

Wrong WrongShards(const Stripe& stripe) {
  Wrong wrong;
  for (uint32_t shard = 0; shard < stripe.shape.shards(); ++shard) {
    if (stripe.ChecksumOf(shard) != stripe.checksums[shard]) wrong.push_back(shard);
  }
  return wrong;
}

bool Has(const Wrong& wrong, uint32_t shard) { return std::find(wrong.begin(), wrong.end(), shard) != wrong.end(); }

// What the wrong shards should be, from the others, in rebuilt[0], [1] in the order of `wrong`. False where the others
// contradict each other: then a shard is wrong whose checksum does not say so.
bool Rebuild(const Stripe& stripe, const Wrong& wrong, uint8_t* const rebuilt[kParityShards], Scratch* scratch) {
  const StripeShape& shape = stripe.shape;
  const uint32_t k = shape.data_shards;
  const Code& code = CodeFor(k);
  std::array<uint8_t, kDataShardsMax * kDataShardsMax> chosen, inverse;
  const uint8_t* sources[kDataShardsMax];
  for (uint32_t shard = 0, row = 0; row < k; ++shard) {
    if (Has(wrong, shard)) continue;
    std::copy_n(code.matrix.data() + shard * k, k, chosen.data() + row * k);
    sources[row++] = stripe.shards[shard];
  }
  // Any k rows of it can be inverted: that is what a Cauchy matrix is for.
  FIRN_CHECK(gf_invert_matrix(chosen.data(), inverse.data(), static_cast<int>(k)) == 0);

  const uint8_t* data[kDataShardsMax];
  std::copy_n(stripe.shards, k, data);
  std::array<uint8_t, kTableBytes * kDataShardsMax> tables;
  for (size_t i = 0; i < wrong.size() && wrong[i] < k; ++i) {
    ec_init_tables(static_cast<int>(k), 1, inverse.data() + wrong[i] * k, tables.data());
    Multiply(shape.shard_bytes, k, 1, tables.data(), sources, rebuilt + i);
    data[wrong[i]] = rebuilt[i];
    const std::span<const uint8_t> shard(rebuilt[i], shape.shard_bytes);
    if (std::any_of(shard.begin() + shape.BytesOf(wrong[i]), shard.end(), [](uint8_t byte) { return byte != 0; }))
      return false;
  }

  uint8_t* parity[kParityShards] = {scratch->Of(0), scratch->Of(1)};
  Multiply(shape.shard_bytes, k, kParityShards, code.parity_tables.data(), data, parity);
  for (uint32_t i = 0; i < kParityShards; ++i) {
    const auto at = std::find(wrong.begin(), wrong.end(), k + i);
    if (at != wrong.end()) {
      std::memcpy(rebuilt[at - wrong.begin()], parity[i], shape.shard_bytes);
    } else if (std::memcmp(parity[i], stripe.shards[k + i], shape.shard_bytes) != 0) {
      return false;
    }
  }
  return true;
}

void WriteAt(SpanCursor<uint8_t> at, size_t offset, const uint8_t* source, size_t bytes) {
  at.Advance(offset);
  at.Write(source, bytes);
}

// Puts the rebuilt shards and their checksums where they belong, from the stripe's start.
void WriteRepairs(const Stripe& stripe, const Wrong& wrong, uint8_t* const rebuilt[kParityShards],
                  const SpanCursor<uint8_t>& start, const SpanCursor<uint8_t>& parity_start) {
  const StripeShape& shape = stripe.shape;
  for (size_t i = 0; i < wrong.size(); ++i) {
    const uint32_t shard = wrong[i];
    // With nothing wrong but its checksum a shard is not written: others may be reading it.
    if (std::memcmp(rebuilt[i], stripe.shards[shard], shape.BytesOf(shard)) != 0) {
      if (shard < shape.data_shards) {
        WriteAt(start, size_t{shard} * shape.shard_bytes, rebuilt[i], shape.BytesOf(shard));
      } else {
        WriteAt(parity_start, size_t{shard - shape.data_shards} * shape.shard_bytes, rebuilt[i], shape.shard_bytes);
      }
    }
    uint8_t checksum[8];
    StoreLe<uint64_t>(checksum, stripe.ChecksumOf(shard, rebuilt[i]));
    WriteAt(parity_start, kParityShards * shape.shard_bytes + shard * 8, checksum, sizeof checksum);
  }
}

}  // namespace

StripeShape StripeShape::Of(uint64_t bytes_left) {
  StripeShape shape;
  shape.data_bytes = static_cast<uint32_t>(std::min(bytes_left, kStripeBytesMax));
  // Not cut finer for few bytes: what fails of a disk is a sector, and may be no more than two shards.
  shape.shard_bytes =
      std::min(kShardBytesMax, (shape.data_bytes + kShardBytesStep - 1) / kShardBytesStep * kShardBytesStep);
  shape.data_shards = (shape.data_bytes + shape.shard_bytes - 1) / shape.shard_bytes;
  return shape;
}

uint64_t ParityBytes(uint64_t data_bytes) {
  const uint64_t tail = data_bytes % kStripeBytesMax;
  return data_bytes / kStripeBytesMax * StripeShape::Of(kStripeBytesMax).parity_bytes() +
         (tail == 0 ? 0 : StripeShape::Of(tail).parity_bytes());
}

void ComputeParity(const RunBytes& data, const MutableRunBytes& parity) {
  Scratch scratch;
  VisitStripes(data, parity, [&](Stripe* stripe, SpanCursor<const uint8_t>* at, SpanCursor<uint8_t>* parity_at) {
    const StripeShape& shape = stripe->shape;
    ViewData(at, &scratch, stripe);
    // Straight to where they belong, if that is one piece.
    const std::span<uint8_t> rest = parity_at->Rest();
    const bool in_place = rest.size() >= shape.parity_bytes();
    uint8_t* made[kParityShards];
    for (uint32_t i = 0; i < kParityShards; ++i) {
      made[i] = in_place ? rest.data() + i * shape.shard_bytes : scratch.Of(kDataShardsMax + i);
      stripe->shards[shape.data_shards + i] = made[i];
    }
    Multiply(shape.shard_bytes, shape.data_shards, kParityShards, CodeFor(shape.data_shards).parity_tables.data(),
             stripe->shards, made);
    uint8_t checksums[kShardsMax * 8];
    for (uint32_t shard = 0; shard < shape.shards(); ++shard) {
      StoreLe<uint64_t>(checksums + shard * 8, stripe->ChecksumOf(shard));
    }
    if (in_place) {
      parity_at->Advance(kParityShards * shape.shard_bytes);
    } else {
      for (uint8_t* shard : made) parity_at->Write(shard, shape.shard_bytes);
    }
    parity_at->Write(checksums, shape.shards() * 8);
    return true;
  });
}

bool ParityAgrees(const RunBytes& data, const RunBytes& parity) {
  Scratch scratch;
  bool agrees = true;
  VisitStripes(data, parity, [&](Stripe* stripe, SpanCursor<const uint8_t>* at, SpanCursor<const uint8_t>* parity_at) {
    ViewData(at, &scratch, stripe);
    ViewParity(parity_at, &scratch, stripe);
    agrees = WrongShards(*stripe).empty();
    return agrees;
  });
  return agrees;
}

EccOutcome CorrectInPlace(const MutableRunBytes& data, const MutableRunBytes& parity) {
  EccOutcome outcome;
  Scratch scratch, repairs;
  VisitStripes(data, parity, [&](Stripe* stripe, SpanCursor<uint8_t>* at, SpanCursor<uint8_t>* parity_at) {
    const SpanCursor<uint8_t> start = *at, parity_start = *parity_at;
    ViewData(at, &scratch, stripe);
    ViewParity(parity_at, &scratch, stripe);
    const Wrong wrong = WrongShards(*stripe);
    if (wrong.empty()) return true;
    uint8_t* const rebuilt[kParityShards] = {repairs.Of(2), repairs.Of(3)};  // Rebuild itself uses the first two.
    if (wrong.size() > kParityShards || !Rebuild(*stripe, wrong, rebuilt, &repairs)) {
      outcome.uncorrectable += wrong.size();
      return true;
    }
    WriteRepairs(*stripe, wrong, rebuilt, start, parity_start);
    outcome.corrected += wrong.size();
    return true;
  });
  return outcome;
}

}  // namespace firn::rs
