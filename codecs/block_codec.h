// Encoding and decoding of whole blocks: the one door between blocks and the codec table.
//
// Encoding is a pure function of the source block, the spec and its artifacts: the same input gives the same bytes on
// any CPU, whichever SIMD target runs. Two steps, so that the destination can be allocated exactly: PrepareEncode looks
// at the source and fixes every length; Encode fills the runs and completes the header (checksums, errors). Threads:
// all functions are reentrant; they allocate scratch of at most a few layers of one head. Errors: InvalidArgument for
// specs that do not fit the block, FailedPrecondition where an artifact is missing, DataLoss for planes that do not
// decode. Never aborts on data.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "codecs/artifact.h"
#include "codecs/encoded_block.h"
#include "codecs/record.h"
#include "codecs/types.h"

namespace firn {

// How keys are grouped when they are re-quantized (docs/formats/nested.md).
enum class KeyMethod : uint8_t {
  kPerChannel = 0,       // G consecutive tokens of one channel; needs no calibration.
  kBalancedRotated = 1,  // Centred, balanced, rotated, G channels of one token; needs an artifact of means and weights.
  kRotated = 2,          // Rotated only: poor where keys have strong outlier channels.
};

// Which nested code rotated rows get: values, and keys where they are rotated.
enum class Ladder : uint8_t {
  kMinMax = 0,   // Minimum and step a group (docs/formats/nested.md).
  kGain = 1,     // Signs and magnitudes with gains (docs/formats/nested_gain.md).
  kTrellis = 2,  // Trellis-coded, the most precise and the slowest to encode (docs/formats/nested_trellis.md).
};

// A coding that a part gets at one class, instead of the ladder that the other members of EncodeSpec describe.
struct CodingRule {
  PrecisionClass at = PrecisionClass::kNone;
  PartCoding coding;  // With meta_type kNone, the type that suits the values; with its artifact's name.
  std::shared_ptr<const Artifact> artifact;
};

// What a namespace wants of its codes; part of its precision plan.
struct EncodeSpec {
  ClassPair target;  // kExact keeps source bytes; 8/4/2 bit give the nested code, or FP8 where use_fp8 is set.
  KeyMethod key_method = KeyMethod::kPerChannel;
  Ladder ladder = Ladder::kMinMax;
  bool use_fp8 = false;            // An 8-bit target is coded E4M3 (hot tiers) instead of nested INT8.
  uint16_t key_group = 0;          // 0: the method's default (64 tokens per channel, the width per token).
  uint16_t value_group = 0;        // 0: the width.
  uint32_t keep_first_tokens = 0;  // Attention sinks of the sequence kept exact.
  // The share of a block's tokens kept exact, sinks counted first, and the tokens' ranks by RankImportance; null or
  // empty keeps the sinks alone. Both matter only while the source still has all its tokens exact.
  float important_fraction = 0;
  std::shared_ptr<const std::vector<uint8_t>> importance;
  std::shared_ptr<const Artifact> balance;       // Needed by kBalancedRotated.
  std::array<std::vector<CodingRule>, 2> rules;  // By Part; a target class without a rule gets the ladder.
  // By Part, [layer][head]: the classes of heads, where a plan tells them apart; the target is then the coarsest of
  // them. Null where all get the target.
  std::array<std::shared_ptr<const ClassMap>, 2> classes;

