// The errors of a part that was encoded elsewhere, on a GPU say: what Encode would have put into its header.
//
// The rows that Encode compares (ErrorSampler) are named first, so that only these need be brought here; their codes
// are read from the encoded block, of codecs of layers those of a few whole layers. Rows are FP16 or BF16 as the source
// had them. Not thread-safe. Errors: Unimplemented for codings whose heads differ, and where nothing is coded.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "codecs/artifact.h"
#include "codecs/block/part_geometry.h"
#include "codecs/encoded_block.h"

namespace firn {

class SampledErrors {
 public:
  // `header` is the encoded block's; its part was coded anew from source values.
  static absl::StatusOr<SampledErrors> Create(std::shared_ptr<const RecordHeader> header, Part part);

  // How many rows are compared, and which row i of them is: coded token r % coded_tokens() of head r / coded_tokens(),
  // heads counted over all layers, where r is RowAt(i). They ascend, the first being row 0, and of codecs of heads they
  // are all as far apart.
  uint64_t rows() const { return rows_; }
  uint64_t RowAt(uint64_t i) const;
  const PartGeometry& geometry() const { return geometry_; }

  // `source` are those rows, one after another; `encoded` has the part's runs.
  absl::StatusOr<PartErrors> Measure(ByteSpan source, const EncodedBlock& encoded,
                                     const ArtifactSource& artifacts) const;

 private:
  SampledErrors(std::shared_ptr<const RecordHeader> header, PartGeometry geometry);

  std::shared_ptr<const RecordHeader> header_;
  PartGeometry geometry_;
  PrecisionClass finest_;
  uint64_t rows_ = 0, stride_ = 1;
  uint64_t layer_rows_ = 0;
  uint32_t layer_step_ = 1;
};

}  // namespace firn
