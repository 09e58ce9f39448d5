// The words every other folder speaks: element types, precision classes, block shapes, and the runs of an encoded
// block.
//
// Every id here is persistent: it is written to disk and to the wire, and never changes meaning.
// Shapes: a block's part (K or V) is canonically [layer][head][token][channel], row-major, without padding.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "base/check.h"

namespace firn {

// What the caller's values are.
enum class DType : uint8_t {
  kFp16 = 1,
  kBf16 = 2,
  kFp8E4m3 = 3,  // OCP E4M3FN, with FP32 scales of its own.
  kFp8E5m2 = 4,  // OCP E5M2, with FP32 scales of its own.
  kBytes = 5,    // Opaque bytes that no codec may touch (packed formats, recurrent state): one byte a "channel".
  kFp32 = 6,     // As an output of decoding and an input of tools; never stored.
};
// Bytes of one value; 0 for an unknown id.
uint32_t DTypeBytes(DType dtype);
std::string_view DTypeName(DType dtype);

// How much of a value is kept: the documented total order that min_precision speaks.
enum class PrecisionClass : uint8_t { kNone = 0, k2Bit = 2, k3Bit = 3, k4Bit = 4, k8Bit = 8, kExact = 16 };
std::string_view PrecisionClassName(PrecisionClass c);  // "none", "int2", "int3", "int4", "int8", "exact"

// K and V apart. A part of width 0 counts as exact.
struct ClassPair {
  PrecisionClass k = PrecisionClass::kNone;
  PrecisionClass v = PrecisionClass::kNone;
  bool operator==(const ClassPair&) const = default;
  PrecisionClass Min() const { return std::min(k, v); }
  bool AtLeast(const ClassPair& floor) const { return k >= floor.k && v >= floor.v; }
};

enum class Part : uint8_t { kK = 0, kV = 1 };
inline constexpr Part kParts[] = {Part::kK, Part::kV};

// A run: one contiguous sequence of bytes of a record, the unit that moves, is dropped and is checksummed (layer by
// layer).
enum class RunKind : uint8_t {
  kMeta = 0,   // Scales, minima, outliers: without it nothing decodes.
  kExact = 1,  // The tokens kept exact, at source precision, [layer][head][token][channel].
  kP2 = 2,     // The top two bits of the nested code.
  kP4 = 3,     // The next two.
  kP8 = 4,     // The low four.
  kWhole = 5,  // Codes of a format that is not nested: FP16, BF16, FP8, integers, codebook entries, opaque bytes.
};
inline constexpr uint32_t kRunKinds = 6;
inline constexpr uint32_t kRunIds = kRunKinds * 2;

// Which run of which part, as a number below kRunIds; its order is the order of runs in a record, so that every
// precision is a prefix: K meta, V meta, K exact, V exact, K p2, V p2, K p4, V p4, ...
constexpr uint32_t RunIndex(RunKind kind, Part part) {
  return static_cast<uint32_t>(kind) * 2 + static_cast<uint32_t>(part);
}
constexpr RunKind RunKindOf(uint32_t run_index) { return static_cast<RunKind>(run_index / 2); }
constexpr Part RunPartOf(uint32_t run_index) { return static_cast<Part>(run_index % 2); }

// A set of runs, one bit a RunIndex.
class RunMask {
 public:
  constexpr RunMask() = default;
  constexpr explicit RunMask(uint16_t bits) : bits_(bits) {}
  static constexpr RunMask Of(RunKind kind, Part part) {
    return RunMask(static_cast<uint16_t>(1u << RunIndex(kind, part)));
  }
  static constexpr RunMask Both(RunKind kind) { return RunMask(static_cast<uint16_t>(3u << RunIndex(kind, Part::kK))); }
  static constexpr RunMask All() { return RunMask((1u << kRunIds) - 1); }

  constexpr bool Has(uint32_t run_index) const { return (bits_ >> run_index) & 1; }
  constexpr bool Has(RunKind kind, Part part) const { return Has(RunIndex(kind, part)); }
  constexpr bool Contains(RunMask other) const { return (bits_ & other.bits_) == other.bits_; }
  constexpr bool Empty() const { return bits_ == 0; }
  constexpr int Count() const { return std::popcount(bits_); }
  constexpr uint16_t bits() const { return bits_; }
  constexpr RunMask operator|(RunMask o) const { return RunMask(bits_ | o.bits_); }
  constexpr RunMask operator&(RunMask o) const { return RunMask(bits_ & o.bits_); }
  constexpr RunMask operator-(RunMask o) const { return RunMask(static_cast<uint16_t>(bits_ & ~o.bits_)); }
  constexpr RunMask& operator|=(RunMask o) {
    bits_ |= o.bits_;
    return *this;
  }
  constexpr bool operator==(const RunMask&) const = default;

