#include <algorithm>
#include <cstring>
#include <limits>

#include "base/status.h"
#include "codecs/block/conditioner.h"
#include "codecs/block/error_sampler.h"
#include "codecs/block/head_decoder.h"
#include "codecs/block/layer_checks.h"
#include "codecs/block/run_cursor.h"
#include "codecs/block/source_rows.h"
#include "codecs/block_codec.h"
#include "codecs/numeric/convert.h"

namespace firn {
namespace {

// Encodes one part, head by head and tile by tile.
class PartEncoder {
 public:
  PartEncoder(PartGeometry geometry, HeadTransform transform, Conditioner conditioner, SourceRows rows,
              PrecisionClass finest, RunMask runs, const MutableRuns& to, LayerChecks* checks)
      : geometry_(geometry),
        transform_(std::move(transform)),
        conditioner_(std::move(conditioner)),
        rows_(std::move(rows)),
        sampler_(geometry_, finest),
        writers_{Writer(runs, to, RunKind::kMeta), Writer(runs, to, RunKind::kExact),
                 Writer(runs, to, RunKind::kP2),   Writer(runs, to, RunKind::kP4),
                 Writer(runs, to, RunKind::kP8),   Writer(runs, to, RunKind::kWhole)},
        checks_(checks) {
    for (uint32_t kind = 0; kind < kRunKinds; ++kind)
      written_[kind] = runs.Has(static_cast<RunKind>(kind), geometry_.part());
  }

  // Returns the errors of the classes encoded; `before` is the source's own. Aborted where `survey` is asked for and
  // finds that the values do not fit the plan.
  absl::StatusOr<PartErrors> Run(float before, bool survey) {
    for (uint32_t layer = 0; layer < geometry_.shape().layers; ++layer) {
      CopySourceScales(layer);
      Survey found;
      for (uint32_t head = 0; head < geometry_.shape().heads; ++head) {
        rows_.SelectHead(layer, head);
        CopyExactRows(layer, head);
        if (geometry_.layer_scope()) {
          GatherHead(layer, head, survey ? &found : nullptr);
        } else {
          EncodeHead(layer, head, survey ? &found : nullptr);
        }
      }
      if (geometry_.layer_scope() && geometry_.coded_tokens() > 0) EncodeLayer(layer, survey ? &found : nullptr);
      if (found.non_finite || found.out_of_range || found.needs_float) {
        return Aborted("values of layer {} do not fit the metadata planned for them", layer);
      }
      checks_->AddLayer(geometry_.part());
    }
    return sampler_.Errors(before);
  }

 private:
  WriteCursor Writer(RunMask runs, const MutableRuns& to, RunKind kind) const {
    static const MutableRunBytes kNothing;
    return WriteCursor(runs.Has(kind, geometry_.part()) ? to[RunIndex(kind, geometry_.part())] : kNothing);
  }
  WriteCursor& writer(RunKind kind) { return writers_[static_cast<size_t>(kind)]; }

  void Write(RunKind kind, uint64_t offset, const uint8_t* from, uint64_t bytes) {
    std::memcpy(writer(kind).Begin(offset, bytes), from, bytes);
    writer(kind).Commit();
  }

  void CopySourceScales(uint32_t layer) {
    if (!geometry_.has_source_scales()) return;
    Write(RunKind::kMeta, geometry_.SourceScaleOffset(layer, 0), rows_.decoder().SourceScales(layer),
          geometry_.shape().heads * sizeof(float));
  }

  void CopyExactRows(uint32_t layer, uint32_t head) {
    if (geometry_.exact_tokens() == 0) return;
    Write(RunKind::kExact, geometry_.ExactOffset(layer, head), rows_.ExactRows(), geometry_.ExactBytes());
  }

  EncodeTile TileOf(Survey* survey) const {
    EncodeTile tile;
    tile.coding = &geometry_.coding();
    tile.width = geometry_.shape().width;
    tile.stored = geometry_.stored();
    tile.part = geometry_.part();
    tile.survey = survey;
    return tile;
  }

