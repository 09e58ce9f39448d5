#include "client/cpp/plan/plan_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace firnkv {
namespace {

constexpr FlagWord kFlags[] = {{"symmetric", &Coding::symmetric}, {"calibrated", &Coding::calibrated},
                               {"pre_rope", &Coding::pre_rope},   {"centred", &Coding::centred},
                               {"balanced", &Coding::balanced},   {"rotated", &Coding::rotated}};

using Group = CodecWord::Group;
constexpr Precision k8 = Precision::kInt8, k4 = Precision::kInt4, kNo = Precision::kNone;
//   name, codec, bits, own precision, group, outliers, symmetric, calibrated, channels alone, artifact, heads alike
constexpr CodecWord kCodecs[] = {
    {"fp8-e4m3", Codec::kFp8E4m3, 0, 0, k8, Group::kOptional, false, false, true, false, false},
    {"fp8-e5m2", Codec::kFp8E5m2, 0, 0, k8, Group::kOptional, false, false, true, false, false},
    {"fp8-e4m3-tensor", Codec::kFp8E4m3Tensor, 0, 0, k8, Group::kNone, false, false, false, false, false},
    {"fp8-e5m2-tensor", Codec::kFp8E5m2Tensor, 0, 0, k8, Group::kNone, false, false, false, false, false},
    {"int-token", Codec::kIntToken, 2, 8, kNo, Group::kNeeded, false, true, true, false, false},
    {"int-channel", Codec::kIntChannel, 2, 8, kNo, Group::kNeeded, false, true, false, false, false},
    {"int-tensor", Codec::kIntTensor, 2, 8, kNo, Group::kNone, false, true, true, false, false, true},
    {"nuq-channel", Codec::kNuqChannel, 2, 4, kNo, Group::kOptional, true, false, false, true, true},
    {"nuq-token", Codec::kNuqToken, 2, 4, kNo, Group::kNone, true, false, false, false, true, true},
    {"nvfp4", Codec::kNvFp4, 0, 0, k4, Group::kNone, false, false, false, false, false},
    {"mxfp4", Codec::kMxFp4, 0, 0, k4, Group::kNone, false, false, false, false, false},
};
// Its planes are 8, 4 and 2 bits; a rule that names it says nothing but the classes of heads.
constexpr CodecWord kLadderWord = {"ladder", Codec::kLadder, 2, 8, kNo, Group::kNone, false, false, false, true, false};

constexpr Precision kCoded[] = {Precision::kInt8, Precision::kInt4, Precision::kInt3, Precision::kInt2};

std::optional<uint32_t> ParseNumber(std::string_view text, uint32_t most) {
  uint32_t value = 0;
  auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size() || value > most) return std::nullopt;
  return value;
}

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

}  // namespace

std::span<const FlagWord> FlagWords() { return kFlags; }
std::span<const CodecWord> CodecWords() { return kCodecs; }

const CodecWord* WordOf(Codec codec) {
  if (codec == Codec::kLadder) return &kLadderWord;
  for (const CodecWord& word : kCodecs) {
    if (word.codec == codec) return &word;
  }
  return nullptr;
}

const CodecWord* FindCodecWord(std::string_view name) {
  for (const CodecWord& word : kCodecs) {
    if (word.name == name) return &word;
  }
  return nullptr;
}

bool CodecWord::Has(Precision precision) const {
  if (bits_most == 0) return precision == own;
  if (std::find(std::begin(kCoded), std::end(kCoded), precision) == std::end(kCoded)) return false;
  auto bits = static_cast<uint32_t>(precision);
  return bits >= bits_least && bits <= bits_most && !(codec == Codec::kLadder && precision == Precision::kInt3);
}

std::string CodecWord::Precisions() const {
  std::string text;
  for (Precision precision : kCoded) {
    if (Has(precision)) text += (text.empty() ? "" : ", ") + std::string(PrecisionName(precision));
  }
  return text;
}

bool UsesArtifact(const Coding& coding) {
  const CodecWord* word = WordOf(coding.codec);
  bool flags = coding.calibrated || coding.pre_rope || coding.centred || coding.balanced;
  return flags || (word != nullptr && word->artifact);
}

std::string_view KeyMethodName(KeyMethod method) {
  switch (method) {
    case KeyMethod::kPerChannel:
      return "per-channel";
    case KeyMethod::kBalancedRotated:
      return "balanced";
    case KeyMethod::kRotated:
      return "rotated";
  }
  return "unknown";
}

std::string_view LadderName(Ladder ladder) {
  switch (ladder) {
    case Ladder::kMinMax:
      return "min-max";
    case Ladder::kGain:
      return "gain";
    case Ladder::kTrellis:
      return "trellis";
  }
  return "unknown";
}

std::optional<std::vector<NumberRange>> ParseRanges(std::string_view text, uint32_t most) {
  std::vector<NumberRange> ranges;
  if (text == "all") return ranges;
  while (true) {
    size_t comma = text.find(',');
    std::string_view item = Trimmed(text.substr(0, comma));
    size_t dash = item.find('-');
    auto first = ParseNumber(Trimmed(item.substr(0, dash)), most);
    auto last = dash == std::string_view::npos ? first : ParseNumber(Trimmed(item.substr(dash + 1)), most);
    if (!first.has_value() || !last.has_value() || *last < *first) return std::nullopt;
    if (!ranges.empty() && *first <= ranges.back().last) return std::nullopt;
    ranges.push_back({*first, *last});
    if (comma == std::string_view::npos) return ranges;
    text.remove_prefix(comma + 1);
  }
}

std::string RangesText(std::span<const NumberRange> ranges) {
  if (ranges.empty()) return "all";
  std::string text;
  for (const NumberRange& range : ranges) {
    if (!text.empty()) text += ',';
    text += range.first == range.last ? fmt::format("{}", range.first) : fmt::format("{}-{}", range.first, range.last);
  }
  return text;
}

void AddNumber(std::vector<NumberRange>* ranges, uint32_t number) {
  if (!ranges->empty() && ranges->back().last + 1 == number) {
    ranges->back().last = number;
  } else {
    ranges->push_back({number, number});
  }
}

std::vector<std::string> ClassRuns(std::span<const Precision> classes) {
  std::vector<std::string> runs;
  for (size_t first = 0; first < classes.size();) {
    size_t end = first;
    while (end < classes.size() && classes[end] == classes[first]) ++end;
    std::string_view name = PrecisionName(classes[first]);
    runs.push_back(end - first == 1 ? std::string(name) : fmt::format("{} x {}", name, end - first));
    first = end;
  }
  return runs;
}

std::optional<std::vector<Precision>> ParseClassRuns(std::span<const std::string> runs) {
  std::vector<Precision> classes;
  for (const std::string& run : runs) {
    size_t times = run.find(" x ");
    auto precision = PrecisionFromName(run.substr(0, times));
    std::optional<uint32_t> count = 1;
    if (times != std::string::npos)
      count = ParseNumber(std::string_view(run).substr(times + 3), kLayersMax * kHeadsMax);
    if (!precision.has_value() || std::find(std::begin(kCoded), std::end(kCoded), *precision) == std::end(kCoded) ||
        !count.has_value() || *count == 0 || classes.size() + *count > uint64_t{kLayersMax} * kHeadsMax) {
      return std::nullopt;
    }
    classes.insert(classes.end(), *count, *precision);
  }
  return classes;
}

}  // namespace firnkv
