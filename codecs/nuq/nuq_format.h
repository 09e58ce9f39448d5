// Geometry and single-value arithmetic of codebook codes (docs/formats/nuq.md): what every implementation shares.
//
// A vector is what outliers are chosen from: a group of tokens of one head (kNuqChannel), or one token of all heads
// (kNuqToken). Threads: pure functions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "codecs/nested/nested_format.h"
#include "codecs/record.h"
#include "codecs/tile.h"

namespace firn::nuq {

inline constexpr uint32_t kLevelsMax = 16;

inline uint32_t LevelCount(const PartCoding& coding) { return 1u << coding.bits; }

// Tokens of one head that a vector of kNuqChannel has, but for a shorter last one.
inline uint32_t GroupTokens(const PartCoding& coding) { return std::max<uint32_t>(coding.group, 1); }

// Values of a vector that are kept exactly: always as many, however many of them are alike.
inline uint32_t OutlierCount(const PartCoding& coding, uint64_t vector) {
  return static_cast<uint32_t>((vector * coding.outliers + 999) / 1000);
}
inline uint32_t IndexBytes(uint64_t vector) { return vector <= 65536 ? 2 : 4; }
inline uint32_t EntryBytes(const PartCoding& coding, uint64_t vector) {
  return IndexBytes(vector) + nested::MetaValueBytes(coding.meta_type);
}
inline uint64_t OutlierBytes(const PartCoding& coding, uint64_t vector) {
  return uint64_t{OutlierCount(coding, vector)} * EntryBytes(coding, vector);
}

// Between neighbouring levels; a value on one belongs to the lower level.
struct Thresholds {
  explicit Thresholds(const ModelData& model, const PartCoding& coding) : count(LevelCount(coding) - 1) {
    for (uint32_t i = 0; i < count; ++i) at[i] = (model.levels[i] + model.levels[i + 1]) * 0.5f;
  }
  uint32_t count;
  float at[kLevelsMax - 1];
};

// The number of thresholds below the value. NaN is above none.
inline uint8_t CodeOf(float value, const Thresholds& thresholds) {
  uint32_t code = 0;
  for (uint32_t i = 0; i < thresholds.count; ++i) code += value > thresholds.at[i] ? 1 : 0;
  return static_cast<uint8_t>(code);
}

// Keys that order values, so that the largest key is chosen first; 0 is less than all of them and marks what is taken.
inline uint32_t MagnitudeKey(float value) { return (FloatBits(value) & 0x7FFFFFFFu) + 1; }
inline uint32_t HighKey(float value) { return (static_cast<uint32_t>(TotalOrder(value)) ^ 0x80000000u) + 1; }
inline uint32_t LowKey(float value) { return ~(static_cast<uint32_t>(TotalOrder(value)) ^ 0x80000000u) + 1; }

// The values that outliers leave of a token: z in their middle, r to their ends, both as stored.
struct Range {
  float centre = 0, reach = 0, inverse = 0;
};
inline Range RangeOf(float lowest, float highest, MetaType type) {
  using nested::StepMin, nested::StoredNearest;
  // All alike: every code stands for that value.
  if (lowest == highest) return {StoredNearest(lowest, type), 0, 0};
  float low = lowest * 0.5f, high = highest * 0.5f;
  float reach = std::max(StoredNearest(high - low, type), StepMin(type));
  return {StoredNearest(low + high, type), reach, 1.0f / reach};
}
inline float ValueOf(float decoded, float centre, float reach) {
  return reach == 0 ? centre : centre + reach * decoded;
}

// What values of a largest magnitude ask of the type that they are stored in.
inline Survey SurveyMagnitude(float magnitude_max, MetaType type) {
  Survey survey;
  survey.non_finite = !std::isfinite(magnitude_max);
  survey.out_of_range = !(magnitude_max <= nested::kRangeMax);
  survey.needs_float = !survey.out_of_range && type == MetaType::kFp16 && magnitude_max > kHalfMax;
  return survey;
}
inline bool ReachNeedsFloat(float lowest, float highest, MetaType type) {
  if (type == MetaType::kFp32 || lowest == highest) return false;
  return highest * 0.5f - lowest * 0.5f < nested::StepMin(type);
}

inline void WriteValue(uint8_t* bytes, float value, MetaType type) {
  if (type == MetaType::kFp32) return StoreLe<float>(bytes, value);
  StoreLe<uint16_t>(bytes, type == MetaType::kFp16 ? FloatToHalf(value) : FloatToBfloat(value));
}

// Outliers of one vector, as they lie in the metadata. Damaged indices beyond the vector are passed over.
class OutlierEntries {
 public:
  OutlierEntries(const PartCoding& coding, uint64_t vector)
      : type_(coding.meta_type),
        index_bytes_(IndexBytes(vector)),
        entry_bytes_(EntryBytes(coding, vector)),
        count_(OutlierCount(coding, vector)),
        vector_(vector) {}
  // `taken` has their indices, ascending; value(i) is the source's.
  template <typename Value>
  uint8_t* Write(const uint32_t* taken, const Value& value, uint8_t* to) const {
    for (uint32_t i = 0; i < count_; ++i, to += entry_bytes_) {
      if (index_bytes_ == 2) {
        StoreLe<uint16_t>(to, static_cast<uint16_t>(taken[i]));
      } else {
        StoreLe<uint32_t>(to, taken[i]);
      }
      WriteValue(to + index_bytes_, value(taken[i]), type_);
    }
    return to;
  }
  // Calls put(index, value) for each.
  template <typename Put>
  const uint8_t* Read(const uint8_t* from, const Put& put) const {
    for (uint32_t i = 0; i < count_; ++i, from += entry_bytes_) {
      uint64_t index = index_bytes_ == 2 ? LoadLe<uint16_t>(from) : LoadLe<uint32_t>(from);
      if (index < vector_) put(index, nested::ReadMeta(from + index_bytes_, type_));
    }
    return from;
  }

 private:
  MetaType type_;
  uint32_t index_bytes_, entry_bytes_, count_;
  uint64_t vector_;
};

// Calls put(i, value) for each outlier that is the tile's value i, of kNuqChannel.
template <typename Put>
void ForChannelOutliers(const DecodeTile& tile, const Put& put) {
  const uint32_t group = GroupTokens(*tile.coding), end = tile.first_token + tile.tokens;
  const uint32_t encoded = tile.encoded_tokens > 0 ? tile.encoded_tokens : tile.tokens;
  const uint64_t skipped = uint64_t{tile.first_token} * tile.width, values = uint64_t{tile.tokens} * tile.width;
  const uint8_t* meta = tile.run(RunKind::kMeta);
  for (uint32_t first = tile.first_token / group * group; first < end; first += group) {
    const uint64_t before = uint64_t{first} * tile.width;
    const OutlierEntries entries(*tile.coding, uint64_t{std::min(group, encoded - first)} * tile.width);
    meta = entries.Read(meta, [&](uint64_t i, float value) {
      if (before + i >= skipped && before + i - skipped < values) put(before + i - skipped, value);
    });
  }
}

// The indices of the `count` largest keys, of equal ones the first, in any order; they are set to 0.
void TakeLargest(uint32_t* keys, uint32_t size, uint32_t count, uint32_t* taken);

// How many of a token's outliers are its largest values; the rest are its smallest.
inline uint32_t HighCount(uint32_t outliers) { return outliers - outliers / 2; }

}  // namespace firn::nuq
