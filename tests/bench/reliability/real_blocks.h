// Blocks of real keys and values, cut out of a capture and encoded with the codes of the presets.
//
// Keys are centred, balanced and rotated with an artifact that is measured on the capture itself, values rotated, as
// presets `firn-fast` (the ladder of minimum and step) and `firn` (trellis) have them. Threads: immutable.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "codecs/block_codec.h"

namespace firn::bench {

class RealBlocks : public ArtifactSource {
 public:
  // At most `blocks_max` blocks of `tokens` tokens, of all layers; a last block of fewer is left out.
  static absl::StatusOr<RealBlocks> Open(const std::string& path, uint32_t tokens, uint32_t blocks_max);

  const BlockShape& shape() const { return shape_; }
  // Numbers of the capture's layers, by the block's.
  const std::vector<uint32_t>& layers() const { return layers_; }
  const std::vector<EncodedBlock>& sources() const { return sources_; }
  // Floats [layer][head][token][channel] of a source.
  std::vector<float> SourceValues(size_t block, Part part) const;
  absl::StatusOr<EncodedBlock> Encoded(size_t block, Ladder ladder, PrecisionClass at) const;

  std::shared_ptr<const Artifact> Find(const Digest& digest) const override;

 private:
  BlockShape shape_;
  std::vector<uint32_t> layers_;
  std::shared_ptr<const Artifact> balance_;
  std::vector<EncodedBlock> sources_;
};

}  // namespace firn::bench
