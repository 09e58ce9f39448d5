// The record header: everything needed to decode and to trust an encoded block, and nothing of how the daemon is
// configured.
//
// A record is a header and its runs (codecs/types.h). The header lives in memory beside the runs, and on media before
// them; its serialized form is docs/formats/record.md: little-endian, versioned, its own CRC last.
// Threads: a header is immutable once shared.
// Limits: kRecordHeaderBytesMax.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/digest.h"
#include "codecs/exact_tokens.h"
#include "codecs/types.h"

namespace firn {

// Whose bytes these are. Every checksum is seeded with it, so that a misdirected, swapped or stale run is a miss.
struct Identity {
  Digest namespace_fingerprint;  // Tenant and model facts; see tiers/namespace.h.
  Digest key;
  uint16_t shard = 0;
  uint64_t generation = 0;  // Fixed at Put: degrading and moving rewrite no checksum.
  bool operator==(const Identity&) const = default;
  // The seed of the CRC of layers [first_layer, ...) of one run: Mix(base + (run_index << 32 | first_layer)), where
  // base is the start of a SHA-256 over the whole identity and Mix is a bijection. Seeds of one identity therefore
  // never meet, those of two meet as rarely as a 64-bit hash; and a CRC is a bijection of its seed, so bytes checked by
  // another seed fail.
  uint64_t ChecksumSeed(uint32_t run_index, uint32_t first_layer) const;
};

// The seeds of one identity, for callers that need many.
class ChecksumSeeds {
 public:
  explicit ChecksumSeeds(const Identity& identity);
  uint64_t Of(uint32_t run_index, uint32_t first_layer) const;

 private:
  uint64_t base_;
};

// How one part is coded.
struct PartCoding {
  // flags: what is done to a row before it is coded, in the order pre-rotary, centred, balanced, rotated; and how.
  static constexpr uint8_t kRotated = 1;      // The Hadamard transform.
  static constexpr uint8_t kCentred = 2;      // Less the artifact's mean.
  static constexpr uint8_t kBalanced = 4;     // Divided by the artifact's weight.
  static constexpr uint8_t kPreRope = 8;      // The rotary embedding is taken back, by the artifact's frequencies.
  static constexpr uint8_t kSymmetric = 16;   // A scale without a minimum.
  static constexpr uint8_t kCalibrated = 32;  // Scales are the artifact's, not the block's own.
  static constexpr uint8_t kFlags = kRotated | kCentred | kBalanced | kPreRope | kSymmetric | kCalibrated;
  static constexpr uint8_t kOutliersMax = 50;

  CodecId codec = CodecId::kNone;
  MetaType meta_type = MetaType::kNone;
  uint8_t flags = 0;
  // Values that share one scale and minimum, of kNuqChannel tokens that share outliers; a last group may be shorter.
  uint16_t group = 0;
  uint8_t bits = 0;      // Of one code: 8, 4, 3 or 2 where the codec has a choice, else 0.
  uint8_t outliers = 0;  // Values kept exactly beside the codes, in thousandths of a vector: 0 to kOutliersMax.
  Digest artifact{};     // Zero where no artifact is used.
  bool operator==(const PartCoding&) const = default;
};

// The finest class that was encoded of each (layer, head) of a part, [layer][head]; empty where all are alike.
using ClassMap = std::vector<PrecisionClass>;

// Whether a coding cannot be read without an artifact.
bool UsesArtifact(const PartCoding& coding);
// The class of a coding of the family kCodes; kNone where its bits mean none.
PrecisionClass ClassOfCodes(const PartCoding& coding);

// Relative squared-norm error of a class, ||x - x^|| / ||x|| over the coded tokens of a part; NaN where it was never
// computed. A coding of 3 bits has its error where one of 4 bits has it.
struct PartErrors {
  float int8 = 0, int4 = 0, int2 = 0;
  // Where the error of a class is; null for kNone and kExact.
  static float PartErrors::*SlotOf(PrecisionClass c);
};

// The same with the two that share a place apart: `int3` is what a coding of 3 bits has. What nobody measured is NaN.
struct ClassErrors {
  float int8, int4, int3, int2;
  bool any() const;  // Whether any class was measured.
};

// One run of the record as it was encoded. `checks` has one CRC for each group of `layers_per_check` consecutive
// layers.
struct RunInfo {
  uint64_t bytes = 0;  // Always layers * bytes of one layer.
  uint32_t layers_per_check = 0;
  std::vector<uint64_t> checks;
  bool operator==(const RunInfo&) const = default;
};

struct RecordHeader {
  static constexpr uint16_t kNonFinite = 1;  // flags: the source holds NaN or Inf; kept at source precision.
  static constexpr uint16_t kFlags = kNonFinite;

