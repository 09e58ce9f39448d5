// From TOML to PlanFile: names, types, ranges, and what a codec may be asked for.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "base/digest.h"
#include "base/read_file.h"
#include "base/status.h"
#include "base/toml/toml_section.h"
#include "client/cpp/plan/plan_words.h"
#include "firnkv/plan_file.h"

namespace firnkv {
namespace {

using firn::TomlSection;

constexpr size_t kPlanBytesMax = size_t{1} << 20;
constexpr size_t kPathBytesMax = 4000;
constexpr uint64_t kArtifactBytesMax = uint64_t{1} << 28;
constexpr uint64_t kRankingBytesMax = uint64_t{1} << 20;
constexpr uint32_t kRecentTokensMax = uint32_t{1} << 20;
constexpr std::string_view kArtifactMagic = "FVAR";

template <typename Names>
std::string OneOf(const Names& names) {
  return fmt::format("allowed: \"{}\"", fmt::join(names, "\", \""));
}

class PlanReader {
 public:
  explicit PlanReader(const std::string& folder) : folder_(folder) {}

  PlanFile Read(TomlSection& root);

 private:
  void ReadArtifact(TomlSection& section, std::string_view key, std::optional<Digest>* out);
  void ReadArtifactFile(TomlSection& section, std::optional<Digest>* out);
  std::vector<LayerClasses> ReadRanking(TomlSection& root);
  void ReadPreset(TomlSection& root);
  void ReadMethods(TomlSection& root);
  void ReadTargets(TomlSection& root);
  void ReadRule(TomlSection& section);
  void ReadCoding(TomlSection& section, const CodecWord& word, Coding* coding);
  void ReadLayers(TomlSection& section);
  void ReadBoundary(TomlSection& root);
  static FilePlace PlaceOf(const TomlSection& section) {
    std::string_view prefix = section.prefix();  // With a dot at its end.
    return {.entry = std::string(prefix.substr(0, prefix.size() - 1)), .line = section.line()};
  }
  std::string PathOf(const std::string& name) const {
    return folder_.empty() ? name : (std::filesystem::path(folder_) / name).string();
  }

