#include "codecs/artifact.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/checksum.h"
#include "base/status.h"
#include "codecs/types.h"

namespace firn {
namespace {

constexpr uint32_t kMagic = 0x52415646;  // "FVAR" as bytes.
constexpr uint16_t kVersion = 1;
constexpr uint16_t kKindKeyBalance = 1;  // Means and weights alone.
constexpr uint16_t kKindSections = 2;    // Any sections, said by a mask.
constexpr uint64_t kHeadBytes = 20;
constexpr uint64_t kCrcBytes = 8;
constexpr uint64_t kValuesMax = uint64_t{1} << 24;
constexpr uint32_t kBitsMin = 2, kBitsMax = 4;

// Bits of the mask, in the order of the sections.
constexpr uint32_t kBalance = 1, kRanges = 2, kScales = 4, kCodebooks = 8, kRope = 16;
constexpr uint32_t kAllSections = kBalance | kRanges | kScales | kCodebooks | kRope;

uint64_t ChannelCount(const ArtifactSections& s) { return uint64_t{s.layers} * s.heads * s.width; }

// Beyond these FP32 arithmetic on keys loses the keys: calibration keeps far inside.
constexpr float kValueMax = 1e6f, kWeightMin = 1e-5f, kWeightMax = 1e5f, kReachMin = 1e-8f, kScaleMax = 1e30f;

absl::Status CheckWithin(const char* what, const std::vector<float>& values, float least, float most) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] >= least && values[i] <= most) continue;  // False for NaN.
    return InvalidArgument("artifact: {} {} of {}, {} to {} allowed", what, values[i], i, least, most);
  }
  return absl::OkStatus();
}

// Both vectors are empty or have `expected` values.
absl::Status CheckCounts(const char* what, size_t first, size_t second, uint64_t expected) {
  if (first == second && (first == 0 || first == expected)) return absl::OkStatus();
  return InvalidArgument("artifact: {} and {} values of {}, {} of each expected", first, second, what, expected);
}

absl::Status CheckLevels(const std::vector<float>& levels, uint32_t bits) {
  FIRN_RETURN_IF_ERROR(CheckWithin("codebook level", levels, -kValueMax, kValueMax));
  size_t count = size_t{1} << bits;
  for (size_t i = 1; i < levels.size(); ++i) {
    if (i % count == 0 || levels[i - 1] < levels[i]) continue;
    return InvalidArgument("artifact: codebook levels {} and {} do not ascend", levels[i - 1], levels[i]);
  }
  return absl::OkStatus();
}

absl::Status CheckCodebooks(const ArtifactSections& s) {
  uint32_t bits_before = 0;
  for (const Codebook& book : s.codebooks) {
    if (book.bits < kBitsMin || book.bits > kBitsMax || book.bits <= bits_before) {
      return InvalidArgument("artifact: a codebook of {} bits after one of {}; {} to {}, ascending", book.bits,
                             bits_before, kBitsMin, kBitsMax);
    }
    bits_before = book.bits;
    uint64_t expected = uint64_t{s.layers} << book.bits;
    if (book.levels.size() != expected || book.decoded.size() != expected) {
      return InvalidArgument("artifact: {} and {} levels of {} bits for {} layers", book.levels.size(),
                             book.decoded.size(), book.bits, s.layers);
    }
    FIRN_RETURN_IF_ERROR(CheckLevels(book.levels, book.bits));
    FIRN_RETURN_IF_ERROR(CheckLevels(book.decoded, book.bits));
  }
  return absl::OkStatus();
}

absl::Status CheckRope(const ArtifactSections& s) {
  if (s.rope.frequencies.size() > s.width / 2) {
    return InvalidArgument("artifact: {} rotary pairs in a width of {}", s.rope.frequencies.size(), s.width);
  }
  for (double frequency : s.rope.frequencies) {
    if (frequency >= 0 && frequency <= 16) continue;
    return InvalidArgument("artifact: rotary frequency {}, 0 to 16 radians a position", frequency);
  }
  if (s.rope.frequencies.empty() && s.rope.interleaved)
    return InvalidArgument("artifact: a rotary embedding of no pairs");
  return absl::OkStatus();
}

uint32_t MaskOf(const ArtifactSections& s) {
  return (s.mean.empty() ? 0 : kBalance) | (s.centre.empty() ? 0 : kRanges) | (s.scales.empty() ? 0 : kScales) |
         (s.codebooks.empty() ? 0 : kCodebooks) | (s.rope.frequencies.empty() ? 0 : kRope);
}

