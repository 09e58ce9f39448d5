#include <algorithm>
#include <functional>

#include "base/status.h"
#include "codecs/block/head_decoder.h"
#include "codecs/block/source_rows.h"
#include "codecs/block_codec.h"
#include "codecs/codec_table.h"
#include "codecs/ladder/ladder_codec.h"
#include "codecs/nested/nested_codec.h"

namespace firn {
namespace {

// The next finer class that the ladder has.
PrecisionClass RoundedUp(PrecisionClass c) { return c == PrecisionClass::k3Bit ? PrecisionClass::k4Bit : c; }

// The class that a part is to get: what the spec has a rule for, or a rung of the ladder.
PrecisionClass TargetOf(const EncodeSpec& spec, Part part) {
  PrecisionClass target = ClassOfPart(spec.target, part);
  return spec.RuleFor(part, target) != nullptr ? target : RoundedUp(target);
}

// A rule's coding with the narrowest scales that its codec has for such values.
PartCoding CodingOf(const CodingRule& rule, DType dtype, uint32_t width) {
  PartCoding coding = rule.coding;
  const CodecRow* row = FindCodec(coding.codec);
  if (coding.meta_type != MetaType::kNone || row == nullptr) return coding;
  for (MetaType type : {dtype == DType::kBf16 ? MetaType::kBf16 : MetaType::kFp16, MetaType::kFp32}) {
    coding.meta_type = type;
    if (row->validate(coding, dtype, width).ok()) return coding;
  }
  coding.meta_type = MetaType::kNone;  // None at all: calibrated.
  return coding;
}

// The code of rotated rows; widths that the wanted one does not take get the one that takes all.
CodecId RotatedCodec(Ladder ladder, uint32_t width) {
  if (ladder == Ladder::kMinMax || !ladder::TakesWidth(width)) return CodecId::kNestedToken;
  return ladder == Ladder::kGain ? CodecId::kNestedGain : CodecId::kNestedTrellis;
}

absl::StatusOr<PartCoding> NestedCoding(const EncodeSpec& spec, Part part, DType dtype, uint32_t width) {
  PartCoding coding;
  coding.codec = RotatedCodec(spec.ladder, width);
  coding.meta_type = dtype == DType::kBf16 ? MetaType::kBf16 : MetaType::kFp16;
  uint16_t own_group = static_cast<uint16_t>(std::min(width, nested::kTokenGroupMax));
  if (part == Part::kV || spec.key_method != KeyMethod::kPerChannel) {
    uint16_t wanted = part == Part::kV ? spec.value_group : spec.key_group;
    if (coding.codec == CodecId::kNestedToken) {
      coding.group = wanted == 0 ? own_group : static_cast<uint16_t>(std::min<uint32_t>(wanted, width));
    }
    coding.flags = PartCoding::kRotated;
    if (part == Part::kV || spec.key_method == KeyMethod::kRotated) return coding;
    if (spec.balance == nullptr) return FailedPrecondition("balanced keys need an artifact, none is given");
    coding.flags |= PartCoding::kCentred | PartCoding::kBalanced;
    coding.artifact = spec.balance->digest();
    return coding;
  }
  coding.codec = CodecId::kNestedChannel;
  coding.group = spec.key_group == 0 ? static_cast<uint16_t>(nested::kChannelGroupTokens) : spec.key_group;
  return coding;
}

bool SameButForMetaType(PartCoding a, const PartCoding& b) {
  a.meta_type = b.meta_type;
  return a == b;
}

// The coding that a part gets; the source's own where its runs need only be kept or dropped.
absl::StatusOr<PartCoding> CodingFor(const RecordHeader& header, const EncodeSpec& spec, Part part,
                                     PrecisionClass available) {
  const PartCoding& own = header.CodingOf(part);
  uint32_t width = header.shape.part(part).width;
  PrecisionClass target = TargetOf(spec, part);
  if (width == 0 || header.dtype == DType::kBytes || !MayRecode(available, target)) return own;
  if (const CodingRule* rule = spec.RuleFor(part, target)) {
    PartCoding coding = CodingOf(*rule, header.dtype, width);
    return SameButForMetaType(coding, own) ? own : coding;
  }
  if (target == PrecisionClass::k8Bit && spec.use_fp8) {
    PartCoding coding;
    coding.codec = CodecId::kFp8E4m3;
    coding.meta_type = MetaType::kFp32;
    return coding;
  }
  FIRN_ASSIGN_OR_RETURN(PartCoding coding, NestedCoding(spec, part, header.dtype, width));
  return SameButForMetaType(coding, own) ? own : coding;
}

// What the values of a part ask of the metadata type. They are looked at in the tiles that encoding sees: of codecs
// that share scales or outliers among the heads of a layer, whole layers.
absl::StatusOr<Survey> SurveyPart(const EncodedBlock& source, const RecordHeader& planned, Part part,
                                  const ArtifactSource& artifacts, const EncodeSpec& spec) {
  FIRN_ASSIGN_OR_RETURN(PartGeometry geometry, PartGeometry::Of(planned, part));
  FIRN_ASSIGN_OR_RETURN(auto artifact, ArtifactFor(geometry.coding(), spec, artifacts));
  FIRN_ASSIGN_OR_RETURN(auto transform, HeadTransform::Create(geometry.coding(), geometry.shape(), std::move(artifact),
                                                              planned.identity.shard));
  Conditioner conditioner(geometry, transform, planned.first_token);
  FIRN_ASSIGN_OR_RETURN(auto rows, SourceRows::Create(source, artifacts, geometry, false));
  Survey survey;
  EncodeTile tile;
  tile.width = geometry.shape().width;
  tile.stored = geometry.stored();
  const bool layer_scope = geometry.layer_scope();
  const uint32_t tile_tokens = layer_scope ? geometry.coded_tokens() : geometry.tile_tokens();
  std::vector<uint8_t> layer_values;  // [head][coded token][channel]
  for (uint32_t layer = 0; layer < geometry.shape().layers; ++layer) {
    layer_values.clear();
    for (uint32_t head = 0; head < geometry.shape().heads; ++head) {
      ChannelTransform channels = transform.For(layer, head);
      tile.transform = conditioner.ForCodec(channels);
      tile.coding = &geometry.CodingAt(layer, head);
      tile.model = transform.ModelOf(layer, head, tile.coding->bits);
      rows.SelectHead(layer, head);
      for (uint32_t token = 0; token < geometry.coded_tokens(); token += tile.tokens) {
        tile.tokens = std::min(tile_tokens, geometry.coded_tokens() - token);
        tile.source = rows.Rows(token, tile.tokens);
        tile.in = rows.type();
        if (conditioner.active()) {
          const float* conditioned = conditioner.Forward(tile.source, rows.type(), channels, token, tile.tokens);
          survey.out_of_range |= !conditioner.CanComeBack(conditioned, tile.tokens);
          tile.source = reinterpret_cast<const uint8_t*>(conditioned);
          tile.in = DType::kFp32;
        }
        if (layer_scope) {
          uint64_t head_bytes = uint64_t{tile.tokens} * tile.width * DTypeBytes(tile.in);
          layer_values.insert(layer_values.end(), tile.source, tile.source + head_bytes);
          if (head + 1 < geometry.shape().heads) continue;
          tile.source = layer_values.data();
          tile.heads = geometry.shape().heads;
        }
        survey.Join(geometry.row().survey(tile));
        if (survey.non_finite || survey.out_of_range) return survey;
      }
    }
  }
  return survey;
}

bool IsSource(const RecordHeader& header, Part part) {
  CodecFamily family = FamilyOf(header.CodingOf(part).codec);
  return family == CodecFamily::kSource || family == CodecFamily::kAbsent;
}

// Tokens can be set apart only while the source still has them exact, and what was set apart stays so.
ExactTokens ExactTokensFor(const RecordHeader& header, const EncodeSpec& spec) {
  if (header.exact_tokens > 0 || !IsSource(header, Part::kK) || !IsSource(header, Part::kV)) {
    return {header.exact_tokens, header.exact_map};
  }
  uint32_t sinks = spec.keep_first_tokens <= header.first_token ? 0 : spec.keep_first_tokens - header.first_token;
  std::span<const uint8_t> ranks;
  if (spec.importance != nullptr) ranks = *spec.importance;
  return ChooseExactTokens(header.shape.tokens, std::min(sinks, header.shape.tokens), spec.important_fraction, ranks);
}

// The plan that keeps the source's codings and only drops runs.
EncodePlan NarrowingPlan(const EncodedBlock& source, ClassPair target, uint16_t flags) {
  EncodePlan plan;
  plan.header = *source.header;
  plan.header.flags |= flags;
  plan.header.encoded = RunsFor(*source.header, target) & source.present;
  plan.layout = source.Layout(plan.header.encoded);
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (!plan.header.encoded.Has(i)) plan.header.runs[i] = {};
  }
  return plan;
}

// What a nested head can have of `wanted`.
PrecisionClass LadderRung(PrecisionClass wanted) { return std::min(RoundedUp(wanted), PrecisionClass::k8Bit); }

// The classes of a part's heads after coding, and the finest of them; `ceilings` is empty where they are all alike.
struct HeadClasses {
  ClassMap ceilings;
  PrecisionClass finest = PrecisionClass::kNone;
};
HeadClasses PlanHeads(const EncodedBlock& source, const EncodeSpec& spec, Part part, const PartCoding& coding) {
  const RecordHeader& header = *source.header;
  const ClassMap* wanted = spec.classes[static_cast<size_t>(part)].get();
  bool nested = FamilyOf(coding.codec) == CodecFamily::kNested;
  bool own = coding == header.CodingOf(part);
  HeadClasses heads;
  heads.finest = TargetOf(spec, part);
  if (wanted == nullptr || (own && !nested)) {
    if (own) heads.ceilings = header.CeilingsOf(part);
    return heads;
  }
  PrecisionClass present = ClassOfPart(FinestOf(header, source.present), part);
  const ClassMap& ceilings = header.CeilingsOf(part);
  for (size_t i = 0; i < wanted->size(); ++i) {
    PrecisionClass c = nested ? LadderRung((*wanted)[i]) : (*wanted)[i];
    if (own) c = std::min({c, present, ceilings.empty() ? present : ceilings[i]});
    heads.ceilings.push_back(c);
  }
  heads.finest = *std::max_element(heads.ceilings.begin(), heads.ceilings.end());
  auto differ = std::adjacent_find(heads.ceilings.begin(), heads.ceilings.end(), std::not_equal_to<>());
  if (differ == heads.ceilings.end()) heads.ceilings.clear();
  return heads;
}

// Whether dropping runs leaves just these classes: then the header stays, and nothing is copied apart.
bool NarrowsTo(const EncodedBlock& source, Part part, const HeadClasses& heads) {
  const ClassMap& ceilings = source.header->CeilingsOf(part);
  if (ceilings == heads.ceilings || (heads.ceilings.empty() && ceilings.empty())) return true;
  for (size_t i = 0; i < ceilings.size(); ++i) {
    PrecisionClass c = heads.ceilings.empty() ? heads.finest : heads.ceilings[i];
    if (std::min(ceilings[i], heads.finest) != c) return false;
  }
  return !ceilings.empty();
}

absl::StatusOr<EncodePlan> PlanOf(RecordHeader header, const EncodedBlock& source, ClassPair target) {
  EncodePlan plan;
  RecordHeader possible = header;
  for (Part part : kParts) {
    if (header.shape.part(part).width == 0) continue;
    FIRN_ASSIGN_OR_RETURN(PartGeometry geometry, PartGeometry::Of(header, part));
    possible.encoded = geometry.PossibleRuns();
    RunMask runs = RunsFor(possible, target);
    bool recoded = header.CodingOf(part) != source.header->CodingOf(part) || !header.KeepsSameTokens(*source.header);
    if (header.Mixed(part)) runs = RunsFor(possible, {PrecisionClass::k8Bit, PrecisionClass::k8Bit});
    if (!recoded) runs = runs & source.present;
    geometry.AddLengths(runs, &plan.layout);
  }
  header.encoded = plan.layout.present;
  for (uint32_t i = 0; i < kRunIds; ++i) {
    header.runs[i] = {};
    header.runs[i].bytes = plan.layout.run_bytes[i];
  }
  plan.header = std::move(header);
  FIRN_RETURN_IF_ERROR(CheckHeaderFits(LayoutOf(plan.header)));
  return plan;
}

absl::Status CheckSpec(const EncodeSpec& spec, const RecordHeader& header) {
  if (!(spec.important_fraction >= 0 && spec.important_fraction <= 1)) {
    return InvalidArgument("important_fraction is {}; it is 0 to 1", spec.important_fraction);
  }
  if (spec.importance != nullptr && !spec.importance->empty() && spec.importance->size() != header.shape.tokens) {
    return InvalidArgument("{} ranks of importance for {} tokens", spec.importance->size(), header.shape.tokens);
  }
  for (Part part : kParts) {
    if (header.shape.part(part).width > 0 && ClassOfPart(spec.target, part) == PrecisionClass::kNone) {
      return InvalidArgument("no target class for {}", part == Part::kK ? "K" : "V");
    }
    const ClassMap* classes = spec.classes[static_cast<size_t>(part)].get();
    uint64_t heads = uint64_t{header.shape.layers} * header.shape.heads;
    if (classes != nullptr && classes->size() != heads) {
      return InvalidArgument("{} classes for the {} heads of {}", classes->size(), heads, part == Part::kK ? "K" : "V");
    }
  }
  return absl::OkStatus();
}

}  // namespace