  const std::string& folder_;
  PlanFile file_;
  std::string preset_;
  size_t preset_rules_ = 0;  // Those at the end that came from the preset, which rules of the file replace.
};

// One precision, or one for K and one for V, each finer than or as fine as `least`.
void ReadPrecisions(TomlSection& section, std::string_view key, Precision least, PrecisionPair* out) {
  std::vector<std::string_view> names;
  for (Precision p :
       {Precision::kExact, Precision::kInt8, Precision::kInt4, Precision::kInt3, Precision::kInt2, Precision::kNone}) {
    if (p >= least) names.push_back(PrecisionName(p));
  }
  const std::string allowed = OneOf(names) + ", or { k = ..., v = ... } of these";
  std::string k, v;
  if (!section.Pair(key, &k, &v, allowed)) return;
  auto of_k = PrecisionFromName(k), of_v = PrecisionFromName(v);
  if (!of_k.has_value() || !of_v.has_value() || *of_k < least || *of_v < least) return section.Error(key, allowed);
  *out = {*of_k, *of_v};
}

// The precision of a head.
void ReadClass(TomlSection& section, std::string_view key, std::optional<Precision>* out) {
  std::string name;
  section.Choice(key, &name, {"int8", "int4", "int3", "int2"});
  if (!name.empty()) *out = PrecisionFromName(name);
}

// Leaves `out` alone, and true, where the key is absent.
void ReadRanges(TomlSection& section, std::string_view key, uint32_t count_max, std::vector<NumberRange>* out) {
  std::string text;
  section.String(key, &text, 8192);
  if (text.empty()) return;
  auto ranges = ParseRanges(text, count_max - 1);
  if (!ranges.has_value()) {
    return section.Error(
        key, fmt::format("allowed: \"all\", or ascending numbers and ranges of 0 to {}, as in \"0-1,30-31\"",
                         count_max - 1));
  }
  *out = *std::move(ranges);
}

void PlanReader::ReadArtifactFile(TomlSection& section, std::optional<Digest>* out) {
  std::string name;
  section.String("file", &name, kPathBytesMax);
  if (!section.Has("file")) section.Error("file", "missing; allowed: the path of an artifact");
  if (name.empty()) return;
  auto bytes = firn::ReadSmallFile(PathOf(name), kArtifactBytesMax);
  if (!bytes.ok()) return section.Error("file", firn::Message(bytes.status()));
  if (!bytes->starts_with(kArtifactMagic)) {
    return section.Error("file", "is no artifact; allowed: what `firn calibrate` or `firn import-scales` wrote");
  }
  Digest digest{firn::Sha256(firn::AsBytes(*bytes)).bytes};
  *out = digest;
  auto known = [&](const ArtifactFile& file) { return file.digest == digest; };
  if (std::any_of(file_.artifacts.begin(), file_.artifacts.end(), known)) return;
  file_.artifacts.push_back({.digest = digest, .path = PathOf(name), .serialized = *std::move(bytes)});
}

void PlanReader::ReadArtifact(TomlSection& section, std::string_view key, std::optional<Digest>* out) {
  if (section.IsTable(key)) {
    return section.Section(key, [&](TomlSection& table) { ReadArtifactFile(table, out); });
  }
  std::string hex;
  section.String(key, &hex, 64);
  if (hex.empty()) return;
  auto digest = Digest::FromHex(hex);
  if (!digest.has_value()) {
    return section.Error(key, "allowed: an artifact's name of 64 hexadecimal digits, or { file = \"PATH\" }");
  }
  *out = digest;
}

std::vector<LayerClasses> PlanReader::ReadRanking(TomlSection& root) {
  std::string name;
  RankingOptions options;
  if (root.IsTable("ranking")) {
    root.Section("ranking", [&](TomlSection& table) {
      table.String("file", &name, kPathBytesMax);
      if (!table.Has("file")) table.Error("file", "missing; allowed: the path of a ranking");
      table.Share("share", &options.share);
    });
  } else {
    root.String("ranking", &name, kPathBytesMax);
  }
  if (name.empty()) return {};
  options.source = PathOf(name);
  auto text = firn::ReadSmallFile(options.source, kRankingBytesMax);
  auto ranking = text.ok() ? ParseRanking(*text, options) : text.status();
  if (ranking.ok()) return *std::move(ranking);
  root.Error("ranking", firn::Message(ranking.status()));
  return {};
}

void PlanReader::ReadPreset(TomlSection& root) {
  root.String("preset", &preset_, 64);
  PresetArtifacts artifacts;
  root.Section("artifacts", [&](TomlSection& section) {
    ReadArtifact(section, "keys", &artifacts.keys);
    ReadArtifact(section, "values", &artifacts.values);
  });
  if (preset_.empty()) {
    if (root.Has("artifacts")) {
      root.Error("artifacts",
                 "only a preset uses them; a plan of your own has balance_artifact, and artifact in rules");
    }
    if (root.Has("ranking"))
      root.Error("ranking", "only preset = \"kvmix\" uses it; a plan of your own has [[layers]]");
    return;
  }
  std::vector<LayerClasses> ranking = ReadRanking(root);
  auto made = PresetPlan(preset_, artifacts, ranking);
  if (!made.ok()) return root.Error("preset", firn::Message(made.status()));
  file_.plan = std::move(made->plan);
  file_.layers = std::move(made->layers);
  file_.ranked = std::move(made->ranked);
  preset_rules_ = file_.plan.rules.size();
}

void PlanReader::ReadMethods(TomlSection& root) {
  PrecisionPlan& plan = file_.plan;
  std::string word;
  root.Choice("key_method", &word, {"per-channel", "balanced", "rotated"});
  for (KeyMethod method : {KeyMethod::kPerChannel, KeyMethod::kBalancedRotated, KeyMethod::kRotated}) {
    if (word == KeyMethodName(method)) plan.key_method = method;
  }
  word.clear();
  root.Choice("ladder", &word, {"min-max", "gain", "trellis"});
  for (Ladder ladder : {Ladder::kMinMax, Ladder::kGain, Ladder::kTrellis}) {
    if (word == LadderName(ladder)) plan.ladder = ladder;
  }
  ReadArtifact(root, "balance_artifact", &plan.balance_artifact);
  if (plan.key_method == KeyMethod::kBalancedRotated && !plan.balance_artifact.has_value()) {
    root.Error("key_method", "needs balance_artifact, the artifact of keys");
  }
  if (plan.key_method != KeyMethod::kBalancedRotated && plan.balance_artifact.has_value()) {
    root.Error("balance_artifact", "allowed: with key_method = \"balanced\" alone");
  }
  root.Count("key_group", &plan.key_group, 0, 4096);
  root.Count("value_group", &plan.value_group, 0, 4096);
  root.Count("keep_first_tokens", &plan.keep_first_tokens, 0, 65536);
  root.Number("important_fraction", &plan.important_fraction, 0, 1);
  root.Count("recent_tokens", &plan.recent_tokens, 0, kRecentTokensMax);
  ReadPrecisions(root, "floor", Precision::kNone, &plan.floor);
  // Its trellis is for the bits that such a floor never goes down to: at 8 bits the simpler code is more precise.
  bool only_fine = plan.floor.k >= Precision::kInt8 && plan.floor.v >= Precision::kInt8;
  if (preset_ == "firn" && only_fine && word.empty()) plan.ladder = Ladder::kMinMax;
  root.Number("max_error", &plan.max_relative_error, 0, std::numeric_limits<float>::max());
}

void PlanReader::ReadTargets(TomlSection& root) {
  root.Section("targets", [&](TomlSection& section) {
    for (const std::string& tier : section.Keys()) {
      if (tier.empty() || tier.size() > kTierNameBytesMax) {
        section.Error(tier, fmt::format("allowed: a tier's name of 1 to {} bytes", kTierNameBytesMax));
        continue;
      }
      PrecisionPair target;
      ReadPrecisions(section, tier, Precision::kInt2, &target);
      if (target.Min() == Precision::kNone) continue;
      file_.plan.tier_target[tier] = target;
      file_.places.targets[tier] = PlaceOf(section);
      const PrecisionPair& floor = file_.plan.floor;
      if (target.k >= floor.k && target.v >= floor.v) continue;
      section.Error(tier, fmt::format("coarser than the floor; allowed: at least k = \"{}\", v = \"{}\"",
                                      PrecisionName(floor.k), PrecisionName(floor.v)));
    }
    if (file_.plan.tier_target.size() > kPlanTargetsMax) {
      root.Error("targets",
                 fmt::format("names {} tiers; allowed: at most {}", file_.plan.tier_target.size(), kPlanTargetsMax));
    }
  });
}

void PlanReader::ReadCoding(TomlSection& section, const CodecWord& word, Coding* coding) {
  coding->codec = word.codec;
  section.Count("bits", &coding->bits, 2, 8);
  section.Count("group", &coding->group, 0, 65535);
  section.Count("outliers_per_mille", &coding->outliers_per_mille, 0, 50);
  for (const FlagWord& flag : FlagWords()) section.Bool(flag.key, &(coding->*flag.field));
  ReadArtifact(section, "artifact", &coding->artifact);

  auto refuse = [&](std::string_view key, std::string_view what) {
    section.Error(key, fmt::format("codec \"{}\": {}", word.name, what));
  };
  if (word.bits_most == 0 && coding->bits != 0) refuse("bits", "has one precision; allowed: no bits");
  if (word.bits_most != 0 && (coding->bits == 0 || !word.Has(static_cast<Precision>(coding->bits)))) {
    refuse("bits", word.bits_most == 8 ? "allowed: 8, 4, 3, 2" : "allowed: 4, 3, 2");
  }
  bool grouped = word.group != CodecWord::Group::kNone && !coding->calibrated;
  if (coding->group != 0 && !grouped) refuse("group", "has no groups of its own; allowed: 0");
  if (coding->group == 0 && grouped && word.group == CodecWord::Group::kNeeded) {
    refuse("group", "allowed: 1 to 65535 values that share a scale");
  }
  if (coding->outliers_per_mille != 0 && !word.outliers) refuse("outliers_per_mille", "keeps none; allowed: 0");
  if (coding->symmetric && !word.symmetric) refuse("symmetric", "allowed: false");
  if (coding->calibrated && !word.calibrated) refuse("calibrated", "allowed: false");
  if (coding->calibrated && word.symmetric && (!coding->symmetric || coding->bits != 8)) {
    refuse("calibrated", "allowed: with symmetric = true and bits = 8");
  }
  if (word.channels_alone && (coding->centred || coding->balanced || coding->rotated)) {
    refuse(coding->rotated ? "rotated" : coding->balanced ? "balanced" : "centred", "allowed: false");
  }
  if (UsesArtifact(*coding) != coding->artifact.has_value()) {
    refuse("artifact", coding->artifact.has_value() ? "has no use for one" : "missing; it cannot be coded without");
  }
}

void PlanReader::ReadRule(TomlSection& section) {
  TierRule rule;
  section.String("tier", &rule.tier, kTierNameBytesMax);
  std::string part, codec = "ladder";
  section.Choice("part", &part, {"k", "v"});
  if (!section.Has("part")) section.Error("part", "missing; allowed: \"k\", \"v\"");
  rule.part = part == "v" ? Part::kV : Part::kK;
  std::vector<std::string> names = {"ladder"};
  for (const CodecWord& word : CodecWords()) names.emplace_back(word.name);
  section.Choice("codec", &codec, names);
  std::vector<std::string> runs;
  section.Strings("heads", &runs, size_t{kLayersMax} * kHeadsMax);
  const CodecWord* word = codec == "ladder" ? WordOf(Codec::kLadder) : FindCodecWord(codec);
  if (codec != "ladder") ReadCoding(section, *word, &rule.coding);
  auto classes = ParseClassRuns(runs);
  auto has = [&](Precision precision) { return word->bits_most != 0 && !word->heads_alike && word->Has(precision); };
  if (!classes.has_value() || !std::all_of(classes->begin(), classes->end(), has)) {
    std::string precisions = word->bits_most == 0 ? "none, the codec has one precision"
                             : word->heads_alike  ? "none, the codec has one precision for all heads"
                                                  : word->Precisions();
    section.Error("heads", fmt::format("allowed: a list of precisions ({}), each alone or as in \"int4 x 16\", one for "
                                       "each layer's heads, at most {} in all",
                                       precisions, uint64_t{kLayersMax} * kHeadsMax));
  } else {
    rule.heads = *std::move(classes);
  }
  if (codec == "ladder" && !section.Has("heads")) {
    section.Error("codec", "a rule names a codec, or the precision of heads; a tier's precision is in [targets]");
  }
  auto same = [&](const TierRule& other) { return other.tier == rule.tier && other.part == rule.part; };
  auto& rules = file_.plan.rules;
  auto of_preset = rules.begin() + static_cast<std::ptrdiff_t>(preset_rules_);
  if (std::any_of(of_preset, rules.end(), same)) {
    return section.Error("part", "there is such a rule for this tier already; allowed: one a tier and part");
  }
  // What the file says itself comes after what is left of the preset.
  auto replaced = std::find_if(rules.begin(), of_preset, same);
  if (replaced != of_preset) {
    *replaced = std::move(rule);
  } else {
    replaced = rules.insert(rules.end(), std::move(rule));
  }
  file_.places.rules.resize(rules.size());
  file_.places.rules[static_cast<size_t>(replaced - rules.begin())] = PlaceOf(section);
}

void PlanReader::ReadLayers(TomlSection& section) {
  LayerClasses entry{.place = PlaceOf(section)};
  section.String("tier", &entry.tier, kTierNameBytesMax);
  if (!section.Has("layers")) section.Error("layers", "missing; allowed: \"all\", or numbers as in \"0-1,30-31\"");
  ReadRanges(section, "layers", kLayersMax, &entry.layers);
  ReadRanges(section, "heads", kHeadsMax, &entry.heads);
  ReadClass(section, "k", &entry.k);
  ReadClass(section, "v", &entry.v);
  if (!section.Has("k") && !section.Has("v")) section.Error("k", "missing; allowed: k, v, or both, as in k = \"int8\"");
  file_.layers.push_back(std::move(entry));
}

void PlanReader::ReadBoundary(TomlSection& root) {
  root.Section("boundary_layers", [&](TomlSection& section) {
    BoundaryLayers boundary;
    section.Count("first", &boundary.first, 0, kLayersMax);
    section.Count("last", &boundary.last, 0, kLayersMax);
    if (boundary.first == 0 && boundary.last == 0) {
      section.Error("first", fmt::format("allowed: first, last or both, 1 to {} layers", kLayersMax));
    }
    if (!section.Has("at")) section.Error("at", "missing; allowed: a precision, as in at = \"int8\"");
    ReadPrecisions(section, "at", Precision::kInt2, &boundary.at);
    if (boundary.at.k == Precision::kExact || boundary.at.v == Precision::kExact) {
      section.Error("at", "allowed: \"int8\", \"int4\", \"int3\", \"int2\"; tiers keep all layers exactly, or none");
    }
    file_.boundary = boundary;
  });
}

PlanFile PlanReader::Read(TomlSection& root) {
  ReadPreset(root);
  ReadMethods(root);
  ReadTargets(root);
  root.Sections("rules", [&](TomlSection& section) { ReadRule(section); });
  if (file_.plan.rules.size() > kPlanRulesMax) {
    root.Error("rules", fmt::format("are {}; allowed: at most {}", file_.plan.rules.size(), kPlanRulesMax));
  }
  root.Sections("layers", [&](TomlSection& section) { ReadLayers(section); });
  if (file_.layers.size() > kLayerEntriesMax) {
    root.Error("layers", fmt::format("are {}; allowed: at most {}", file_.layers.size(), kLayerEntriesMax));
  }
  ReadBoundary(root);
  root.Finish();
  return std::move(file_);
}

}  // namespace

absl::StatusOr<PlanFile> ParsePlanFile(std::string_view toml, const PlanFileOptions& options) {
  PlanFile file;
  TomlSection::Report report;
  FIRN_RETURN_IF_ERROR(firn::ReadToml(toml, options.source, kPlanBytesMax, &report, [&](TomlSection& root) {
    PlanReader reader(options.folder);
    file = reader.Read(root);
  }));
  if (report.errors.empty()) return file;
  std::stable_sort(report.errors.begin(), report.errors.end(),
                   [](const firn::Finding& a, const firn::Finding& b) { return a.line < b.line; });
  const std::string source = firn::Printable(options.source);
  return firn::InvalidArgument("{}: {}", source, fmt::join(firn::FindingLines(report.errors), "\n" + source + ": "));
}

absl::StatusOr<PlanFile> LoadPlanFile(const std::string& path) {
  FIRN_ASSIGN_OR_RETURN(std::string text, firn::ReadSmallFile(path, kPlanBytesMax));
  return ParsePlanFile(text, {.source = path, .folder = std::filesystem::path(path).parent_path().string()});
}

}  // namespace firnkv
