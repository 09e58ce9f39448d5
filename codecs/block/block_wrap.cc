#include <limits>
#include <optional>

#include "base/status.h"
#include "codecs/block/part_geometry.h"
#include "codecs/block_codec.h"
#include "codecs/numeric/special_scan.h"

namespace firn {
namespace {

constexpr float kUnknownError = std::numeric_limits<float>::quiet_NaN();

// Finds NaN and Inf in a run of source values; nothing where a run of this kind has none that count.
std::optional<SpecialScan> ScanOf(DType dtype, RunKind kind) {
  bool values = kind == RunKind::kWhole || kind == RunKind::kExact;
  bool scales = kind == RunKind::kMeta;
  switch (dtype) {
    case DType::kFp16:
      return values ? std::optional(SpecialScan(2, 0x7C00)) : std::nullopt;
    case DType::kBf16:
      return values ? std::optional(SpecialScan(2, 0x7F80)) : std::nullopt;
    case DType::kFp8E4m3:
      return values   ? std::optional(SpecialScan(1, 0x7F))
             : scales ? std::optional(SpecialScan(4, 0x7F800000))
                      : std::nullopt;
    case DType::kFp8E5m2:
      return values   ? std::optional(SpecialScan(1, 0x7C))
             : scales ? std::optional(SpecialScan(4, 0x7F800000))
                      : std::nullopt;
    case DType::kBytes:
    case DType::kFp32:
      break;
  }
  return std::nullopt;
}

absl::Status CheckScales(ByteSpan scales, Part part) {
  for (size_t i = 0; i + sizeof(float) <= scales.size(); i += sizeof(float)) {
    float scale = LoadLe<float>(scales.data() + i);
    if (!(scale > 0) || scale > std::numeric_limits<float>::max()) {
      return InvalidArgument("FP8 scale {} of {} is {}, a positive finite number expected", i / sizeof(float),
                             part == Part::kK ? "K" : "V", scale);
    }
  }
  return absl::OkStatus();
}

absl::Status AddRun(RunKind kind, Part part, ByteSpan bytes, const RecordLayout& layout, EncodedBlock* block) {
  uint32_t index = RunIndex(kind, part);
  const char* name = part == Part::kK ? "K" : "V";
  if (bytes.size() != layout.run_bytes[index]) {
    if (kind == RunKind::kMeta) {
      return InvalidArgument("{} bytes of FP8 scales for {}, {} expected: one FP32 a (layer, head)", bytes.size(), name,
                             layout.run_bytes[index]);
    }
    return InvalidArgument("{} bytes of {}, its shape needs {}", bytes.size(), name, layout.run_bytes[index]);
  }
  if (layout.present.Has(index)) block->runs[index] = RunBytes(bytes);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<EncodePlan> PlanIdentity(const Identity& identity, DType dtype, const BlockShape& shape) {
  FIRN_RETURN_IF_ERROR(CheckShape(shape, dtype));
  EncodePlan plan;
  plan.header.identity = identity;
  plan.header.dtype = dtype;
  plan.header.shape = shape;
  plan.header.errors.fill({kUnknownError, kUnknownError, kUnknownError});
  for (Part part : kParts) {
    if (shape.part(part).width == 0) continue;
    plan.header.coding[static_cast<size_t>(part)].codec = CodecId::kIdentity;
    FIRN_ASSIGN_OR_RETURN(PartGeometry geometry, PartGeometry::Of(plan.header, part));
    geometry.AddLengths(geometry.PossibleRuns(), &plan.layout);
  }
  plan.header.encoded = plan.layout.present;
  for (uint32_t i = 0; i < kRunIds; ++i) plan.header.runs[i].bytes = plan.layout.run_bytes[i];
  return plan;
}

void SealSource(RecordHeader* header, const std::array<RunBytes, kRunIds>& runs) {
  std::array<std::optional<SpecialScan>, kRunIds> scans;
  for (uint32_t i = 0; i < kRunIds; ++i) {
    bool as_put = header->CodingOf(RunPartOf(i)).codec == CodecId::kIdentity;
    if (as_put) scans[i] = ScanOf(header->dtype, RunKindOf(i));
  }
  ComputeChecks(header, header->encoded, runs, [&scans](uint32_t run, ByteSpan stretch) {
    if (scans[run].has_value()) scans[run]->Feed(stretch);
  });
  for (const std::optional<SpecialScan>& scan : scans) {
    if (scan.has_value() && scan->found()) header->flags |= RecordHeader::kNonFinite;
  }
}

absl::Status AdoptRecord(const Identity& theirs, RecordHeader* header, const std::array<RunBytes, kRunIds>& runs) {
  auto given = std::make_shared<RecordHeader>(*header);
  given->identity = theirs;
  EncodedBlock block;
  block.present = header->encoded;
  block.runs = runs;
  block.header = std::move(given);
  RunMask damaged = header->encoded - IntactRuns(block);
  if (!damaged.Empty()) {
    return DataLoss("runs {:#x} of a packed record do not match the checks in its header", damaged.bits());
  }
  header->flags &= static_cast<uint16_t>(~RecordHeader::kNonFinite);
  SealSource(header, runs);
  return absl::OkStatus();
}

absl::StatusOr<EncodedBlock> WrapRaw(const Identity& identity, DType dtype, const BlockShape& shape, ByteSpan k,
                                     ByteSpan v, ByteSpan k_scales, ByteSpan v_scales) {
  FIRN_ASSIGN_OR_RETURN(EncodePlan plan, PlanIdentity(identity, dtype, shape));
  EncodedBlock block;
  FIRN_RETURN_IF_ERROR(AddRun(RunKind::kWhole, Part::kK, k, plan.layout, &block));
  FIRN_RETURN_IF_ERROR(AddRun(RunKind::kWhole, Part::kV, v, plan.layout, &block));
  FIRN_RETURN_IF_ERROR(AddRun(RunKind::kMeta, Part::kK, k_scales, plan.layout, &block));
  FIRN_RETURN_IF_ERROR(AddRun(RunKind::kMeta, Part::kV, v_scales, plan.layout, &block));
  FIRN_RETURN_IF_ERROR(CheckScales(k_scales, Part::kK));
  FIRN_RETURN_IF_ERROR(CheckScales(v_scales, Part::kV));
  block.present = plan.layout.present;
  auto header = std::make_shared<RecordHeader>(std::move(plan.header));
  ComputeChecks(header.get(), block.present, block.runs);
  block.header = std::move(header);
  return block;
}

absl::StatusOr<EncodedBlock> EncodeToHeap(const EncodedBlock& source, const EncodeSpec& spec,
                                          const ArtifactSource& artifacts) {
  EncodedBlock block;
  auto allocate = [&](const EncodePlan& plan) -> absl::StatusOr<MutableRuns> {
    auto memory = std::make_shared<std::vector<uint8_t>>(plan.layout.TotalBytes());
    MutableRuns runs;
    block.runs = {};
    size_t at = 0;
    for (uint32_t i = 0; i < kRunIds; ++i) {
      if (!plan.layout.present.Has(i)) continue;
      std::span<uint8_t> run = std::span<uint8_t>(*memory).subspan(at, plan.layout.run_bytes[i]);
      at += run.size();
      runs[i] = MutableRunBytes(run);
      block.runs[i] = RunBytes(ByteSpan(run));
    }
    block.owner = std::move(memory);
    return runs;
  };
  FIRN_ASSIGN_OR_RETURN(EncodeResult result, EncodeInto(source, spec, artifacts, allocate));
  block.header = std::move(result.header);
  block.present = result.layout.present;
  return block;
}

}  // namespace firn
