#include "client/cpp/tensor/tensor_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/status.h"
#include "client/cpp/tensor/output_file.h"
#include "client/cpp/tensor/tensor_formats.h"

namespace firn {
namespace {

constexpr ElementTraits kElements[] = {
    {ElementType::kF16, 2, "F16", "<f2"},     {ElementType::kBf16, 2, "BF16", ""},
    {ElementType::kF32, 4, "F32", "<f4"},     {ElementType::kF64, 8, "F64", "<f8"},
    {ElementType::kF8E4m3, 1, "F8_E4M3", ""}, {ElementType::kF8E5m2, 1, "F8_E5M2", ""},
    {ElementType::kI8, 1, "I8", "|i1"},       {ElementType::kU8, 1, "U8", "|u1"},
    {ElementType::kI16, 2, "I16", "<i2"},     {ElementType::kU16, 2, "U16", "<u2"},
    {ElementType::kI32, 4, "I32", "<i4"},     {ElementType::kU32, 4, "U32", "<u4"},
    {ElementType::kI64, 8, "I64", "<i8"},     {ElementType::kU64, 8, "U64", "<u8"},
};

class MappedFile {
 public:
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Open(const std::string& path) {
    int fd = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);  // A FIFO would wait for its writer.
    if (fd < 0) return ErrnoStatus(errno, "open " + path);
    struct stat info {};
    if (fstat(fd, &info) != 0) {
      absl::Status status = ErrnoStatus(errno, "stat " + path);
      close(fd);
      return status;
    }
    if (!S_ISREG(info.st_mode)) {
      close(fd);
      return InvalidArgument("{} is not a regular file", path);
    }
    auto size = static_cast<size_t>(info.st_size);
    void* at = size == 0 ? nullptr : mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    int error_number = errno;
    close(fd);
    if (at == MAP_FAILED) return ErrnoStatus(error_number, "mmap " + path);
    return std::make_shared<const MappedFile>(at, size);
  }

