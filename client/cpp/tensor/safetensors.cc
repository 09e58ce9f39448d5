#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/status.h"
#include "client/cpp/tensor/tensor_formats.h"

namespace firn::tensor_internal {
namespace {

using Json = nlohmann::json;

constexpr char kMetadataKey[] = "__metadata__";
constexpr int kJsonDepthMax = 3;  // {name: {shape: [...]}}

const ElementTraits* FindByName(std::string_view name) {
  for (const ElementTraits& row : AllElementTraits()) {
    if (row.safetensors == name) return &row;
  }
  return nullptr;
}

// Parses without exceptions; refuses depth and repeated names, which nlohmann would accept.
absl::StatusOr<Json> ParseHeaderJson(const std::string& path, std::string_view text) {
  std::set<std::string> names;
  std::string fault;
  auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kJsonDepthMax && fault.empty()) {
      fault = fmt::format("is nested deeper than {} levels", kJsonDepthMax);
    }
    if (event == Json::parse_event_t::key && depth == 1) {
      const auto& name = parsed.get_ref<const std::string&>();
      if (!names.insert(name).second && fault.empty()) fault = fmt::format("names tensor '{}' twice", name);
      if (names.size() > kTensorsMax + 1 && fault.empty()) fault = fmt::format("has more than {} tensors", kTensorsMax);
    }
    return fault.empty();
  };
  Json header = Json::parse(text.begin(), text.end(), watch, /*allow_exceptions=*/false);
  if (!fault.empty()) return InvalidArgument("{}: the safetensors header {}", path, fault);
  if (header.is_discarded() || !header.is_object()) {
    return InvalidArgument("{}: the safetensors header of {} bytes is not a JSON object", path, text.size());
  }
  return header;
}

absl::StatusOr<uint64_t> ReadUnsigned(const std::string& what, const Json& value) {
  if (!value.is_number_unsigned()) return InvalidArgument("{} holds a value that is not an unsigned integer", what);
  return value.get<uint64_t>();
}

absl::StatusOr<Tensor> ReadEntry(const std::string& path, const std::string& name, const Json& entry, ByteSpan data) {
  std::string what = fmt::format("{}: tensor '{}'", path, name);
  if (!entry.is_object()) return InvalidArgument("{} is not described by a JSON object", what);
  auto dtype = entry.find("dtype"), shape = entry.find("shape"), offsets = entry.find("data_offsets");
  if (dtype == entry.end() || !dtype->is_string()) return InvalidArgument("{} has no dtype", what);
  if (shape == entry.end() || !shape->is_array()) return InvalidArgument("{} has no shape", what);
  if (offsets == entry.end() || !offsets->is_array() || offsets->size() != 2) {
    return InvalidArgument("{} has no data_offsets of two numbers", what);
  }
  const ElementTraits* traits = FindByName(dtype->get_ref<const std::string&>());
  if (traits == nullptr) {
    return InvalidArgument("{} has dtype '{}'; supported are F16, BF16, F32, F64, F8_E4M3, F8_E5M2 and integers", what,
                           dtype->get_ref<const std::string&>());
  }
  Tensor tensor{.name = name, .type = traits->type, .shape = {}, .bytes = {}};
  if (shape->size() > kTensorRankMax) {
    return InvalidArgument("{} has {} dimensions; the limit is {}", what, shape->size(), kTensorRankMax);
  }
  for (const Json& extent : *shape) {
    FIRN_ASSIGN_OR_RETURN(uint64_t value, ReadUnsigned(what + " shape", extent));
    tensor.shape.push_back(value);
  }
  FIRN_ASSIGN_OR_RETURN(uint64_t begin, ReadUnsigned(what + " data_offsets", (*offsets)[0]));
  FIRN_ASSIGN_OR_RETURN(uint64_t end, ReadUnsigned(what + " data_offsets", (*offsets)[1]));
  FIRN_ASSIGN_OR_RETURN(uint64_t bytes, TensorBytes(what, tensor.type, tensor.shape));
  if (begin > end || end > data.size()) {
    return InvalidArgument("{} has data_offsets [{}, {}); the file holds {} bytes of values", what, begin, end,
                           data.size());
  }
  if (end - begin != bytes) {
    return InvalidArgument("{} has {} bytes of values; its shape and dtype need {}", what, end - begin, bytes);
  }
  tensor.bytes = data.subspan(begin, bytes);
  return tensor;
}

absl::Status ReadMetadata(const std::string& path, const Json& entry, std::map<std::string, std::string>* metadata) {
  if (!entry.is_object()) return InvalidArgument("{}: {} is not a JSON object", path, kMetadataKey);
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string()) return InvalidArgument("{}: {} '{}' is not a string", path, kMetadataKey, key);
    metadata->emplace(key, value.get<std::string>());
  }
  return absl::OkStatus();
}