absl::Status CheckSections(const ArtifactSections& s) {
  FIRN_RETURN_IF_ERROR(CheckArtifactShape(s.layers, s.heads, s.width));
  if (MaskOf(s) == 0) return InvalidArgument("artifact: no section");
  FIRN_RETURN_IF_ERROR(CheckCounts("means and weights", s.mean.size(), s.weight.size(), ChannelCount(s)));
  FIRN_RETURN_IF_ERROR(CheckCounts("centres and reaches", s.centre.size(), s.reach.size(), ChannelCount(s)));
  FIRN_RETURN_IF_ERROR(CheckCounts("scales", s.scales.size(), s.scales.size(), uint64_t{s.layers} * s.heads));
  FIRN_RETURN_IF_ERROR(CheckWithin("mean", s.mean, -kValueMax, kValueMax));
  FIRN_RETURN_IF_ERROR(CheckWithin("centre", s.centre, -kValueMax, kValueMax));
  FIRN_RETURN_IF_ERROR(CheckWithin("weight", s.weight, kWeightMin, kWeightMax));
  FIRN_RETURN_IF_ERROR(CheckWithin("reach", s.reach, kReachMin, kValueMax));
  FIRN_RETURN_IF_ERROR(CheckWithin("scale", s.scales, std::numeric_limits<float>::min(), kScaleMax));
  FIRN_RETURN_IF_ERROR(CheckCodebooks(s));
  return CheckRope(s);
}

template <typename T>
void WriteArray(ByteWriter* writer, const std::vector<T>& values) {
  writer->WriteBytes({reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(T)});
}

std::vector<uint8_t> Serialize(const ArtifactSections& s) {
  ByteWriter writer;
  uint32_t mask = MaskOf(s);
  writer.Write<uint32_t>(kMagic);
  writer.Write<uint16_t>(kVersion);
  writer.Write<uint16_t>(mask == kBalance ? kKindKeyBalance : kKindSections);
  for (uint32_t size : {s.layers, s.heads, s.width}) writer.Write<uint32_t>(size);
  if (mask != kBalance) writer.Write<uint32_t>(mask);
  for (const auto* values : {&s.mean, &s.weight, &s.centre, &s.reach, &s.scales}) WriteArray(&writer, *values);
  if (mask & kCodebooks) writer.Write<uint32_t>(static_cast<uint32_t>(s.codebooks.size()));
  for (const Codebook& book : s.codebooks) {
    writer.Write<uint32_t>(book.bits);
    WriteArray(&writer, book.levels);
    WriteArray(&writer, book.decoded);
  }
  if (mask & kRope) {
    writer.Write<uint32_t>(static_cast<uint32_t>(s.rope.frequencies.size()));
    writer.Write<uint32_t>(s.rope.interleaved ? 1 : 0);
    WriteArray(&writer, s.rope.frequencies);
  }
  writer.Write<uint64_t>(Crc64(writer.bytes(), 0));
  return writer.Take();
}

// Nothing is allocated for more values than there are bytes left.
template <typename T>
void ReadArray(ByteReader* reader, uint64_t count, std::vector<T>* values) {
  ByteSpan bytes = reader->ReadBytes(count * sizeof(T));
  values->resize(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(values->data(), bytes.data(), bytes.size());
}

void ReadCodebooks(ByteReader* reader, ArtifactSections* s) {
  uint32_t count = reader->Read<uint32_t>();
  for (uint32_t i = 0; i < count && i <= kBitsMax && reader->ok(); ++i) {
    Codebook book;
    book.bits = reader->Read<uint32_t>();
    uint64_t levels = uint64_t{s->layers} << std::min(book.bits, kBitsMax + 1);
    ReadArray(reader, levels, &book.levels);
    ReadArray(reader, levels, &book.decoded);
    s->codebooks.push_back(std::move(book));
  }
}

}  // namespace

