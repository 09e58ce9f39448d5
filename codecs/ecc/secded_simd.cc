// Check bytes by tables of half bytes: the bytes of 16 words are turned so that a vector holds one position of them
// all.
#include <array>

#include "codecs/ecc/secded.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codecs/ecc/secded_simd.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#ifndef FIRN_SECDED_HALF_BYTES
#define FIRN_SECDED_HALF_BYTES
namespace firn::secded {
// [2 * position + half][value]: the check byte of a word that is 0 but for that half of that byte.
alignas(16) inline constexpr auto kHalfByteChecks = [] {
  std::array<std::array<uint8_t, 16>, 2 * kWordBytes> checks{};
  for (size_t half = 0; half < checks.size(); ++half) {
    for (uint32_t value = 0; value < 16; ++value) {
      for (uint32_t bit = 0; bit < 4; ++bit) {
        if (value >> bit & 1u) checks[half][value] ^= kColumns[half * 4 + bit];
      }
    }
  }
  return checks;
}();
}  // namespace firn::secded
#endif

HWY_BEFORE_NAMESPACE();
namespace firn {
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

void EncodeSecdedTarget(const uint8_t* data, size_t words, uint8_t* checks) {
  secded::EncodeReference(data, words, checks);
}

#else

namespace hn = hwy::HWY_NAMESPACE;
// 16 words: eight vectors of 16 bytes, or eight halves of twice that. Not used where there is no table lookup.
[[maybe_unused]] constexpr size_t kBlockBytes = 128;

#if HWY_ARCH_X86 && HWY_MAX_BYTES >= 32
// Wider vectors are left to processors that have matrix products of bytes, as nearly all do that have them.
using SecdedTag = hn::FixedTag<uint8_t, 32>;

// Either half from a block of its own, so that the results are in order.
HWY_INLINE hn::Vec<SecdedTag> LoadBlocks(SecdedTag d, const uint8_t* from) {
  const hn::Half<SecdedTag> half;
  return hn::Combine(d, hn::LoadU(half, from + kBlockBytes), hn::LoadU(half, from));
}
#else
using SecdedTag = hn::FixedTag<uint8_t, 16>;

HWY_INLINE hn::Vec<SecdedTag> LoadBlocks(SecdedTag d, const uint8_t* from) { return hn::LoadU(d, from); }
#endif

HWY_INLINE hn::Vec<SecdedTag> ChecksOfBlocks(SecdedTag d, const uint8_t* from) {
  hn::Vec<SecdedTag> v0 = LoadBlocks(d, from), v1 = LoadBlocks(d, from + 16), v2 = LoadBlocks(d, from + 32),
                     v3 = LoadBlocks(d, from + 48), v4 = LoadBlocks(d, from + 64), v5 = LoadBlocks(d, from + 80),
                     v6 = LoadBlocks(d, from + 96), v7 = LoadBlocks(d, from + 112);
  // The place of a byte is [word: 4 bits | position: 3 bits], the upper three bits of it the vector. Each stage turns
  // it left by a bit; after four it is [position | word].
  for (int stage = 0; stage < 4; ++stage) {
    const auto u0 = hn::InterleaveLower(d, v0, v4), u1 = hn::InterleaveUpper(d, v0, v4);
    const auto u2 = hn::InterleaveLower(d, v1, v5), u3 = hn::InterleaveUpper(d, v1, v5);
    const auto u4 = hn::InterleaveLower(d, v2, v6), u5 = hn::InterleaveUpper(d, v2, v6);
    const auto u6 = hn::InterleaveLower(d, v3, v7), u7 = hn::InterleaveUpper(d, v3, v7);
    v0 = u0, v1 = u1, v2 = u2, v3 = u3, v4 = u4, v5 = u5, v6 = u6, v7 = u7;
  }
  const auto low_half = hn::Set(d, 15);
  const auto checks_of = [&](hn::Vec<SecdedTag> bytes, size_t position) HWY_ATTR {
    const auto low = hn::LoadDup128(d, secded::kHalfByteChecks[2 * position].data());
    const auto high = hn::LoadDup128(d, secded::kHalfByteChecks[2 * position + 1].data());
    return hn::Xor(hn::TableLookupBytes(low, hn::And(bytes, low_half)),
                   hn::TableLookupBytes(high, hn::ShiftRight<4>(bytes)));
  };
  return hn::Xor(hn::Xor(hn::Xor(checks_of(v0, 0), checks_of(v1, 1)), hn::Xor(checks_of(v2, 2), checks_of(v3, 3))),
                 hn::Xor(hn::Xor(checks_of(v4, 4), checks_of(v5, 5)), hn::Xor(checks_of(v6, 6), checks_of(v7, 7))));
}

void EncodeSecdedTarget(const uint8_t* data, size_t words, uint8_t* checks) {
  const SecdedTag d;
  constexpr size_t kStep = hn::MaxLanes(SecdedTag());  // A check byte a lane.
  size_t i = 0;
  for (; i + kStep <= words; i += kStep) {
    const uint8_t* from = data + i * secded::kWordBytes;
    for (size_t line = 0; line < kStep * secded::kWordBytes; line += 64) {
      hwy::Prefetch(from + secded::kPrefetchBytes + line);
    }
    hn::StoreU(ChecksOfBlocks(d, from), d, checks + i);
  }
  secded::EncodeReference(data + i * secded::kWordBytes, words - i, checks + i);
}

#endif
}  // namespace HWY_NAMESPACE
}  // namespace firn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace firn {
HWY_EXPORT(EncodeSecdedTarget);
namespace secded {
void EncodeVectors(const uint8_t* data, size_t words, uint8_t* checks) {
  HWY_DYNAMIC_DISPATCH(EncodeSecdedTarget)(data, words, checks);
}
}  // namespace secded
}  // namespace firn
#endif
