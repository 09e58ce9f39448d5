#include <limits>

#include "base/status.h"
#include "codecs/block/part_geometry.h"
#include "codecs/block_codec.h"

namespace firn {
namespace {

constexpr float kUnknownError = std::numeric_limits<float>::quiet_NaN();

// Every lane of 64 bits filled with `word`.
template <typename Word>
constexpr uint64_t Lanes(Word word) {
  uint64_t lanes = 0;
  for (size_t shift = 0; shift < 64; shift += 8 * sizeof(Word)) lanes |= uint64_t{word} << shift;
  return lanes;
}

// Not zero where any lane of `bits` has all bits of `exponent` set: those lanes become 0, and a lane of 0 is the lowest
// one that borrows into its own top bit when 1 is taken from each.
template <typename Word>
uint64_t SpecialLanes(uint64_t bits, Word exponent) {
  constexpr Word kTop = static_cast<Word>(Word{1} << (8 * sizeof(Word) - 1));
  uint64_t cleared = ~bits & Lanes(exponent);
  return (cleared - Lanes(Word{1})) & ~cleared & Lanes(kTop);
}

template <typename Word>
bool AnySpecial(const RunBytes& run, Word exponent) {
  // Values never straddle spans that start and end on even bytes; the odd ones are put together here.
  uint8_t carried[sizeof(Word)];
  size_t have = 0;
  for (ByteSpan piece : run.spans()) {
    size_t at = 0;
    while (have > 0 && at < piece.size()) {
      carried[have++] = piece[at++];
      if (have < sizeof(Word)) continue;
      if ((LoadLe<Word>(carried) & exponent) == exponent) return true;
      have = 0;
    }
    uint64_t special = 0;
    for (; at + 8 <= piece.size(); at += 8) special |= SpecialLanes(LoadLe<uint64_t>(piece.data() + at), exponent);
    for (; at + sizeof(Word) <= piece.size(); at += sizeof(Word)) {
      special |= (LoadLe<Word>(piece.data() + at) & exponent) == exponent;
    }
    if (special != 0) return true;
    for (; at < piece.size(); ++at) carried[have++] = piece[at];
  }
  return false;
}

bool PartHasNonFinite(const EncodedBlock& source, Part part) {
  const RunBytes& whole = source.runs[RunIndex(RunKind::kWhole, part)];
  const RunBytes& exact = source.runs[RunIndex(RunKind::kExact, part)];
  const RunBytes& scales = source.runs[RunIndex(RunKind::kMeta, part)];
  switch (source.header->dtype) {
    case DType::kFp16:
      return AnySpecial<uint16_t>(whole, 0x7C00) || AnySpecial<uint16_t>(exact, 0x7C00);
    case DType::kBf16:
      return AnySpecial<uint16_t>(whole, 0x7F80) || AnySpecial<uint16_t>(exact, 0x7F80);
    case DType::kFp8E4m3:
      return AnySpecial<uint8_t>(whole, 0x7F) || AnySpecial<uint8_t>(exact, 0x7F) ||
             AnySpecial<uint32_t>(scales, 0x7F800000);
    case DType::kFp8E5m2:
      return AnySpecial<uint8_t>(whole, 0x7C) || AnySpecial<uint8_t>(exact, 0x7C) ||
             AnySpecial<uint32_t>(scales, 0x7F800000);
    case DType::kBytes:
    case DType::kFp32:
      break;
  }
  return false;
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

bool HasNonFinite(const EncodedBlock& source) {
  for (Part part : kParts) {
    if (FamilyOf(source.header->CodingOf(part).codec) == CodecFamily::kSource && PartHasNonFinite(source, part)) {
      return true;
    }
  }
  return false;
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