  // Where the runs of a tile are written; Commit brings them there.
  void BeginRuns(uint32_t layer, uint32_t head, uint32_t token, EncodeTile* tile) {
    for (uint32_t k = 0; k < kRunKinds; ++k) {
      RunKind kind = static_cast<RunKind>(k);
      bool here = written_[k] && geometry_.HeadHas(kind, layer, head);
      uint64_t bytes = here ? geometry_.TileBytes(kind, tile->tokens, layer, head) : 0;
      tile->runs[k] = bytes > 0 ? writers_[k].Begin(geometry_.Offset(kind, layer, head, token), bytes) : nullptr;
    }
  }
  void CommitRuns() {
    for (WriteCursor& cursor : writers_) cursor.Commit();
  }

  void EncodeHead(uint32_t layer, uint32_t head, Survey* survey) {
    EncodeTile tile = TileOf(survey);
    ChannelTransform transform = transform_.For(layer, head);
    tile.transform = conditioner_.ForCodec(transform);
    tile.coding = &geometry_.CodingAt(layer, head);
    tile.model = transform_.ModelOf(layer, head, tile.coding->bits);
    uint32_t coded = geometry_.coded_tokens();
    for (uint32_t token = 0; token < coded; token += tile.tokens) {
      tile.tokens = std::min(geometry_.tile_tokens(), coded - token);
      const uint8_t* values = rows_.Rows(token, tile.tokens);
      tile.source = values;
      tile.in = rows_.type();
      if (conditioner_.active()) {
        const float* conditioned = conditioner_.Forward(values, rows_.type(), transform, token, tile.tokens);
        if (survey != nullptr) survey->out_of_range |= !conditioner_.CanComeBack(conditioned, tile.tokens);
        tile.source = reinterpret_cast<const uint8_t*>(conditioned);
        tile.in = DType::kFp32;
      }
      BeginRuns(layer, head, token, &tile);
      geometry_.row().encode(tile);
      sampler_.Observe(tile, (uint64_t{layer} * geometry_.shape().heads + head) * coded + token, token, values,
                       rows_.type(), conditioner_, transform, geometry_.CeilingAt(layer, head));
      CommitRuns();
    }
  }

  // Takes a head's rows into the layer that will be encoded whole, where they have to be moved.
  void GatherHead(uint32_t layer, uint32_t head, Survey* survey) {
    uint32_t coded = geometry_.coded_tokens();
    if (coded == 0 || (!conditioner_.active() && rows_.LayerInPlace(layer) != nullptr)) return;
    uint64_t head_values = uint64_t{coded} * geometry_.shape().width,
             head_bytes = head_values * DTypeBytes(rows_.type());
    layer_values_.resize(head_bytes * geometry_.shape().heads);
    const uint8_t* values = rows_.Rows(0, coded);
    std::memcpy(layer_values_.data() + head * head_bytes, values, head_bytes);
    if (!conditioner_.active()) return;
    layer_rows_.resize(head_values * geometry_.shape().heads);
    float* conditioned = layer_rows_.data() + head * head_values;
    conditioner_.ForwardTo(values, rows_.type(), transform_.For(layer, head), 0, coded, conditioned);
    if (survey != nullptr) survey->out_of_range |= !conditioner_.CanComeBack(conditioned, coded);
  }

  void EncodeLayer(uint32_t layer, Survey* survey) {
    EncodeTile tile = TileOf(survey);
    tile.tokens = geometry_.coded_tokens();
    tile.heads = geometry_.shape().heads;
    const uint8_t* values = conditioner_.active() ? nullptr : rows_.LayerInPlace(layer);
    if (values == nullptr) values = layer_values_.data();
    tile.in = conditioner_.active() ? DType::kFp32 : rows_.type();
    tile.source = conditioner_.active() ? reinterpret_cast<const uint8_t*>(layer_rows_.data()) : values;
    tile.transform = conditioner_.ForCodec(transform_.For(layer, 0));
    tile.model = transform_.ModelOf(layer, 0, tile.coding->bits);
    BeginRuns(layer, 0, 0, &tile);
    geometry_.row().encode(tile);
    sampler_.ObserveLayer(tile, layer, values, rows_.type(), conditioner_, &transform_);
    CommitRuns();
  }