 private:
  uint16_t bits_ = 0;
};

// One part of a block. Bytes at source precision = layers * heads * tokens * width * DTypeBytes.
struct PartShape {
  uint32_t layers = 0;
  uint32_t heads = 0;
  uint32_t tokens = 0;
  uint32_t width = 0;
  bool operator==(const PartShape&) const = default;
  uint64_t values() const { return uint64_t{layers} * heads * tokens * width; }
  uint64_t layer_values() const { return uint64_t{heads} * tokens * width; }
};

// A block of one shard. Either width may be 0 (a part that does not exist), not both.
struct BlockShape {
  uint32_t layers = 0;
  uint32_t heads = 0;    // KV heads of this shard.
  uint32_t k_width = 0;  // Channels a head: head_dim, or a latent width.
  uint32_t v_width = 0;
  uint32_t tokens = 0;  // Valid tokens; a tail block has fewer than block_tokens.
  bool operator==(const BlockShape&) const = default;
  PartShape part(Part p) const { return {layers, heads, tokens, p == Part::kK ? k_width : v_width}; }
  uint64_t values() const { return part(Part::kK).values() + part(Part::kV).values(); }
};

// Limits on shapes, checked before anything is allocated.
inline constexpr uint32_t kLayersMax = 1024;
inline constexpr uint32_t kHeadsMax = 4096;
inline constexpr uint32_t kWidthMax = 1u << 20;
inline constexpr uint32_t kTokensMax = 1u << 16;
inline constexpr uint64_t kBlockBytesMax = uint64_t{1} << 30;  // One shard of one block at source precision.

// Which codec wrote a part. One row of the table in codecs/codec_table.h each.
enum class CodecId : uint16_t {
  kNone = 0,      // The part has width 0.
  kIdentity = 1,  // Source bytes as given (FP16, BF16, FP8 with its scales in kMeta, opaque bytes).
  kFp8E4m3 = 2,   // Re-coded from FP16/BF16; FP32 scale a (layer, head), or for G channels of a token, in kMeta.
  kFp8E5m2 = 3,
  kFp8E4m3Tensor = 4,  // One FP32 scale a layer: all heads, tokens and channels of the part.
  kFp8E5m2Tensor = 5,
  kNestedChannel = 16,  // Offset nested, groups of G tokens of one channel.
  kNestedToken = 17,    // Offset nested, groups of G channels of one token; rotation, centring, balance by flags.
  kNestedGain = 18,     // Signs and magnitudes of rotated rows, with a gain a class.
  kNestedTrellis = 19,  // Trellis-coded levels of rotated rows, with a gain a class.
  // Plain integers of PartCoding::bits bits, with a scale and a minimum, or a scale alone.
  kIntToken = 32,    // A scale for each G channels of one token.
  kIntChannel = 33,  // A scale for each G tokens of one channel.
  kIntTensor = 34,   // A scale a layer: all heads, tokens and channels of the part.
  // Non-uniform codebooks of 2^bits levels from an artifact, with exact outliers (KVQuant).
  kNuqChannel = 40,  // Calibrated centre and reach of each channel.
  kNuqToken = 41,    // Centre and reach of each token, over all heads.
  // Blocks of 4-bit floating-point numbers.
  kNvFp4 = 48,  // E2M1 in blocks of 16, a scale E4M3 a block, one FP32 scale a head.
  kMxFp4 = 49,  // E2M1 in blocks of 32, a scale E8M0 a block.
};

// What a coding's runs mean, as far as records need it: a new codec joins a family, and nothing outside its row
// changes.
enum class CodecFamily : uint8_t {
  kUnknown = 0,  // An id this build does not know.
  kAbsent = 1,   // No values.
  kSource = 2,   // kWhole holds the source bytes: exact, or 8 bit where the source is FP8.
  kCodes = 3,    // kWhole holds codes of one width, PartCoding::bits.
  kNested = 4,   // kP2, kP4, kP8 hold the planes of one 8-bit code.
};
CodecFamily FamilyOf(CodecId codec);

// The type of stored scales and minima.
enum class MetaType : uint8_t { kNone = 0, kFp16 = 1, kBf16 = 2, kFp32 = 3 };

}  // namespace firn
