// The scalar reference of the code of signs and magnitudes: the definition that SIMD must match byte for byte.

#include "codecs/ladder/gain/gain_format.h"
#include "codecs/ladder/ladder_codec.h"
#include "codecs/ladder/row_reference.h"

namespace firn::ladder {

void EncodeGainReference(const EncodeTile& tile) {
  EncodeRowsReference(tile, gain::kLimits, [&](const int32_t* steps, uint8_t* codes, RowSums* sums) {
    for (uint32_t c = 0; c < tile.width; ++c) {
      codes[c] = gain::CodeOf(steps[c]);
      int64_t magnitude = std::abs(steps[c]);
      sums->two_products += magnitude * gain::kTwoBitLevel[codes[c] >> 6 & 1u];
      sums->four_products += magnitude * gain::kFourBitLevel[codes[c] >> 4 & 7u];
    }
    return uint8_t{0};
  });
}

void DecodeGainReference(const DecodeTile& tile) {
  DecodeRowsReference(tile, [&](const uint8_t* codes, uint8_t, float* levels) {
    for (uint32_t c = 0; c < tile.width; ++c) levels[c] = gain::LevelOf(codes[c], tile.precision);
  });
}

Survey SurveyGainReference(const EncodeTile& tile) { return SurveyRowsReference(tile, gain::kLimits); }

}  // namespace firn::ladder
