#include "client/cli/support/kv_file.h"

#include <charconv>

#include "base/digest.h"
#include "base/status.h"

namespace firn::cli {
namespace {

using firnkv::DType;

std::optional<DType> DTypeOf(ElementType type) {
  switch (type) {
    case ElementType::kF16:
      return DType::kFp16;
    case ElementType::kBf16:
      return DType::kBf16;
    case ElementType::kF8E4m3:
      return DType::kFp8E4m3;
    case ElementType::kF8E5m2:
      return DType::kFp8E5m2;
    default:
      return std::nullopt;
  }
}

bool IsFp8(DType dtype) { return dtype == DType::kFp8E4m3 || dtype == DType::kFp8E5m2; }

std::string LayerList(const std::vector<uint32_t>& layers) {
  std::string text = "layers ";
  for (size_t i = 0; i < layers.size(); ++i) text += (i == 0 ? "" : ",") + std::to_string(layers[i]);
  return text;
}

}  // namespace

bool SplitLayerName(const std::string& name, uint32_t* layer, std::string* suffix) {
  size_t dot = name.rfind('.');
  if (dot == std::string::npos) return false;
  size_t digits = dot;
  while (digits > 0 && std::isdigit(static_cast<unsigned char>(name[digits - 1]))) --digits;
  auto [end, error] = std::from_chars(name.data() + digits, name.data() + dot, *layer);
  if (digits == dot || error != std::errc() || end != name.data() + dot) return false;
  *suffix = name.substr(dot + 1);
  return true;
}

absl::StatusOr<std::shared_ptr<const KvFile>> KvFile::Open(const std::string& path, const Options& options) {
  auto file = std::make_shared<KvFile>();
  FIRN_ASSIGN_OR_RETURN(file->file_, TensorFile::Open(path));
  bool npy = file->file_.tensors().size() == 1 && file->file_.tensors()[0].name.empty();
  FIRN_RETURN_IF_ERROR(npy ? file->ReadNpy() : file->ReadSafetensors(options.k_suffix));
  FIRN_RETURN_IF_ERROR(file->ReadTokens(options.tokens_path));
  return std::shared_ptr<const KvFile>(std::move(file));
}

absl::Status KvFile::ReadSafetensors(const std::string& k_suffix) {
  std::map<uint32_t, std::array<LayerPart, 2>> layers;
  for (const Tensor& tensor : file_.tensors()) {
    uint32_t layer = 0;
    std::string suffix;
    if (!SplitLayerName(tensor.name, &layer, &suffix)) continue;
    int part = suffix == k_suffix || (k_suffix == "k" && suffix == "key") ? 0
               : suffix == "v" || suffix == "value"                       ? 1
                                                                          : -1;
    if (part >= 0) layers[layer][part].tensor = &tensor;
  }
  if (layers.empty()) {
    return InvalidArgument("{} has no tensors named LAYER.{} and LAYER.v", file_.path(), k_suffix);
  }
  facts_.k_pre_rope = k_suffix != "k";
  FIRN_RETURN_IF_ERROR(ReadLayers(layers));
  return IsFp8(facts_.dtype) ? ReadScales() : absl::OkStatus();
}

absl::Status KvFile::ReadLayers(const std::map<uint32_t, std::array<LayerPart, 2>>& layers) {
  token_major_ = true;
  std::vector<uint32_t> numbers;
  const Tensor* model = nullptr;
  for (const auto& [layer, parts] : layers) {
    numbers.push_back(layer);
    for (int part : {0, 1}) {
      const Tensor* tensor = parts[part].tensor;
      if (tensor == nullptr) {
        if (part == 1 && layers_[1].empty()) continue;  // K alone, in every layer.
        return InvalidArgument("{}: layer {} has no {}", file_.path(), layer, part == 0 ? "K" : "V");
      }
      auto dtype = DTypeOf(tensor->type);
      if (!dtype.has_value() || tensor->shape.size() != 3) {
        return InvalidArgument("{}: tensor '{}' is {}; F16, BF16 or F8 of shape (tokens, heads, channels) expected",
                               file_.path(), tensor->name, DescribeTensor(*tensor));
      }
      if (model == nullptr) model = tensor;
      uint32_t& width = part == 0 ? facts_.k_width : facts_.v_width;
      if (layers_[part].empty()) width = static_cast<uint32_t>(tensor->shape[2]);
      bool late_v = part == 1 && layers_[1].empty() && numbers.size() > 1;
      if (late_v || tensor->type != model->type || tensor->shape[0] != model->shape[0] ||
          tensor->shape[1] != model->shape[1] || tensor->shape[2] != width) {
        return InvalidArgument("{}: tensor '{}' is {}, which does not go with '{}', {}", file_.path(), tensor->name,
                               DescribeTensor(*tensor), model->name, DescribeTensor(*model));
      }
      layers_[part].push_back(tensor->bytes.data());
    }
  }
  facts_.dtype = *DTypeOf(model->type);
  value_bytes_ = firnkv::DTypeBytes(facts_.dtype);
  tokens_ = static_cast<uint32_t>(model->shape[0]);
  facts_.kv_heads = static_cast<uint32_t>(model->shape[1]);
  bool gapless = numbers.back() - numbers.front() + 1 == numbers.size();
  facts_.layer_first = gapless ? numbers.front() : 0;
  facts_.layer_last = facts_.layer_first + static_cast<uint32_t>(numbers.size());
  if (!gapless) facts_.revision = LayerList(numbers);
  return absl::OkStatus();
}

absl::Status KvFile::ReadScales() {
  for (const Tensor& tensor : file_.tensors()) {
    uint32_t layer = 0;
    std::string suffix;
    if (!SplitLayerName(tensor.name, &layer, &suffix)) continue;
    int part = suffix == "k_scale" ? 0 : suffix == "v_scale" ? 1 : -1;
    if (part < 0) continue;
    if (tensor.type != ElementType::kF32 || (tensor.values() != 1 && tensor.values() != facts_.kv_heads)) {
      return InvalidArgument("{}: tensor '{}' is {}; F32 with 1 or {} values expected", file_.path(), tensor.name,
                             DescribeTensor(tensor), facts_.kv_heads);
    }
    FIRN_ASSIGN_OR_RETURN(std::vector<float> values, ToFloats(tensor));
    values.resize(facts_.kv_heads, values[0]);
    scales_[part].insert(scales_[part].end(), values.begin(), values.end());
  }
  for (int part : {0, 1}) {
    size_t needed = layers_[part].size() * facts_.kv_heads;
    if (scales_[part].size() != needed) {
      return InvalidArgument("{}: FP8 values need scales (LAYER.k_scale, LAYER.v_scale): {} found for {}, {} needed",
                             file_.path(), scales_[part].size(), part == 0 ? "K" : "V", needed);
    }
  }
  return absl::OkStatus();
}

absl::Status KvFile::ReadNpy() {
  const Tensor& tensor = file_.tensors()[0];
  auto dtype = DTypeOf(tensor.type);
  std::vector<uint64_t> shape = tensor.shape;
  if (shape.size() == 4) shape.insert(shape.begin(), 1);
  if (!dtype.has_value() || shape.size() != 5 || shape[0] < 1 || shape[0] > 2 || tensor.bytes.empty()) {
    return InvalidArgument(
        "{} is {}; F16 of shape (2, layers, heads, tokens, channels) or, for K alone, one dimension less expected",
        file_.path(), DescribeTensor(tensor));
  }
  facts_.dtype = *dtype;
  value_bytes_ = firnkv::DTypeBytes(*dtype);
  facts_.layer_last = static_cast<uint32_t>(shape[1]);
  facts_.kv_heads = static_cast<uint32_t>(shape[2]);
  tokens_ = static_cast<uint32_t>(shape[3]);
  facts_.k_width = static_cast<uint32_t>(shape[4]);
  facts_.v_width = shape[0] == 2 ? facts_.k_width : 0;
  uint64_t layer_bytes = shape[2] * shape[3] * shape[4] * value_bytes_;
  for (uint64_t part = 0; part < shape[0]; ++part) {
    for (uint64_t layer = 0; layer < shape[1]; ++layer) {
      layers_[part].push_back(tensor.bytes.data() + (part * shape[1] + layer) * layer_bytes);
    }
  }
  return absl::OkStatus();
}

absl::Status KvFile::ReadTokens(const std::string& path) {
  const Tensor* tensor = file_.Find("tokens");
  if (tensor == nullptr) tensor = file_.Find("input_ids");
  TensorFile apart;
  if (!path.empty()) {
    FIRN_ASSIGN_OR_RETURN(apart, TensorFile::Open(path));
    if (apart.tensors().size() != 1)
      return InvalidArgument("{} has {} tensors; one of token ids expected", path, apart.tensors().size());
    tensor = &apart.tensors()[0];
  }
  if (tensor == nullptr) return absl::OkStatus();
  FIRN_ASSIGN_OR_RETURN(token_ids_, ToTokenIds(*tensor));
  if (token_ids_.size() < tokens_) {
    return InvalidArgument("{} has {} token ids; {} has K and V of {} tokens", path.empty() ? file_.path() : path,
                           token_ids_.size(), file_.path(), tokens_);
  }
  token_ids_.resize(tokens_);  // A longer list is the whole text, of which this file holds the beginning.
  return absl::OkStatus();
}

std::span<const uint8_t> KvFile::Piece(int part, uint32_t layer, uint32_t head, uint32_t first, uint32_t count) const {
  uint64_t row_bytes = uint64_t{Width(part)} * value_bytes_;
  const uint8_t* base = layers_[part][layer];
  if (token_major_) {  // All heads of the tokens are one piece.
    uint64_t token_bytes = row_bytes * facts_.kv_heads;
    return {base + first * token_bytes, count * token_bytes};
  }
  return {base + (uint64_t{head} * tokens_ + first) * row_bytes, count * row_bytes};
}

firnkv::SourceParts KvFile::Parts(uint32_t first, uint32_t count) const {
  firnkv::SourceParts out;
  for (int part : {0, 1}) {
    firnkv::SourcePieces& target = part == 0 || token_major_ ? out.k : out.v;  // With a layout, K and V are one space.
    for (uint32_t layer = 0; layer < layers_[part].size(); ++layer) {
      for (uint32_t head = 0; head < (token_major_ ? 1 : facts_.kv_heads); ++head) {
        target.Append(Piece(part, layer, head, first, count));
      }
    }
  }
  auto scale_bytes = [](const std::vector<float>& scales) {
    return std::span(reinterpret_cast<const uint8_t*>(scales.data()), scales.size() * sizeof(float));
  };
  out.k_scales.Append(scale_bytes(scales_[0]));
  out.v_scales.Append(scale_bytes(scales_[1]));
  return out;
}

std::optional<firnkv::Layout> KvFile::LayoutOf(uint32_t count) const {
  if (!token_major_) return std::nullopt;
  auto layout_of = [&](uint64_t offset, uint64_t width) {
    uint64_t token_stride = facts_.kv_heads * width;
    return firnkv::PartLayout{.offset = offset,
                              .layer_stride = count * token_stride,
                              .head_stride = width,
                              .token_stride = token_stride,
                              .channel_stride = 1};
  };
  uint64_t k_values = uint64_t{facts_.layers()} * facts_.kv_heads * count * facts_.k_width;
  uint64_t v_values = uint64_t{facts_.layers()} * facts_.kv_heads * count * facts_.v_width;
  return firnkv::Layout{.k = layout_of(0, facts_.k_width),
                        .v = layout_of(k_values, facts_.v_width),
                        .payload_bytes = (k_values + v_values) * value_bytes_};
}

std::string KvFile::ContentKey(uint32_t first, uint32_t count) const {
  std::vector<uint8_t> digests;
  firnkv::SourceParts parts = Parts(first, count);
  for (const auto* list : {&parts.k, &parts.v, &parts.k_scales, &parts.v_scales}) {
    for (auto piece : list->pieces()) {
      Digest digest = Sha256(piece);
      digests.insert(digests.end(), digest.bytes.begin(), digest.bytes.end());
    }
  }
  return "content:" + Sha256(digests).Hex();
}

absl::StatusOr<std::vector<float>> KvFile::Values(uint32_t first, uint32_t count) const {
  if (facts_.dtype != DType::kFp16 && facts_.dtype != DType::kBf16) {
    return InvalidArgument("{} holds {}; values are compared for fp16 and bf16", file_.path(),
                           firnkv::DTypeName(facts_.dtype));
  }
  auto convert = facts_.dtype == DType::kFp16 ? HalfToFloat : Bf16ToFloat;
  std::vector<float> out;
  for (int part : {0, 1}) {
    uint64_t width = Width(part);
    for (uint32_t layer = 0; layer < layers_[part].size(); ++layer) {
      for (uint32_t head = 0; head < facts_.kv_heads; ++head) {
        std::span<const uint8_t> piece = Piece(part, layer, head, first, count);
        uint64_t stride = token_major_ ? facts_.kv_heads * width : width;
        uint64_t start = token_major_ ? head * width : 0;
        for (uint64_t token = 0; token < count; ++token) {
          for (uint64_t channel = 0; channel < width; ++channel) {
            out.push_back(convert(LoadLe<uint16_t>(piece.data() + (start + token * stride + channel) * 2)));
          }
        }
      }
    }
  }
  return out;
}

}  // namespace firn::cli
