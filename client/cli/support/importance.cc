#include "client/cli/support/importance.h"

#include <cmath>

#include "base/status.h"
#include "client/cpp/tensor/tensor_file.h"

namespace firn::cli {

absl::StatusOr<std::vector<float>> ReadImportance(const std::string& path, uint32_t tokens, uint32_t block_tokens) {
  FIRN_ASSIGN_OR_RETURN(TensorFile file, TensorFile::Open(path));
  if (file.tensors().size() != 1) {
    return InvalidArgument("{} has {} tensors; allowed: one, the importance of tokens", path, file.tensors().size());
  }
  const Tensor& tensor = file.tensors()[0];
  if (tensor.type != ElementType::kF32) {
    return InvalidArgument("{} is {}; allowed: F32", path, DescribeTensor(tensor));
  }
  uint64_t blocks = (uint64_t{tokens} + block_tokens - 1) / block_tokens, places = blocks * block_tokens;
  bool of_tokens = tensor.shape == std::vector<uint64_t>{tokens};
  bool of_blocks =
      tensor.shape == std::vector<uint64_t>{places} || tensor.shape == std::vector<uint64_t>{blocks, block_tokens};
  if (!of_tokens && !of_blocks) {
    return InvalidArgument("{} is {}; allowed: ({}), a value a token, or ({}, {}), a value a place of each block", path,
                           DescribeTensor(tensor), tokens, blocks, block_tokens);
  }
  FIRN_ASSIGN_OR_RETURN(std::vector<float> values, ToFloats(tensor));
  values.resize(tokens);
  for (uint32_t i = 0; i < tokens; ++i) {
    if (std::isfinite(values[i]) && values[i] >= 0) continue;
    return InvalidArgument("{}: the importance of token {} (block {}, its token {}) is {}; allowed: finite, 0 or above",
                           path, i, i / block_tokens, i % block_tokens, values[i]);
  }
  return values;
}

}  // namespace firn::cli
