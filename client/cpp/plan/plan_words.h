// The words of plan files: names of methods and codecs, ranges of numbers, runs of equal classes. Threads: pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "firnkv/plan_file.h"
#include "firnkv/types.h"

namespace firnkv {

inline constexpr uint32_t kPlanRulesMax = 34;
inline constexpr uint32_t kPlanTargetsMax = 16;
inline constexpr uint32_t kLayerEntriesMax = 1024;
inline constexpr uint32_t kLayersMax = 1024, kHeadsMax = 4096;  // Of a block.
inline constexpr size_t kTierNameBytesMax = 1024;

// What is done to a row, and how it is coded: one flag of a coding, by its key.
struct FlagWord {
  std::string_view key;
  bool Coding::*field;
};
std::span<const FlagWord> FlagWords();

// What a codec may be asked for. The daemon checks the same against its table of codecs.
struct CodecWord {
  enum class Group : uint8_t { kNone, kOptional, kNeeded };

  std::string_view name;
  Codec codec;
  uint32_t bits_least, bits_most;  // 0: it has one precision, `own`.
  Precision own;
  Group group;
  bool outliers;
  bool symmetric, calibrated;  // Which flags it has; transforms of rows are for all but `channels_alone`.
  bool channels_alone;
  bool artifact;             // Needs one in any case.
  bool heads_alike = false;  // Scales or outliers are shared by the heads of a layer: one precision for all.

  bool Has(Precision precision) const;
  std::string Precisions() const;  // "int8, int4, int3, int2"
};
std::span<const CodecWord> CodecWords();
// Null for a codec that this library does not know.
const CodecWord* WordOf(Codec codec);
const CodecWord* FindCodecWord(std::string_view name);
// Whether a coding cannot be read without an artifact.
bool UsesArtifact(const Coding& coding);

std::string_view KeyMethodName(KeyMethod method);  // "per-channel", "balanced", "rotated"
std::string_view LadderName(Ladder ladder);        // "min-max", "gain", "trellis"

// "0-1,30-31"; "all" is the empty list. Nothing unless they ascend without touching each other's numbers, up to `most`.
std::optional<std::vector<NumberRange>> ParseRanges(std::string_view text, uint32_t most);
std::string RangesText(std::span<const NumberRange> ranges);
// `number` is above all that are there.
void AddNumber(std::vector<NumberRange>* ranges, uint32_t number);

// "int8 x 16" for each run of equal classes; a run of one is "int8".
std::vector<std::string> ClassRuns(std::span<const Precision> classes);
// Nothing where one is neither, or they are more than kLayersMax * kHeadsMax.
std::optional<std::vector<Precision>> ParseClassRuns(std::span<const std::string> runs);

}  // namespace firnkv