const CodingRule* EncodeSpec::RuleFor(Part part, PrecisionClass at) const {
  for (const CodingRule& rule : rules[static_cast<size_t>(part)]) {
    if (rule.at == at) return &rule;
  }
  return nullptr;
}

absl::StatusOr<std::shared_ptr<const Artifact>> ArtifactFor(const PartCoding& coding, const EncodeSpec& spec,
                                                            const ArtifactSource& artifacts) {
  if (spec.balance != nullptr && spec.balance->digest() == coding.artifact) return spec.balance;
  for (const auto& rules : spec.rules) {
    for (const CodingRule& rule : rules) {
      if (rule.artifact != nullptr && rule.artifact->digest() == coding.artifact) return rule.artifact;
    }
  }
  return FindArtifact(coding, artifacts);
}

absl::Status CheckArtifactFor(const PartCoding& coding, const PartShape& shape, uint16_t shard,
                              std::shared_ptr<const Artifact> artifact) {
  return HeadTransform::Create(coding, shape, std::move(artifact), shard).status();
}

absl::Status CheckRecord(const RecordHeader& header) {
  absl::Status lengths = CheckRunLengths(header);
  if (!lengths.ok()) return InvalidArgument("{}", Message(lengths));
  RunMask possible;
  bool coded = false;
  for (Part part : kParts) {
    if (header.shape.part(part).width == 0) continue;
    FIRN_ASSIGN_OR_RETURN(PartGeometry geometry, PartGeometry::Of(header, part));
    possible |= geometry.PossibleRuns();
    coded = coded || header.CodingOf(part).codec != CodecId::kIdentity;
  }
  if (!possible.Contains(header.encoded)) {
    return InvalidArgument("runs {:#x}; its codings have {:#x}", header.encoded.bits(), possible.bits());
  }
  if (!coded && header.exact_tokens > 0) {
    return InvalidArgument("{} tokens kept exact beside values that are exact themselves", header.exact_tokens);
  }
  if (ClassOf(header, header.encoded).Min() == PrecisionClass::kNone) {
    return InvalidArgument("runs {:#x} do not decode", header.encoded.bits());
  }
  return CheckHeaderFits(LayoutOf(header));
}