  MappedFile(void* at, size_t size) : at_(at), size_(size) {}
  ~MappedFile() {
    if (at_ != nullptr) munmap(at_, size_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ByteSpan bytes() const { return {static_cast<const uint8_t*>(at_), size_}; }

 private:
  void* at_;
  size_t size_;
};

absl::Status WriteWhole(const std::string& path, const std::string& header, const std::vector<Tensor>& tensors) {
  std::vector<ByteSpan> pieces = {AsBytes(header)};
  for (const Tensor& tensor : tensors) pieces.push_back(tensor.bytes);
  return WriteOutputFile(path, pieces);
}

template <typename Source, typename Target, typename Convert>
absl::StatusOr<std::vector<Target>> ConvertAll(const Tensor& tensor, Convert convert) {
  std::vector<Target> out(tensor.values());
  for (size_t i = 0; i < out.size(); ++i) {
    Source value = LoadLe<Source>(tensor.bytes.data() + i * sizeof(Source));
    if constexpr (std::is_same_v<decltype(convert(value)), bool>) {
      if (!convert(value)) {
        return InvalidArgument("value {} at position {} of tensor '{}' is not a token id: 0 to {} expected", value, i,
                               tensor.name, std::numeric_limits<uint32_t>::max());
      }
      out[i] = static_cast<Target>(value);
    } else {
      out[i] = convert(value);
    }
  }
  return out;
}

}  // namespace

const ElementTraits& TraitsOf(ElementType type) {
  for (const ElementTraits& row : kElements) {
    if (row.type == type) return row;
  }
  FIRN_CHECK(false && "an element type outside its enumeration");
  __builtin_unreachable();
}

std::span<const ElementTraits> AllElementTraits() { return kElements; }

std::string DescribeTensor(const Tensor& tensor) {
  std::string text(TraitsOf(tensor.type).safetensors);
  text += " (";
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(tensor.shape[i]);
  }
  return text + ")";
}

absl::StatusOr<TensorFile> TensorFile::Open(const std::string& path) {
  FIRN_ASSIGN_OR_RETURN(std::shared_ptr<const MappedFile> map, MappedFile::Open(path));
  ByteSpan bytes = map->bytes();
  return Parse(path, bytes, std::move(map));
}

absl::StatusOr<TensorFile> TensorFile::Parse(const std::string& path, ByteSpan bytes,
                                             std::shared_ptr<const void> owner) {
  TensorFile file;
  file.path_ = path;
  file.owner_ = std::move(owner);
  if (AsText(bytes).starts_with(tensor_internal::kNpyMagic)) {
    FIRN_ASSIGN_OR_RETURN(Tensor tensor, tensor_internal::ParseNpy(path, bytes));
    file.tensors_.push_back(std::move(tensor));
  } else {
    FIRN_ASSIGN_OR_RETURN(file.tensors_, tensor_internal::ParseSafetensors(path, bytes, &file.metadata_));
  }
  return file;
}

const Tensor* TensorFile::Find(std::string_view name) const {
  for (const Tensor& tensor : tensors_) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

absl::Status WriteNpy(const std::string& path, const Tensor& tensor) {
  FIRN_ASSIGN_OR_RETURN(std::string header, tensor_internal::NpyHeader(tensor));
  return WriteWhole(path, header, {tensor});
}

absl::Status WriteSafetensors(const std::string& path, const std::vector<Tensor>& tensors,
                              const std::map<std::string, std::string>& metadata) {
  FIRN_ASSIGN_OR_RETURN(std::string header, tensor_internal::SafetensorsHeader(tensors, metadata));
  return WriteWhole(path, header, tensors);
}

float HalfToFloat(uint16_t bits) {
  uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  uint32_t exponent = (bits >> 10) & 0x1F;
  uint32_t mantissa = bits & 0x3FF;
  if (exponent == 0) {
    float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

float Bf16ToFloat(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

absl::StatusOr<std::vector<float>> ToFloats(const Tensor& tensor) {
  switch (tensor.type) {
    case ElementType::kF16:
      return ConvertAll<uint16_t, float>(tensor, HalfToFloat);
    case ElementType::kBf16:
      return ConvertAll<uint16_t, float>(tensor, Bf16ToFloat);
    case ElementType::kF32:
      return ConvertAll<float, float>(tensor, [](float value) { return value; });
    case ElementType::kF64:
      return ConvertAll<double, float>(tensor, [](double value) { return static_cast<float>(value); });
    default:
      return InvalidArgument("tensor '{}' is {}; F16, BF16, F32 or F64 expected", tensor.name, DescribeTensor(tensor));
  }
}

absl::StatusOr<std::vector<uint32_t>> ToTokenIds(const Tensor& tensor) {
  auto fits = [](auto value) -> bool {
    if constexpr (std::is_signed_v<decltype(value)>) {
      if (value < 0) return false;
    }
    return static_cast<uint64_t>(value) <= std::numeric_limits<uint32_t>::max();
  };
  switch (tensor.type) {
    case ElementType::kU8:
      return ConvertAll<uint8_t, uint32_t>(tensor, fits);
    case ElementType::kI16:
      return ConvertAll<int16_t, uint32_t>(tensor, fits);
    case ElementType::kU16:
      return ConvertAll<uint16_t, uint32_t>(tensor, fits);
    case ElementType::kI32:
      return ConvertAll<int32_t, uint32_t>(tensor, fits);
    case ElementType::kU32:
      return ConvertAll<uint32_t, uint32_t>(tensor, fits);
    case ElementType::kI64:
      return ConvertAll<int64_t, uint32_t>(tensor, fits);
    case ElementType::kU64:
      return ConvertAll<uint64_t, uint32_t>(tensor, fits);
    default:
      return InvalidArgument("tensor '{}' is {}; token ids are integers of 8 to 64 bits", tensor.name,
                             DescribeTensor(tensor));
  }
}

}  // namespace firn
