// Artifacts: immutable model data that coding and decoding need, named by the SHA-256 of its serialized bytes.
//
// One artifact holds one or more sections about one part (K or V) of a model part: means and balance weights of key
// channels, KVQuant's ranges and codebooks, FP8 scales, rotary frequencies (docs/formats/artifact.md). Records name the
// artifact they were made with and keep it for life; a new calibration makes a new artifact. Threads: immutable.
// Errors: InvalidArgument for sections that do not agree or values out of their limits; Parse gives DataLoss.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/digest.h"

namespace firn {

// What a serialized artifact begins with.
inline constexpr std::string_view kArtifactMagic = "FVAR";

// InvalidArgument beyond the limits of an artifact's shape: those of blocks, and 2^24 channels in all.
absl::Status CheckArtifactShape(uint32_t layers, uint32_t heads, uint32_t width);

// The rotary embedding of keys: pair i of the first 2 * frequencies.size() channels is turned by position *
// frequencies[i] radians. Scaled variants (linear, YaRN, Llama 3) differ in their frequencies alone.
struct Rope {
  bool interleaved = false;  // Pairs are (2i, 2i + 1); otherwise (i, i + pairs).
  std::vector<double> frequencies;
  bool operator==(const Rope&) const = default;
};

// One non-uniform codebook of 2^bits levels a layer, for values normalised to [-1, 1].
struct Codebook {
  uint32_t bits = 0;           // 2, 3 or 4.
  std::vector<float> levels;   // [layer][2^bits], ascending: a value is coded as the nearest.
  std::vector<float> decoded;  // [layer][2^bits], ascending: what a code stands for; differs under Q-Norm.
  bool operator==(const Codebook&) const = default;
};

// What an artifact is made of. Empty vectors are sections that it does not have.
struct ArtifactSections {
  uint32_t layers = 0, heads = 0, width = 0;
  std::vector<float> mean, weight;   // [layer][head][channel]; |m| <= 1e6, w 1e-5 to 1e5.
  std::vector<float> centre, reach;  // [layer][head][channel]: KVQuant's z and r of keys; |z| <= 1e6, r 1e-8 to 1e6.
  std::vector<float> scales;         // [layer][head]: FP8, positive.
  std::vector<Codebook> codebooks;   // One a width of codes, ascending.
  Rope rope;
  bool operator==(const ArtifactSections&) const = default;
};

class Artifact {
 public:
  static absl::StatusOr<std::shared_ptr<const Artifact>> Create(ArtifactSections sections);
  // Means and balance weights alone.
  static absl::StatusOr<std::shared_ptr<const Artifact>> CreateBalance(uint32_t layers, uint32_t heads, uint32_t width,
                                                                       std::vector<float> mean,
                                                                       std::vector<float> weight);
  static absl::StatusOr<std::shared_ptr<const Artifact>> Parse(ByteSpan serialized);

  uint32_t layers() const { return sections_.layers; }
  uint32_t heads() const { return sections_.heads; }
  uint32_t width() const { return sections_.width; }
  const ArtifactSections& sections() const { return sections_; }
  bool has_balance() const { return !sections_.mean.empty(); }
  bool has_ranges() const { return !sections_.centre.empty(); }
  bool has_scales() const { return !sections_.scales.empty(); }
  bool has_rope() const { return !sections_.rope.frequencies.empty(); }
  // Of one (layer, head), from a section that is there.
  std::span<const float> Mean(uint32_t layer, uint32_t head) const { return Channels(sections_.mean, layer, head); }
  std::span<const float> Weight(uint32_t layer, uint32_t head) const { return Channels(sections_.weight, layer, head); }
  std::span<const float> Centre(uint32_t layer, uint32_t head) const { return Channels(sections_.centre, layer, head); }
  std::span<const float> Reach(uint32_t layer, uint32_t head) const { return Channels(sections_.reach, layer, head); }
  float Scale(uint32_t layer, uint32_t head) const;
  // Null where there is none for codes of `bits` bits.
  const Codebook* FindCodebook(uint32_t bits) const;

  const Digest& digest() const { return digest_; }
  const std::vector<uint8_t>& serialized() const { return serialized_; }

 private:
  Artifact() = default;
  std::span<const float> Channels(const std::vector<float>& values, uint32_t layer, uint32_t head) const;

  ArtifactSections sections_;
  std::vector<uint8_t> serialized_;
  Digest digest_;
};

// Finds artifacts by name. Thread-safe.
class ArtifactSource {
 public:
  virtual ~ArtifactSource() = default;
  // Null when unknown.
  virtual std::shared_ptr<const Artifact> Find(const Digest& digest) const = 0;
};

}  // namespace firn