bool MayRecode(PrecisionClass available, PrecisionClass to) {
  return to < available && available > PrecisionClass::k3Bit;
}

absl::StatusOr<EncodePlan> PlanEncode(const EncodedBlock& source, const EncodeSpec& spec) {
  if (source.header == nullptr) return InvalidArgument("a block without a header");
  const RecordHeader& header = *source.header;
  FIRN_RETURN_IF_ERROR(CheckRunLengths(header));
  FIRN_RETURN_IF_ERROR(CheckSpec(spec, header));
  ClassPair available = ClassOf(header, source.present);
  if (available.Min() == PrecisionClass::kNone) {
    return DataLoss("runs {:#x} of {:#x} do not decode", source.present.bits(), header.encoded.bits());
  }
  if ((header.flags & RecordHeader::kNonFinite) != 0) return NarrowingPlan(source, spec.target, 0);
  RecordHeader planned = header;
  for (Part part : kParts) {
    FIRN_ASSIGN_OR_RETURN(planned.coding[static_cast<size_t>(part)],
                          CodingFor(header, spec, part, ClassOfPart(available, part)));
  }
  ExactTokens exact = ExactTokensFor(header, spec);
  ClassPair finest = spec.target;
  bool narrows = true;
  for (Part part : kParts) {
    PartCoding& coding = planned.coding[static_cast<size_t>(part)];
    if (header.shape.part(part).width == 0) continue;
    HeadClasses heads = PlanHeads(source, spec, part, coding);
    (part == Part::kK ? finest.k : finest.v) = heads.finest;
    narrows &= coding == header.CodingOf(part) && NarrowsTo(source, part, heads);
    if (coding.bits != 0 && coding != header.CodingOf(part)) {
      coding.bits = heads.ceilings.empty() ? static_cast<uint8_t>(heads.finest) : uint8_t{0};
    }
    planned.ceilings[static_cast<size_t>(part)] = std::move(heads.ceilings);
  }
  if (narrows || exact.count == header.shape.tokens) return NarrowingPlan(source, finest, 0);
  bool recodes = planned.coding != header.coding;
  // Tokens are set apart only where the others are coded anew.
  if (recodes) {
    planned.exact_tokens = exact.count;
    planned.exact_map = std::move(exact.map);
  }
  FIRN_ASSIGN_OR_RETURN(EncodePlan plan, PlanOf(std::move(planned), source, finest));
  plan.surveyed = !recodes;
  return plan;
}

