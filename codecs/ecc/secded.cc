#include "codecs/ecc/secded.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "codecs/ecc/span_cursor.h"

namespace firn::secded {
namespace {

using ecc::SpanCursor;

// The check byte of a word that has `value` in byte `position` and is 0 elsewhere.
constexpr auto kByteChecks = [] {
  std::array<std::array<uint8_t, 256>, kWordBytes> checks{};
  for (uint32_t position = 0; position < kWordBytes; ++position) {
    for (uint32_t value = 1; value < 256; ++value) {
      const uint32_t lowest = static_cast<uint32_t>(std::countr_zero(value));
      checks[position][value] =
          static_cast<uint8_t>(checks[position][value & (value - 1)] ^ kColumns[position * 8 + lowest]);
    }
  }
  return checks;
}();

// What a syndrome says: a data bit, kCheckBit + n for a bit of the check byte, or kNoBit.
constexpr uint8_t kCheckBit = 64, kNoBit = 255;
constexpr std::array<uint8_t, 256> kBitOf = [] {
  std::array<uint8_t, 256> bits{};
  bits.fill(kNoBit);
  for (uint8_t bit = 0; bit < 64; ++bit) bits[kColumns[bit]] = bit;
  for (uint8_t bit = 0; bit < 8; ++bit) bits[size_t{1} << bit] = static_cast<uint8_t>(kCheckBit + bit);
  return bits;
}();

constexpr uint8_t CheckOf(const uint8_t* word) {
  uint8_t check = 0;
  for (uint32_t i = 0; i < kWordBytes; ++i) check ^= kByteChecks[i][word[i]];
  return check;
}

// Calls visit(data, words, checks, data_bytes) for stretches of whole words, and for words that are cut by the end of a
// span or of the run, one by one, as copies that are written back where they were changed. Stops where visit says
// false.
template <typename Byte, typename CheckByte, typename Visit>
void VisitWords(const Scattered<Byte>& data, const Scattered<CheckByte>& parity, Visit visit) {
  SpanCursor<Byte> at(data);
  SpanCursor<CheckByte> check_at(parity);
  for (std::span<Byte> piece = at.Rest(); !piece.empty(); piece = at.Rest()) {
    const std::span<CheckByte> checks = check_at.Rest();
    const size_t words = std::min(piece.size() / kWordBytes, checks.size());
    if (words > 0) {
      if (!visit(piece.data(), words, checks.data(), words * kWordBytes)) return;
      at.Advance(words * kWordBytes);
      check_at.Advance(words);
      continue;
    }
    const SpanCursor<Byte> start = at;
    uint8_t before[kWordBytes] = {};
    const size_t bytes = at.Read(kWordBytes, before);
    uint8_t word[kWordBytes];
    std::memcpy(word, before, kWordBytes);
    const bool go_on = visit(word, 1, checks.data(), bytes);
    if constexpr (!std::is_const_v<Byte>) {
      if (std::memcmp(word, before, kWordBytes) != 0) SpanCursor<Byte>(start).Write(word, bytes);
    }
    if (!go_on) return;
    check_at.Advance(1);
  }
}

// Stretches whose check bytes differ from those computed go to `differs(data, words, checks, computed, data_bytes)`.
template <typename Byte, typename CheckByte, typename Differs>
bool CompareWords(EncodeWords encode, Byte* data, size_t words, CheckByte* checks, size_t data_bytes, Differs differs) {
  constexpr size_t kStretchWords = 1024;  // What is read stays in the first-level cache until it is repaired.
  uint8_t computed[kStretchWords];
  for (size_t first = 0; first < words; first += kStretchWords) {
    const size_t count = std::min(kStretchWords, words - first);
    encode(data + first * kWordBytes, count, computed);
    if (std::memcmp(computed, checks + first, count) == 0) continue;
    const size_t bytes = std::min(count * kWordBytes, data_bytes - first * kWordBytes);
    if (!differs(data + first * kWordBytes, count, checks + first, computed, bytes)) return false;
  }
  return true;
}

// Repairs what a syndrome other than 0 tells, if it tells anything. Bits behind `data_bits` are not there to be wrong.
void FixWord(uint8_t syndrome, uint64_t data_bits, uint8_t* word, uint8_t* check, EccOutcome* outcome) {
  const uint8_t bit = kBitOf[syndrome];
  if (bit == kNoBit || (bit < kCheckBit && bit >= data_bits)) {
    ++outcome->uncorrectable;
    return;
  }
  if (bit < kCheckBit) {
    word[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
  } else {
    *check ^= syndrome;
  }
  ++outcome->corrected;
}

}  // namespace

std::string_view PathName(Path path) {
  switch (path) {
    case Path::kReference:
      return "reference";
    case Path::kVectors:
      return "vectors";
    case Path::kGfni:
      return "gfni";
  }
  FIRN_CHECK(false);
}

const std::vector<Path>& Paths() {
  static const std::vector<Path> paths = [] {
    std::vector<Path> found = {Path::kReference, Path::kVectors};
    if (HasGfni()) found.push_back(Path::kGfni);
    return found;
  }();
  return paths;
}

EncodeWords EncoderOf(Path path) {
  switch (path) {
    case Path::kReference:
      return EncodeReference;
    case Path::kVectors:
      return EncodeVectors;
    case Path::kGfni:
      FIRN_CHECK(HasGfni());
      return EncodeGfni;
  }
  FIRN_CHECK(false);
}

void EncodeReference(const uint8_t* data, size_t words, uint8_t* checks) {
  for (size_t i = 0; i < words; ++i) checks[i] = CheckOf(data + i * kWordBytes);
}

uint64_t ParityBytes(uint64_t data_bytes) { return data_bytes / kWordBytes + (data_bytes % kWordBytes != 0); }

void ComputeParity(Path path, const RunBytes& data, const MutableRunBytes& parity) {
  const EncodeWords encode = EncoderOf(path);
  VisitWords(data, parity, [&](const uint8_t* from, size_t words, uint8_t* checks, size_t) {
    encode(from, words, checks);
    return true;
  });
}

bool ParityAgrees(Path path, const RunBytes& data, const RunBytes& parity) {
  const EncodeWords encode = EncoderOf(path);
  bool agrees = true;
  VisitWords(data, parity, [&](const uint8_t* from, size_t words, const uint8_t* checks, size_t bytes) {
    agrees = CompareWords(encode, from, words, checks, bytes,
                          [](const uint8_t*, size_t, const uint8_t*, const uint8_t*, size_t) { return false; });
    return agrees;
  });
  return agrees;
}

EccOutcome CorrectInPlace(Path path, const MutableRunBytes& data, const MutableRunBytes& parity) {
  const EncodeWords encode = EncoderOf(path);
  EccOutcome outcome;
  auto fix = [&](uint8_t* from, size_t words, uint8_t* checks, const uint8_t* computed, size_t bytes) {
    for (size_t i = 0; i < words; ++i) {
      const uint8_t syndrome = checks[i] ^ computed[i];
      if (syndrome == 0) continue;
      const uint64_t data_bits = 8 * std::min<uint64_t>(kWordBytes, bytes - i * kWordBytes);
      FixWord(syndrome, data_bits, from + i * kWordBytes, checks + i, &outcome);
    }
    return true;
  };
  VisitWords(data, parity, [&](uint8_t* from, size_t words, uint8_t* checks, size_t bytes) {
    return CompareWords(encode, from, words, checks, bytes, fix);
  });
  return outcome;
}

}  // namespace firn::secded