  const PartGeometry geometry_;
  HeadTransform transform_;
  Conditioner conditioner_;
  SourceRows rows_;
  ErrorSampler sampler_;
  std::array<WriteCursor, kRunKinds> writers_;
  std::array<bool, kRunKinds> written_{};
  LayerChecks* const checks_;
  // [head][coded token][channel], before and after conditioning.
  std::vector<uint8_t> layer_values_;
  std::vector<float> layer_rows_;
};

RunMask RunsOfPart(RunMask runs, Part part) {
  RunMask of_part;
  for (uint32_t kind = 0; kind < kRunKinds; ++kind) of_part |= RunMask::Of(static_cast<RunKind>(kind), part);
  return runs & of_part;
}

// The error that a source part's values have already, at the class that is at hand.
float ErrorBefore(const RecordHeader& header, Part part, PrecisionClass available) {
  auto slot = PartErrors::SlotOf(available);
  float error = slot == nullptr ? 0 : header.errors[static_cast<size_t>(part)].*slot;
  return error > 0 ? error : 0;
}

absl::Status EncodePart(const EncodedBlock& source, const EncodeSpec& spec, const ArtifactSource& artifacts, Part part,
                        bool survey, RecordHeader* header, const MutableRuns& runs, LayerChecks* checks) {
  FIRN_ASSIGN_OR_RETURN(PartGeometry geometry, PartGeometry::Of(*header, part));
  FIRN_ASSIGN_OR_RETURN(auto artifact, ArtifactFor(geometry.coding(), spec, artifacts));
  FIRN_ASSIGN_OR_RETURN(auto transform, HeadTransform::Create(geometry.coding(), geometry.shape(), std::move(artifact),
                                                              header->identity.shard));
  Conditioner conditioner(geometry, transform, header->first_token);
  FIRN_ASSIGN_OR_RETURN(auto rows, SourceRows::Create(source, artifacts, geometry, geometry.is_source()));
  PrecisionClass finest = ClassOfPart(ClassOf(*header, header->encoded), part);
  float before = ErrorBefore(*source.header, part, rows.decoder().precision());
  PartEncoder encoder(geometry, std::move(transform), std::move(conditioner), std::move(rows), finest, header->encoded,
                      runs, checks);
  FIRN_ASSIGN_OR_RETURN(header->errors[static_cast<size_t>(part)], encoder.Run(before, survey));
  return absl::OkStatus();
}

// Copies runs byte for byte, with their checksums: what they vouch for is still the original encoding.
absl::Status CopyRuns(const EncodedBlock& source, RunMask copied, RecordHeader* header, const MutableRuns& runs) {
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (!copied.Has(i)) continue;
    if (!source.present.Has(i) || source.runs[i].size() != runs[i].size()) {
      return InvalidArgument("run {} of {} bytes cannot be kept as {}", i, source.runs[i].size(), runs[i].size());
    }
    CopyScattered(source.runs[i], runs[i]);
    header->runs[i] = source.header->runs[i];
  }
  return absl::OkStatus();
}

// Copies the bytes of those heads that the target has in each run: the same coding, of heads that differ otherwise.
absl::Status CopyHeads(const EncodedBlock& source, const RecordHeader& header, Part part, const MutableRuns& runs) {
  FIRN_ASSIGN_OR_RETURN(PartGeometry from, PartGeometry::Of(*source.header, part));
  FIRN_ASSIGN_OR_RETURN(PartGeometry to, PartGeometry::Of(header, part));
  for (uint32_t k = 0; k < kRunKinds; ++k) {
    RunKind kind = static_cast<RunKind>(k);
    uint32_t index = RunIndex(kind, part);
    if (!header.encoded.Has(index)) continue;
    if (!source.present.Has(index) || source.runs[index].size() != source.header->runs[index].bytes) {
      return InvalidArgument("run {} is not at hand", index);
    }
    ReadCursor reader(source.runs[index]);
    WriteCursor writer(runs[index]);
    for (uint32_t layer = 0; layer < to.shape().layers; ++layer) {
      for (uint32_t head = 0; head < to.shape().heads; ++head) {
        uint64_t bytes = to.HeadBytes(kind, layer, head);
        if (bytes == 0) continue;
        FIRN_CHECK(from.HeadBytes(kind, layer, head) == bytes);
        std::memcpy(writer.Begin(to.Offset(kind, layer, head, 0), bytes),
                    reader.Read(from.Offset(kind, layer, head, 0), bytes), bytes);
        writer.Commit();
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPlan(const EncodedBlock& source, const EncodePlan& plan, const MutableRuns& runs) {
  if (source.header == nullptr) return InvalidArgument("a block without a header");
  if (plan.header.shape != source.header->shape || plan.header.dtype != source.header->dtype ||
      (source.header->exact_tokens > 0 && !plan.header.KeepsSameTokens(*source.header)) ||
      plan.header.encoded != plan.layout.present) {
    return InvalidArgument("the plan was made for another block");
  }
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (runs[i].size() == plan.layout.run_bytes[i]) continue;
    return InvalidArgument("run {} has room for {} bytes, the plan needs {}", i, runs[i].size(),
                           plan.layout.run_bytes[i]);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const RecordHeader>> Encode(const EncodedBlock& source, const EncodeSpec& spec,
                                                           const ArtifactSource& artifacts, const EncodePlan& plan,
                                                           const MutableRuns& runs) {
  FIRN_RETURN_IF_ERROR(CheckPlan(source, plan, runs));
  auto header = std::make_shared<RecordHeader>(plan.header);
  bool same_identity = header->identity == source.header->identity;
  LayerChecks checks(header.get(), runs);
  for (Part part : kParts) {
    RunMask of_part = RunsOfPart(plan.layout.present, part);
    if (of_part.Empty()) continue;
    bool kept =
        plan.header.CodingOf(part) == source.header->CodingOf(part) && plan.header.KeepsSameTokens(*source.header);
    bool same_heads = plan.header.CeilingsOf(part) == source.header->CeilingsOf(part);
    if (kept && !same_heads) {
      FIRN_RETURN_IF_ERROR(CopyHeads(source, *header, part, runs));
      for (uint32_t layer = 0; layer < header->shape.layers; ++layer) checks.AddLayer(part);
      continue;
    }
    if (!kept) {
      FIRN_RETURN_IF_ERROR(EncodePart(source, spec, artifacts, part, !plan.surveyed, header.get(), runs, &checks));
      continue;
    }
    FIRN_RETURN_IF_ERROR(CopyRuns(source, of_part, header.get(), runs));
    for (uint32_t layer = 0; layer < header->shape.layers && !same_identity; ++layer) checks.AddLayer(part);
  }
  return std::shared_ptr<const RecordHeader>(std::move(header));
}

absl::StatusOr<EncodeResult> EncodeInto(const EncodedBlock& source, const EncodeSpec& spec,
                                        const ArtifactSource& artifacts,
                                        const std::function<absl::StatusOr<MutableRuns>(const EncodePlan&)>& allocate) {
  FIRN_ASSIGN_OR_RETURN(EncodePlan plan, PlanEncode(source, spec));
  for (bool careful : {false, true}) {
    if (careful) {
      FIRN_ASSIGN_OR_RETURN(plan, PrepareEncode(source, spec, artifacts));
    }
    FIRN_ASSIGN_OR_RETURN(MutableRuns runs, allocate(plan));
    auto header = Encode(source, spec, artifacts, plan, runs);
    if (header.ok()) return EncodeResult{*std::move(header), plan.layout};
    if (!absl::IsAborted(header.status()) || plan.surveyed) return header.status();
  }
  return InternalError("a surveyed plan was aborted");
}

}  // namespace firn