absl::Status CheckArtifactShape(uint32_t layers, uint32_t heads, uint32_t width) {
  if (layers == 0 || layers > kLayersMax) return InvalidArgument("artifact: {} layers, 1 to {}", layers, kLayersMax);
  if (heads == 0 || heads > kHeadsMax) return InvalidArgument("artifact: {} KV heads, 1 to {}", heads, kHeadsMax);
  if (width == 0 || width > kWidthMax) return InvalidArgument("artifact: width {}, 1 to {}", width, kWidthMax);
  uint64_t values = uint64_t{layers} * heads * width;
  if (values > kValuesMax) return InvalidArgument("artifact: {} channels in all, at most {}", values, kValuesMax);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Artifact>> Artifact::Create(ArtifactSections sections) {
  FIRN_RETURN_IF_ERROR(CheckSections(sections));
  std::shared_ptr<Artifact> artifact(new Artifact());
  artifact->sections_ = std::move(sections);
  artifact->serialized_ = Serialize(artifact->sections_);
  artifact->digest_ = Sha256(artifact->serialized_);
  return std::shared_ptr<const Artifact>(std::move(artifact));
}

absl::StatusOr<std::shared_ptr<const Artifact>> Artifact::CreateBalance(uint32_t layers, uint32_t heads, uint32_t width,
                                                                        std::vector<float> mean,
                                                                        std::vector<float> weight) {
  ArtifactSections sections;
  sections.layers = layers, sections.heads = heads, sections.width = width;
  sections.mean = std::move(mean);
  sections.weight = std::move(weight);
  return Create(std::move(sections));
}

absl::StatusOr<std::shared_ptr<const Artifact>> Artifact::Parse(ByteSpan serialized) {
  if (serialized.size() < kHeadBytes + kCrcBytes) {
    return DataLoss("artifact: {} bytes, at least {} expected", serialized.size(), kHeadBytes + kCrcBytes);
  }
  ByteReader head(serialized);
  uint32_t magic = head.Read<uint32_t>();
  uint16_t version = head.Read<uint16_t>(), kind = head.Read<uint16_t>();
  ArtifactSections s;
  s.layers = head.Read<uint32_t>(), s.heads = head.Read<uint32_t>(), s.width = head.Read<uint32_t>();
  if (magic != kMagic) return DataLoss("artifact: magic {:#010x}, expected {:#010x}", magic, kMagic);
  if (version != kVersion || (kind != kKindKeyBalance && kind != kKindSections)) {
    return DataLoss("artifact: version {} of kind {}; this build reads version {} of kinds {} and {}", version, kind,
                    kVersion, kKindKeyBalance, kKindSections);
  }
  absl::Status shape = CheckArtifactShape(s.layers, s.heads, s.width);
  if (!shape.ok()) return DataLoss("{}", Message(shape));
  ByteSpan body = serialized.first(serialized.size() - kCrcBytes);
  if (LoadLe<uint64_t>(serialized.data() + body.size()) != Crc64(body, 0)) {
    return DataLoss("artifact: its CRC does not match");
  }
  ByteReader reader(body);
  reader.Skip(kHeadBytes);
  uint32_t mask = kind == kKindKeyBalance ? kBalance : reader.Read<uint32_t>();
  if ((mask & ~kAllSections) != 0) return DataLoss("artifact: sections {:#x}, of {:#x} known", mask, kAllSections);
  if (kind == kKindSections && mask == kBalance) return DataLoss("artifact: a balance written as kind {}", kind);
  uint64_t channels = ChannelCount(s), scales = uint64_t{s.layers} * s.heads;
  if (mask & kBalance) ReadArray(&reader, channels, &s.mean), ReadArray(&reader, channels, &s.weight);
  if (mask & kRanges) ReadArray(&reader, channels, &s.centre), ReadArray(&reader, channels, &s.reach);
  if (mask & kScales) ReadArray(&reader, scales, &s.scales);
  if (mask & kCodebooks) ReadCodebooks(&reader, &s);
  if (mask & kRope) {
    uint32_t pairs = reader.Read<uint32_t>(), interleaved = reader.Read<uint32_t>();
    if (interleaved > 1) return DataLoss("artifact: rotary pairing {}, 0 or 1", interleaved);
    s.rope.interleaved = interleaved == 1;
    ReadArray(&reader, pairs, &s.rope.frequencies);
  }
  if (!reader.ok() || reader.remaining() > 0)
    return DataLoss("artifact: {} bytes, which its sections do not need or pass", serialized.size());
  auto artifact = Create(std::move(s));
  if (!artifact.ok()) return DataLoss("{}", Message(artifact.status()));
  return artifact;
}

std::span<const float> Artifact::Channels(const std::vector<float>& values, uint32_t layer, uint32_t head) const {
  FIRN_CHECK(layer < layers() && head < heads() && !values.empty());
  return std::span<const float>(values).subspan((size_t{layer} * heads() + head) * width(), width());
}

float Artifact::Scale(uint32_t layer, uint32_t head) const {
  FIRN_CHECK(layer < layers() && head < heads() && has_scales());
  return sections_.scales[size_t{layer} * heads() + head];
}

const Codebook* Artifact::FindCodebook(uint32_t bits) const {
  auto at = std::find_if(sections_.codebooks.begin(), sections_.codebooks.end(),
                         [bits](const Codebook& book) { return book.bits == bits; });
  return at == sections_.codebooks.end() ? nullptr : &*at;
}

}  // namespace firn
