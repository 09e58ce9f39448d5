// Tensor files: .npy and .safetensors, read through a memory map and written whole.
//
// The format is told by the file's first bytes, not by its name. Everything in a header is hostile until checked:
// lengths are bounded before they are used, products of shapes may not overflow, and the bytes of a tensor always lie
// inside the file. Threads: a TensorFile is immutable. Ownership: tensors view the map, which lives as long as any copy
// of the TensorFile. A file that another process truncates while it is mapped ends this process with SIGBUS, as with
// every memory map. Shapes: row-major. Fortran order, big-endian and structured .npy arrays are refused, never
// reinterpreted; so is a dtype that is not in the table (numpy has no bfloat16 and no FP8: those live in safetensors).
// Errors: InvalidArgument names file, field, value and limit; system calls keep their errno.
// Limits: kTensorHeaderBytesMax, kTensorRankMax, kTensorsMax.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"

namespace firn {

inline constexpr uint64_t kTensorHeaderBytesMax = 16u << 20;
inline constexpr uint32_t kTensorRankMax = 16;
inline constexpr size_t kTensorsMax = 100'000;

enum class ElementType : uint8_t {
  kF16,
  kBf16,
  kF32,
  kF64,
  kF8E4m3,
  kF8E5m2,
  kI8,
  kU8,
  kI16,
  kU16,
  kI32,
  kU32,
  kI64,
  kU64
};

// One row a type. `npy` is empty where the format cannot say it.
struct ElementTraits {
  ElementType type;
  uint32_t bytes;
  std::string_view safetensors;
  std::string_view npy;
};
const ElementTraits& TraitsOf(ElementType type);
std::span<const ElementTraits> AllElementTraits();

struct Tensor {
  std::string name;  // Empty in a .npy file.
  ElementType type = ElementType::kF16;
  std::vector<uint64_t> shape;
  ByteSpan bytes;

  uint64_t values() const { return bytes.size() / TraitsOf(type).bytes; }
};

// "F16 (1024, 2, 128)", for messages.
std::string DescribeTensor(const Tensor& tensor);

class TensorFile {
 public:
  static absl::StatusOr<TensorFile> Open(const std::string& path);
  // Over bytes that `owner` keeps alive; `path` is for messages only.
  static absl::StatusOr<TensorFile> Parse(const std::string& path, ByteSpan bytes, std::shared_ptr<const void> owner);

  const std::vector<Tensor>& tensors() const { return tensors_; }
  // Null when there is none.
  const Tensor* Find(std::string_view name) const;
  // The "__metadata__" of a safetensors file.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::vector<Tensor> tensors_;  // In the order of their bytes.
  std::map<std::string, std::string> metadata_;
  std::shared_ptr<const void> owner_;
};

// Both write beside `path` and rename (output_file.h), so that a reader never sees half a file.
absl::Status WriteNpy(const std::string& path, const Tensor& tensor);
absl::Status WriteSafetensors(const std::string& path, const std::vector<Tensor>& tensors,
                              const std::map<std::string, std::string>& metadata);

// Values as float, from F16, BF16, F32, F64 (FP8 needs a scale and is refused), and integers of up to 32 bits as uint32
// (negative values are refused: token ids are not).
absl::StatusOr<std::vector<float>> ToFloats(const Tensor& tensor);
absl::StatusOr<std::vector<uint32_t>> ToTokenIds(const Tensor& tensor);

float HalfToFloat(uint16_t bits);
float Bf16ToFloat(uint16_t bits);

}  // namespace firn
