#include "codecs/artifact.h"

#include <cmath>
#include <utility>

#include "base/checksum.h"
#include "base/status.h"
#include "codecs/types.h"

namespace firn {
namespace {

constexpr uint32_t kMagic = 0x52415646;  // "FVAR" as bytes.
constexpr uint16_t kVersion = 1;
constexpr uint16_t kKindKeyBalance = 1;
constexpr uint64_t kHeadBytes = 20;
constexpr uint64_t kCrcBytes = 8;
constexpr uint64_t kValuesMax = uint64_t{1} << 24;

absl::Status CheckValues(const std::vector<float>& mean, const std::vector<float>& weight) {
  for (size_t i = 0; i < mean.size(); ++i) {
    if (!std::isfinite(mean[i])) return InvalidArgument("artifact: mean {} of channel {} is not finite", mean[i], i);
    // Subnormal weights have no finite reciprocal.
    if (!std::isnormal(weight[i]) || weight[i] < 0) {
      return InvalidArgument("artifact: weight {} of channel {}, a positive normal number expected", weight[i], i);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckBalanceShape(uint32_t layers, uint32_t heads, uint32_t width) {
  if (layers == 0 || layers > kLayersMax) return InvalidArgument("artifact: {} layers, 1 to {}", layers, kLayersMax);
  if (heads == 0 || heads > kHeadsMax) return InvalidArgument("artifact: {} KV heads, 1 to {}", heads, kHeadsMax);
  if (width == 0 || width > kWidthMax) return InvalidArgument("artifact: width {}, 1 to {}", width, kWidthMax);
  uint64_t values = uint64_t{layers} * heads * width;
  if (values > kValuesMax) return InvalidArgument("artifact: {} channels in all, at most {}", values, kValuesMax);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const KeyBalance>> KeyBalance::Create(uint32_t layers, uint32_t heads, uint32_t width,
                                                                     std::vector<float> mean,
                                                                     std::vector<float> weight) {
  FIRN_RETURN_IF_ERROR(CheckBalanceShape(layers, heads, width));
  uint64_t values = uint64_t{layers} * heads * width;
  if (mean.size() != values || weight.size() != values) {
    return InvalidArgument("artifact: {} means and {} weights for {} channels", mean.size(), weight.size(), values);
  }
  FIRN_RETURN_IF_ERROR(CheckValues(mean, weight));
  std::shared_ptr<KeyBalance> balance(new KeyBalance());
  balance->layers_ = layers;
  balance->heads_ = heads;
  balance->width_ = width;
  balance->mean_ = std::move(mean);
  balance->weight_ = std::move(weight);
  ByteWriter writer;
  writer.bytes().reserve(kHeadBytes + values * 8 + kCrcBytes);
  writer.Write<uint32_t>(kMagic);
  writer.Write<uint16_t>(kVersion);
  writer.Write<uint16_t>(kKindKeyBalance);
  for (uint32_t size : {layers, heads, width}) writer.Write<uint32_t>(size);
  for (const std::vector<float>* values_of : {&balance->mean_, &balance->weight_}) {
    writer.WriteBytes({reinterpret_cast<const uint8_t*>(values_of->data()), values_of->size() * sizeof(float)});
  }
  writer.Write<uint64_t>(Crc64(writer.bytes(), 0));
  balance->serialized_ = writer.Take();
  balance->digest_ = Sha256(balance->serialized_);
  return std::shared_ptr<const KeyBalance>(std::move(balance));
}

absl::StatusOr<std::shared_ptr<const KeyBalance>> KeyBalance::Parse(ByteSpan serialized) {
  if (serialized.size() < kHeadBytes + kCrcBytes) {
    return DataLoss("artifact: {} bytes, at least {} expected", serialized.size(), kHeadBytes + kCrcBytes);
  }
  ByteReader reader(serialized);
  uint32_t magic = reader.Read<uint32_t>();
  uint16_t version = reader.Read<uint16_t>(), kind = reader.Read<uint16_t>();
  uint32_t layers = reader.Read<uint32_t>(), heads = reader.Read<uint32_t>(), width = reader.Read<uint32_t>();
  if (magic != kMagic) return DataLoss("artifact: magic {:#010x}, expected {:#010x}", magic, kMagic);
  if (version != kVersion || kind != kKindKeyBalance) {
    return DataLoss("artifact: version {} of kind {}; this build reads version {} of kind {}", version, kind, kVersion,
                    kKindKeyBalance);
  }
  absl::Status shape = CheckBalanceShape(layers, heads, width);
  if (!shape.ok()) return DataLoss("{}", Message(shape));
  uint64_t values = uint64_t{layers} * heads * width;
  uint64_t expected = kHeadBytes + values * 2 * sizeof(float) + kCrcBytes;
  if (serialized.size() != expected) {
    return DataLoss("artifact: {} bytes, its shape needs {}", serialized.size(), expected);
  }
  uint64_t crc = LoadLe<uint64_t>(serialized.data() + expected - kCrcBytes);
  if (crc != Crc64(serialized.first(expected - kCrcBytes), 0)) return DataLoss("artifact: its CRC does not match");
  std::vector<float> mean(values), weight(values);
  for (std::vector<float>* into : {&mean, &weight}) {
    ByteSpan bytes = reader.ReadBytes(values * sizeof(float));
    std::memcpy(into->data(), bytes.data(), bytes.size());
  }
  auto balance = Create(layers, heads, width, std::move(mean), std::move(weight));
  if (!balance.ok()) return DataLoss("{}", Message(balance.status()));
  return balance;
}

std::span<const float> KeyBalance::Mean(uint32_t layer, uint32_t head) const {
  FIRN_CHECK(layer < layers_ && head < heads_);
  return std::span<const float>(mean_).subspan((size_t{layer} * heads_ + head) * width_, width_);
}

std::span<const float> KeyBalance::Weight(uint32_t layer, uint32_t head) const {
  FIRN_CHECK(layer < layers_ && head < heads_);
  return std::span<const float>(weight_).subspan((size_t{layer} * heads_ + head) * width_, width_);
}

}  // namespace firn
