#include "client/cli/calibrate/capture.h"

#include <algorithm>
#include <filesystem>

#include "base/status.h"
#include "client/cli/support/kv_file.h"

namespace firn::cli {
namespace {

constexpr struct {
  std::string_view suffix;
  const Tensor* LayerTensors::*tensor;
} kSuffixes[] = {
    {"k", &LayerTensors::k},          {"key", &LayerTensors::k},         {"k_pre_rope", &LayerTensors::k_pre_rope},
    {"v", &LayerTensors::v},          {"value", &LayerTensors::v},       {"q", &LayerTensors::q},
    {"query", &LayerTensors::q},      {"k_grad", &LayerTensors::k_grad}, {"v_grad", &LayerTensors::v_grad},
    {"o_proj", &LayerTensors::o_proj}};

void Place(const Tensor& tensor, std::map<uint32_t, LayerTensors>* layers) {
  uint32_t layer = 0;
  std::string suffix;
  if (!SplitLayerName(tensor.name, &layer, &suffix)) return;
  for (const auto& known : kSuffixes) {
    if (suffix == known.suffix) (*layers)[layer].*known.tensor = &tensor;
  }
}

Digest DigestOf(const Tensor& tensor) {
  ByteWriter writer;
  writer.WriteBytes(AsBytes(tensor.name + "\n" + DescribeTensor(tensor) + "\n"));
  writer.WriteBytes(Sha256(tensor.bytes).span());
  return Sha256(writer.bytes());
}

}  // namespace

absl::StatusOr<Capture> Capture::Open(const std::string& path) {
  Capture capture;
  capture.path_ = path;
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    FIRN_RETURN_IF_ERROR(capture.ReadDirectory());
  } else {
    FIRN_ASSIGN_OR_RETURN(TensorFile file, TensorFile::Open(path));
    capture.files_.push_back(std::move(file));
    for (const Tensor& tensor : capture.files_[0].tensors()) Place(tensor, &capture.layers_);
  }
  FIRN_RETURN_IF_ERROR(capture.FindLayers());
  return capture;
}

absl::Status Capture::ReadDirectory() {
  std::vector<std::filesystem::path> paths;
  std::error_code error;
  for (std::filesystem::directory_iterator at(path_, error), end; !error && at != end; at.increment(error)) {
    if (at->path().extension() == ".npy") paths.push_back(at->path());
    if (paths.size() > kCaptureFilesMax)
      return InvalidArgument("{} has more than {} .npy files", path_, kCaptureFilesMax);
  }
  if (error) return ErrnoStatus(error.value(), "read the directory " + path_);
  std::sort(paths.begin(), paths.end());
  for (const auto& path : paths) {
    FIRN_ASSIGN_OR_RETURN(TensorFile file, TensorFile::Open(path.string()));
    if (file.tensors().size() != 1 || !file.tensors()[0].name.empty()) {
      return InvalidArgument("{} is not a .npy file", path.string());
    }
    auto tensor = std::make_unique<Tensor>(file.tensors()[0]);
    tensor->name = path.stem().string();
    Place(*tensor, &layers_);
    named_.push_back(std::move(tensor));
    files_.push_back(std::move(file));
  }
  return absl::OkStatus();
}

absl::Status Capture::FindLayers() {
  for (auto it = layers_.begin(); it != layers_.end();) {
    it = it->second.k == nullptr ? layers_.erase(it) : std::next(it);
  }
  if (layers_.empty()) return InvalidArgument("{} has no tensors named LAYER.k", path_);
  for (const auto& [layer, tensors] : layers_) {
    FIRN_RETURN_IF_ERROR(CheckRanks(tensors));
    if (shape_.kv_heads == 0) shape_.kv_heads = tensors.k->shape[1], shape_.k_width = tensors.k->shape[2];
    if (shape_.query_heads == 0 && tensors.q != nullptr) shape_.query_heads = tensors.q->shape[1];
    if (shape_.v_width == 0 && tensors.v != nullptr) shape_.v_width = tensors.v->shape[2];
  }
  for (const auto& [layer, tensors] : layers_) FIRN_RETURN_IF_ERROR(CheckLayer(layer, tensors));
  return absl::OkStatus();
}

absl::Status Capture::CheckRanks(const LayerTensors& tensors) const {
  for (const auto& known : kSuffixes) {
    const Tensor* tensor = tensors.*known.tensor;
    size_t rank = known.suffix == "o_proj" ? 2 : 3;
    if (tensor == nullptr || tensor->shape.size() == rank) continue;
    return InvalidArgument("{}: tensor '{}' is {}; shape {} expected", path_, tensor->name, DescribeTensor(*tensor),
                           rank == 3 ? "(tokens, heads, channels)" : "(hidden, query heads * channels)");
  }
  return absl::OkStatus();
}

absl::Status Capture::CheckLayer(uint32_t layer, const LayerTensors& tensors) const {
  if (tensors.k->values() == 0) {
    return InvalidArgument("{}: tensor '{}' is {}, without a value", path_, tensors.k->name,
                           DescribeTensor(*tensors.k));
  }
  uint64_t tokens = tensors.k->shape[0];
  auto fits = [&](const Tensor* tensor, uint64_t heads, uint64_t width) {
    return tensor == nullptr || tensor->shape == std::vector<uint64_t>{tokens, heads, width};
  };
  const CaptureShape& s = shape_;
  bool o_fits = tensors.o_proj == nullptr || tensors.o_proj->shape[1] == s.query_heads * s.v_width;
  if (fits(tensors.k, s.kv_heads, s.k_width) && o_fits && fits(tensors.k_pre_rope, s.kv_heads, s.k_width) &&
      fits(tensors.v, s.kv_heads, s.v_width) && fits(tensors.q, s.query_heads, s.k_width) &&
      fits(tensors.k_grad, s.kv_heads, s.k_width) && fits(tensors.v_grad, s.kv_heads, s.v_width)) {
    return absl::OkStatus();
  }
  std::string found;
  for (const auto& known : kSuffixes) {
    const Tensor* tensor = tensors.*known.tensor;
    if (tensor != nullptr)
      found += fmt::format("{}{} is {}", found.empty() ? "" : ", ", tensor->name, DescribeTensor(*tensor));
  }
  return InvalidArgument("{}: layer {}: {}; {} KV heads of {} and {} channels, {} query heads expected", path_, layer,
                         found, s.kv_heads, s.k_width, s.v_width, s.query_heads);
}

Digest Capture::ContentDigest() const {
  ByteWriter writer;
  for (const auto& [layer, tensors] : layers_) {
    for (const auto& known : kSuffixes) {
      const Tensor* tensor = tensors.*known.tensor;
      if (tensor != nullptr) writer.WriteBytes(DigestOf(*tensor).span());
    }
  }
  return Sha256(writer.bytes());
}

}  // namespace firn::cli