// The tensors, sorted by place, must cover the data without gap or overlap: what no tensor claims would be hidden data,
// and two tensors on the same bytes are a corrupt file.
absl::Status CheckCovers(const std::string& path, const std::vector<Tensor>& tensors, ByteSpan data) {
  const uint8_t* at = data.data();
  for (const Tensor& tensor : tensors) {
    if (tensor.bytes.data() != at) {
      return InvalidArgument("{}: tensor '{}' starts at byte {} of the values; {} expected", path, tensor.name,
                             tensor.bytes.data() - data.data(), at - data.data());
    }
    at += tensor.bytes.size();
  }
  if (at != data.data() + data.size()) {
    return InvalidArgument("{}: tensors cover {} of {} bytes of values", path, at - data.data(), data.size());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<uint64_t> TensorBytes(const std::string& what, ElementType type, const std::vector<uint64_t>& shape) {
  if (shape.size() > kTensorRankMax) {
    return InvalidArgument("{} has {} dimensions; the limit is {}", what, shape.size(), kTensorRankMax);
  }
  uint64_t bytes = TraitsOf(type).bytes;
  for (uint64_t extent : shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes) || bytes > uint64_t{INT64_MAX}) {
      return InvalidArgument("{} has a shape of more than {} bytes", what, INT64_MAX);
    }
  }
  return bytes;
}

absl::StatusOr<std::vector<Tensor>> ParseSafetensors(const std::string& path, ByteSpan file,
                                                     std::map<std::string, std::string>* metadata) {
  if (file.size() < 8) {
    return InvalidArgument("{} has {} bytes: neither a .npy file nor a safetensors file", path, file.size());
  }
  uint64_t header_bytes = LoadLe<uint64_t>(file.data());
  uint64_t limit = std::min<uint64_t>(kTensorHeaderBytesMax, file.size() - 8);
  if (header_bytes < 2 || header_bytes > limit) {
    return InvalidArgument("{}: neither a .npy file nor a safetensors file: header length {} is outside 2 to {}", path,
                           header_bytes, limit);
  }
  ByteSpan data = file.subspan(8 + header_bytes);
  FIRN_ASSIGN_OR_RETURN(Json header, ParseHeaderJson(path, AsText(file.subspan(8, header_bytes))));
  std::vector<Tensor> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == kMetadataKey) {
      FIRN_RETURN_IF_ERROR(ReadMetadata(path, entry, metadata));
      continue;
    }
    FIRN_ASSIGN_OR_RETURN(Tensor tensor, ReadEntry(path, name, entry, data));
    tensors.push_back(std::move(tensor));
  }
  // By place; an empty tensor sorts before the one that starts where it lies.
  std::stable_sort(tensors.begin(), tensors.end(), [](const Tensor& a, const Tensor& b) {
    return std::pair(a.bytes.data(), a.bytes.size()) < std::pair(b.bytes.data(), b.bytes.size());
  });
  FIRN_RETURN_IF_ERROR(CheckCovers(path, tensors, data));
  return tensors;
}

absl::StatusOr<std::string> SafetensorsHeader(const std::vector<Tensor>& tensors,
                                              const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[kMetadataKey] = metadata;
  uint64_t at = 0;
  for (const Tensor& tensor : tensors) {
    FIRN_ASSIGN_OR_RETURN(uint64_t bytes, TensorBytes("tensor '" + tensor.name + "'", tensor.type, tensor.shape));
    if (bytes != tensor.bytes.size()) {
      return InvalidArgument("tensor '{}' was given {} bytes; its shape and dtype need {}", tensor.name,
                             tensor.bytes.size(), bytes);
    }
    if (tensor.name.empty() || header.contains(tensor.name) || tensor.name == kMetadataKey) {
      return InvalidArgument("'{}' cannot name a tensor: empty, reserved or used twice", tensor.name);
    }
    header[tensor.name] = {
        {"dtype", TraitsOf(tensor.type).safetensors}, {"shape", tensor.shape}, {"data_offsets", {at, at + bytes}}};
    at += bytes;
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  text.append((8 - text.size() % 8) % 8, ' ');  // Values start aligned, as readers expect.
  if (text.size() > kTensorHeaderBytesMax) {
    return InvalidArgument("the safetensors header would have {} bytes; the limit is {}", text.size(),
                           kTensorHeaderBytesMax);
  }
  std::string out(8, '\0');
  StoreLe<uint64_t>(reinterpret_cast<uint8_t*>(out.data()), text.size());
  return out + text;
}

}  // namespace firn::tensor_internal