  // Null where the ladder stands.
  const CodingRule* RuleFor(Part part, PrecisionClass at) const;
};

// The artifact of a coding that a spec led to; null where it needs none.
absl::StatusOr<std::shared_ptr<const Artifact>> ArtifactFor(const PartCoding& coding, const EncodeSpec& spec,
                                                            const ArtifactSource& artifacts);

// That an artifact has the shape of a block's part in this shard and all that `coding` reads: InvalidArgument or
// FailedPrecondition otherwise, naming what is missing.
absl::Status CheckArtifactFor(const PartCoding& coding, const PartShape& shape, uint16_t shard,
                              std::shared_ptr<const Artifact> artifact);

// That a record which came from outside can be decoded, written and coded anew as far as its header tells: runs that
// its codings have, as long as they must be, and room for its checks as they are made here. InvalidArgument otherwise.
absl::Status CheckRecord(const RecordHeader& header);

// Whether values that were coded as `from`, of which `available` is left, may be coded as `to`: only ever coarser, and
// never from codes of 3 or 2 bits, whose decoded values have lost their spread.
bool MayRecode(PrecisionClass available, PrecisionClass to);

// The outcome of PlanEncode and PrepareEncode.
struct EncodePlan {
  RecordHeader header;  // Without checks and errors.
  RecordLayout layout;
  bool surveyed = true;  // False: Encode has yet to find out whether the values fit, and is Aborted where they do not.
};

// The plan for source bytes as they are: what Put stores. `scales` says that FP8 values come with scales in kMeta
// (FP32, one a (layer, head), K and V apart).
absl::StatusOr<EncodePlan> PlanIdentity(const Identity& identity, DType dtype, const BlockShape& shape);

// Completes the header of source bytes as they are: checks, and kNonFinite where any value of FP16, BF16 or FP8, or any
// scale, is NaN or Inf. One pass over the bytes.
void SealSource(RecordHeader* header, const std::array<RunBytes, kRunIds>& runs);

// Gives a record that was coded elsewhere another identity: verifies `runs` by the checks that `header` has, which were
// made under the identity `theirs`, and makes them anew under the header's own; kNonFinite is as SealSource sets it for
// the parts that are as they were put. DataLoss, naming the runs, where bytes do not check. Three passes over the
// bytes.
absl::Status AdoptRecord(const Identity& theirs, RecordHeader* header, const std::array<RunBytes, kRunIds>& runs);

// Plans the re-quantization of `source` to `spec`. If the source is already nested with the same coding, its runs are
// simply narrowed (see CanNarrow); otherwise it is decoded at its finest class first. A block flagged kNonFinite is
// planned as identity.
absl::StatusOr<EncodePlan> PrepareEncode(const EncodedBlock& source, const EncodeSpec& spec,
                                         const ArtifactSource& artifacts);

// The plan that PrepareEncode gives nearly always, made without reading a value; Encode then reads the source once
// instead of twice. Where Encode is Aborted, PrepareEncode knows better: EncodeInto does both.
absl::StatusOr<EncodePlan> PlanEncode(const EncodedBlock& source, const EncodeSpec& spec);

// True where `target` is reached by dropping runs alone: no arithmetic, the header stays.
bool CanNarrow(const EncodedBlock& source, ClassPair target);

// Fills `runs` (each as long as the plan's layout says) and returns the completed header.
absl::StatusOr<std::shared_ptr<const RecordHeader>> Encode(const EncodedBlock& source, const EncodeSpec& spec,
                                                           const ArtifactSource& artifacts, const EncodePlan& plan,
                                                           const MutableRuns& runs);

// Plans, allocates and encodes. `allocate` gives memory for a plan's runs; it is called a second time, for another
// layout, where values need wider metadata or must stay as they are, and what it gave first is then not used.
struct EncodeResult {
  std::shared_ptr<const RecordHeader> header;
  RecordLayout layout;
};
absl::StatusOr<EncodeResult> EncodeInto(const EncodedBlock& source, const EncodeSpec& spec,
                                        const ArtifactSource& artifacts,
                                        const std::function<absl::StatusOr<MutableRuns>(const EncodePlan&)>& allocate);

struct DecodeRequest {
  DType out = DType::kFp16;      // FP16, BF16 or FP32; the source's own dtype gives exact bytes from identity codings.
  RunMask use = RunMask::All();  // Runs to decode from; others are ignored.
  uint32_t first_layer = 0;
  uint32_t layers = 0;  // 0: to the last.
};

// Decodes into canonical [layer][head][token][channel] arrays of the requested layers. `k` and `v` must have exactly
// the bytes of their part (0 where a width is 0).
absl::Status Decode(const EncodedBlock& block, const ArtifactSource& artifacts, const DecodeRequest& request,
                    MutableByteSpan k, MutableByteSpan v);

// Encodes into memory of its own: for tools, tests and the C interface.
absl::StatusOr<EncodedBlock> EncodeToHeap(const EncodedBlock& source, const EncodeSpec& spec,
                                          const ArtifactSource& artifacts);
// Wraps raw canonical K and V (and FP8 scales) as an identity-coded block without copying; the memory must outlive it.
absl::StatusOr<EncodedBlock> WrapRaw(const Identity& identity, DType dtype, const BlockShape& shape, ByteSpan k,
                                     ByteSpan v, ByteSpan k_scales, ByteSpan v_scales);

}  // namespace firn