absl::StatusOr<EncodePlan> PrepareEncode(const EncodedBlock& source, const EncodeSpec& spec,
                                         const ArtifactSource& artifacts) {
  FIRN_ASSIGN_OR_RETURN(EncodePlan plan, PlanEncode(source, spec));
  if (plan.surveyed) return plan;
  RecordHeader planned = plan.header;
  for (Part part : kParts) {
    PartCoding& coding = planned.coding[static_cast<size_t>(part)];
    if (coding == source.header->CodingOf(part)) continue;
    FIRN_ASSIGN_OR_RETURN(Survey survey, SurveyPart(source, planned, part, artifacts, spec));
    if (survey.non_finite || survey.out_of_range) {
      return NarrowingPlan(source, spec.target, RecordHeader::kNonFinite);
    }
    if (survey.needs_float) coding.meta_type = MetaType::kFp32;
  }
  return PlanOf(std::move(planned), source, spec.target);
}

bool CanNarrow(const EncodedBlock& source, ClassPair target) {
  if (source.header == nullptr) return false;
  ClassPair reached = ClassOf(*source.header, RunsFor(*source.header, target) & source.present);
  for (Part part : kParts) {
    if (source.header->shape.part(part).width == 0) continue;
    PrecisionClass wanted = ClassOfPart(target, part), is = ClassOfPart(reached, part);
    if (wanted == PrecisionClass::kNone || (is != wanted && is != RoundedUp(wanted))) return false;
  }
  return true;
}

}  // namespace firn
