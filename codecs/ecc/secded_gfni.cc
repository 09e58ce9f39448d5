// Check bytes by products with 8 x 8 bit matrices, eight bytes of the same position in each 64-bit lane.
//
// Written for one instruction set and compiled by function attributes: Highway 1.0.3 has no such products, and a
// processor can have its other 512-bit targets without them.
#include "codecs/ecc/secded.h"

#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 reports it falsely for the "undefined" vectors inside its own header.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#define FIRN_GFNI __attribute__((target("avx512f,avx512bw,avx512vbmi,gfni")))
#endif

namespace firn::secded {

#if defined(__x86_64__)
namespace {

// For each position the matrix whose product with the byte there is the byte's part of the check byte. The processor
// wants the row of check bit 7 in its lowest byte.
alignas(64) constexpr auto kMatrices = [] {
  std::array<uint64_t, kWordBytes> matrices{};
  for (uint32_t bit = 0; bit < 64; ++bit) {
    for (uint32_t check = 0; check < 8; ++check) {
      if (kColumns[bit] >> check & 1u) matrices[bit / 8] |= uint64_t{1} << (8 * (7 - check) + bit % 8);
    }
  }
  return matrices;
}();

// Byte p of word w goes to byte w of lane p.
alignas(64) constexpr auto kTurn = [] {
  std::array<uint8_t, 64> turn{};
  for (uint8_t i = 0; i < 64; ++i) turn[i] = static_cast<uint8_t>(i % 8 * 8 + i / 8);
  return turn;
}();

constexpr size_t kVectorWords = 8, kBatch = 8;

struct Constants {
  __m512i turn, matrices;
};

// Eight words: lane p has the parts of position p, still to be summed.
FIRN_GFNI inline __m512i PartsOf(const Constants& constants, const uint8_t* data) {
  const __m512i turned = _mm512_permutexvar_epi8(constants.turn, _mm512_loadu_si512(data));
  return _mm512_gf2p8affine_epi64_epi8(turned, constants.matrices, 0);
}

// The sums of both lanes of each pair: of a and b by turns.
FIRN_GFNI inline __m512i SumPairs(__m512i a, __m512i b) {
  return _mm512_xor_si512(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

// The same a size up: the two sums of neighbouring 128-bit lanes of a, then of b.
FIRN_GFNI inline __m512i SumQuarters(__m512i a, __m512i b) {
  return _mm512_xor_si512(_mm512_shuffle_i64x2(a, b, 0x88), _mm512_shuffle_i64x2(a, b, 0xDD));
}

}  // namespace

bool HasGfni() {
  return __builtin_cpu_supports("gfni") && __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512f");
}

FIRN_GFNI void EncodeGfni(const uint8_t* data, size_t words, uint8_t* checks) {
  const Constants constants = {_mm512_load_si512(kTurn.data()), _mm512_load_si512(kMatrices.data())};
  constexpr size_t kVectorBytes = kVectorWords * kWordBytes;
  size_t i = 0;
  for (; i + kBatch * kVectorWords <= words; i += kBatch * kVectorWords) {
    const uint8_t* from = data + i * kWordBytes;
    for (size_t j = 0; j < kBatch; ++j) {
      _mm_prefetch(reinterpret_cast<const char*>(from) + kPrefetchBytes + j * kVectorBytes, _MM_HINT_T0);
    }
    __m512i pairs[kBatch / 2];
    for (size_t j = 0; j < kBatch / 2; ++j) {
      pairs[j] = SumPairs(PartsOf(constants, from + 2 * j * kVectorBytes),
                          PartsOf(constants, from + (2 * j + 1) * kVectorBytes));
    }
    _mm512_storeu_si512(checks + i, SumQuarters(SumQuarters(pairs[0], pairs[1]), SumQuarters(pairs[2], pairs[3])));
  }
  for (; i + kVectorWords <= words; i += kVectorWords) {
    const __m512i pairs = SumPairs(PartsOf(constants, data + i * kWordBytes), _mm512_setzero_si512());
    const __m512i sums = SumQuarters(SumQuarters(pairs, pairs), _mm512_setzero_si512());
    _mm_storel_epi64(reinterpret_cast<__m128i*>(checks + i), _mm512_castsi512_si128(sums));
  }
  EncodeReference(data + i * kWordBytes, words - i, checks + i);
}

#else

bool HasGfni() { return false; }
void EncodeGfni(const uint8_t* data, size_t words, uint8_t* checks) { EncodeReference(data, words, checks); }

#endif

}  // namespace firn::secded
