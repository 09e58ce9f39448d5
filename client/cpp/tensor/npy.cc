#include <charconv>

#include "base/status.h"
#include "client/cpp/tensor/tensor_formats.h"

namespace firn::tensor_internal {
namespace {

constexpr size_t kNpyHeaderBytesMax = 64 * 1024;

// The header is a Python dictionary literal; this reads the three keys that .npy defines and nothing else.
class DictReader {
 public:
  explicit DictReader(std::string_view text) : text_(text) {}

  bool Take(char wanted) {
    SkipSpace();
    if (at_ >= text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }
  bool TakeString(std::string_view* out) {
    SkipSpace();
    if (at_ >= text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) return false;
    char quote = text_[at_++];
    size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) return false;
    *out = text_.substr(at_, end - at_);
    at_ = end + 1;
    return out->find('\\') == std::string_view::npos;
  }
  bool TakeBool(bool* out) {
    SkipSpace();
    for (auto [word, value] : {std::pair<std::string_view, bool>{"True", true}, {"False", false}}) {
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        *out = value;
        return true;
      }
    }
    return false;
  }
  bool TakeTuple(std::vector<uint64_t>* out) {
    if (!Take('(')) return false;
    while (!Take(')')) {
      SkipSpace();
      uint64_t value = 0;
      auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
      if (error != std::errc() || out->size() > kTensorRankMax) return false;
      at_ = static_cast<size_t>(end - text_.data());
      if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2 wrote long integers so.
      out->push_back(value);
      if (!Take(',')) return Take(')');
    }
    return true;
  }
  bool AtEnd() {
    SkipSpace();
    return at_ == text_.size();
  }

 private:
  void SkipSpace() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  std::string_view text_;
  size_t at_ = 0;
};

struct NpyFields {
  std::string_view descr;
  bool has_descr = false, has_order = false, has_shape = false, fortran_order = false;
  std::vector<uint64_t> shape;
};

bool ReadFields(std::string_view text, NpyFields* fields) {
  DictReader reader(text);
  if (!reader.Take('{')) return false;
  while (!reader.Take('}')) {
    std::string_view key;
    if (!reader.TakeString(&key) || !reader.Take(':')) return false;
    bool* seen = key == "descr" ? &fields->has_descr : key == "shape" ? &fields->has_shape : &fields->has_order;
    if (*seen) return false;
    *seen = true;
    bool read = key == "descr"           ? reader.TakeString(&fields->descr)
                : key == "shape"         ? reader.TakeTuple(&fields->shape)
                : key == "fortran_order" ? reader.TakeBool(&fields->fortran_order)
                                         : false;
    if (!read) return false;
    if (!reader.Take(',')) {
      if (!reader.Take('}')) return false;
      break;
    }
  }
  return reader.AtEnd() && fields->has_descr && fields->has_order && fields->has_shape;
}

const ElementTraits* FindByDescr(std::string_view descr) {
  for (const ElementTraits& row : AllElementTraits()) {
    if (row.npy.empty()) continue;
    // Single bytes have no order: "|u1", "<u1" and ">u1" are the same.
    if (row.npy == descr || (row.bytes == 1 && descr.size() == 3 && row.npy.substr(1) == descr.substr(1))) return &row;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<Tensor> ParseNpy(const std::string& path, ByteSpan file) {
  ByteReader reader(file);
  reader.Skip(kNpyMagic.size());
  auto major = reader.Read<uint8_t>();
  reader.Skip(1);
  if (!reader.ok() || major < 1 || major > 3)
    return InvalidArgument("{}: .npy version {}; 1 to 3 are known", path, major);
  size_t header_bytes = major == 1 ? reader.Read<uint16_t>() : reader.Read<uint32_t>();
  if (!reader.ok() || header_bytes > std::min(kNpyHeaderBytesMax, reader.remaining())) {
    return InvalidArgument("{}: .npy header of {} bytes; the limit is {}, and the file holds {} more bytes", path,
                           header_bytes, kNpyHeaderBytesMax, reader.remaining());
  }
  NpyFields fields;
  if (!ReadFields(AsText(reader.ReadBytes(header_bytes)), &fields)) {
    return InvalidArgument(
        "{}: the .npy header is not {{'descr': a plain type, 'fortran_order': bool, 'shape': tuple}}", path);
  }
  const ElementTraits* traits = FindByDescr(fields.descr);
  if (traits == nullptr) {
    return InvalidArgument(
        "{}: .npy dtype '{}'; little-endian f2, f4, f8 and integers are supported, BF16 and FP8 in safetensors files",
        path, fields.descr);
  }
  if (fields.fortran_order && fields.shape.size() > 1) {
    return InvalidArgument("{}: the array is in Fortran order; save numpy.ascontiguousarray(x) instead", path);
  }
  FIRN_ASSIGN_OR_RETURN(uint64_t bytes, TensorBytes(path, traits->type, fields.shape));
  if (bytes != reader.remaining()) {
    return InvalidArgument("{}: the array needs {} bytes; the file holds {}", path, bytes, reader.remaining());
  }
  return Tensor{.name = "", .type = traits->type, .shape = std::move(fields.shape), .bytes = reader.ReadBytes(bytes)};
}

absl::StatusOr<std::string> NpyHeader(const Tensor& tensor) {
  const ElementTraits& traits = TraitsOf(tensor.type);
  if (traits.npy.empty()) {
    return InvalidArgument("a .npy file cannot hold {}; write a safetensors file", traits.safetensors);
  }
  FIRN_ASSIGN_OR_RETURN(uint64_t bytes, TensorBytes("the array", tensor.type, tensor.shape));
  if (bytes != tensor.bytes.size()) {
    return InvalidArgument("the array was given {} bytes; its shape and dtype need {}", tensor.bytes.size(), bytes);
  }
  std::string shape;
  for (uint64_t extent : tensor.shape) shape += std::to_string(extent) + ", ";
  if (tensor.shape.size() > 1) shape.resize(shape.size() - 2);
  if (tensor.shape.size() == 1) shape.pop_back();
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", traits.npy, shape);
  constexpr size_t kPrefixBytes = 10, kAlignment = 64;
  size_t unpadded = kPrefixBytes + text.size() + 1;
  text.append((kAlignment - unpadded % kAlignment) % kAlignment, ' ');
  text += '\n';
  std::string out(kNpyMagic);
  out += {'\x01', '\0', static_cast<char>(text.size() & 0xFF), static_cast<char>(text.size() >> 8)};
  return out + text;
}

}  // namespace firn::tensor_internal