  Identity identity;
  std::optional<Digest> parent;
  uint32_t first_token = 0;  // Position in its sequence of the block's first token.
  // How many tokens the kExact runs keep, and which where they are not the leading ones (codecs/exact_tokens.h); the
  // other runs cover the others, in order.
  uint32_t exact_tokens = 0;
  TokenMap exact_map;
  DType dtype = DType::kFp16;  // The caller's values.
  uint16_t flags = 0;
  BlockShape shape;
  int64_t expires_unix_ms = 0;       // 0: never.
  std::array<PartCoding, 2> coding;  // By Part.
  // By Part. A part whose heads differ ranks by its coarsest; its runs hold what each head has, and have one check
  // each.
  std::array<ClassMap, 2> ceilings;
  std::array<PartErrors, 2> errors;
  RunMask encoded;                    // Runs the record was written with; a copy may hold fewer.
  std::array<RunInfo, kRunIds> runs;  // Entries outside `encoded` are empty.

  const PartCoding& CodingOf(Part p) const { return coding[static_cast<size_t>(p)]; }
  const ClassMap& CeilingsOf(Part p) const { return ceilings[static_cast<size_t>(p)]; }
  bool Mixed(Part p) const { return !CeilingsOf(p).empty(); }
  bool KeepsSameTokens(const RecordHeader& other) const {
    return exact_tokens == other.exact_tokens && exact_map == other.exact_map;
  }
  uint64_t RunBytes(RunMask mask) const;
};

inline constexpr uint64_t kRecordHeaderBytesMax = 256 * 1024;
inline constexpr uint64_t kRecordHeaderFixedBytes = 272;  // Serialized, without runs; with the CRC.
inline constexpr uint64_t kRecordHeaderRunBytes = 16;     // More for each encoded run, and 8 for each of its checks.

// CRCs cover runs of at least this many bytes: consecutive layers are joined until they reach it.
inline constexpr uint64_t kCheckedBytesMin = 4096;
// How many layers share one CRC in a run whose layers have `layer_bytes` each.
uint32_t LayersPerCheck(uint64_t layer_bytes, uint32_t layers);
// How many do in a run of `header`, whose bytes are set: all of them where the part is mixed.
uint32_t LayersPerCheckOf(const RecordHeader& header, uint32_t run_index);
// Bytes that the precisions of mixed parts and a map of exact tokens add to the serialized header.
uint64_t MapBytes(const RecordHeader& header);

// InvalidArgument, naming the value and the limit, unless a block of this shape and type may exist.
absl::Status CheckShape(const BlockShape& shape, DType dtype);
// InvalidArgument unless the header is one that may be written: shapes and lengths within limits, every field known,
// every check present. What ParseHeader returns passes it.
absl::Status CheckHeader(const RecordHeader& header);

// The class that a set of intact runs decodes to, K and V apart; kNone where a part cannot be decoded at all. Encoded
// runs of no bytes count as there. A part of width 0 is exact, and so is one all of whose tokens are kept exact.
ClassPair ClassOf(const RecordHeader& header, RunMask runs);
// The finest class that any head has in a set of intact runs: ClassOf where heads are alike.
ClassPair FinestOf(const RecordHeader& header, RunMask runs);
// The header's errors, each at the class that it is of. By Part.
std::array<ClassErrors, 2> ErrorsByClass(const RecordHeader& header);
// The runs that `target` needs of this record, at most what was encoded. A class that the coding does not have rounds
// up to the next finer one it has; kNone needs nothing of its part. ClassOf(RunsFor(target)) >= target wherever it was
// encoded.
RunMask RunsFor(const RecordHeader& header, ClassPair target);

// The header's bytes, a multiple of 8, CRC last; CHECKs CheckHeader. The digest that an index keeps of a record is that
// CRC: the header holds the CRCs of every run, so it covers the whole record and exposes lost and stale writes.
std::vector<uint8_t> SerializeHeader(const RecordHeader& header);
uint64_t HeaderDigest(ByteSpan serialized);
// DataLoss when the bytes are not an intact header of a known version or break a limit. Reads no more than it needs;
// `*bytes_used` (may be null) receives the serialized length.
absl::StatusOr<RecordHeader> ParseHeader(ByteSpan bytes, uint64_t* bytes_used);

}  // namespace firn
