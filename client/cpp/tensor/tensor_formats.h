// The two parsers and header writers behind tensor_file.h. Threads: pure functions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/tensor/tensor_file.h"

namespace firn::tensor_internal {

inline constexpr std::string_view kNpyMagic("\x93NUMPY", 6);

absl::StatusOr<Tensor> ParseNpy(const std::string& path, ByteSpan file);
absl::StatusOr<std::vector<Tensor>> ParseSafetensors(const std::string& path, ByteSpan file,
                                                     std::map<std::string, std::string>* metadata);

// Everything of the file that precedes the values.
absl::StatusOr<std::string> NpyHeader(const Tensor& tensor);
absl::StatusOr<std::string> SafetensorsHeader(const std::vector<Tensor>& tensors,
                                              const std::map<std::string, std::string>& metadata);

// The bytes that a tensor of this type and shape has; InvalidArgument when the product does not fit in 63 bits or the
// rank is over kTensorRankMax. `what` opens the message.
absl::StatusOr<uint64_t> TensorBytes(const std::string& what, ElementType type, const std::vector<uint64_t>& shape);

}  // namespace firn::tensor_internal
