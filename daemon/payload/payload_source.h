// Where the payload of a get comes from: the bytes of a block as a sequence of chunks, ready to be sent.
//
// Where the answer is bytes that the store holds (source bytes, packed planes), chunks are views of them; where it has
// to be decoded, a group of layers at a time is decoded into a buffer that the budget has granted. So memory per stream
// stays at a few chunks, whatever the block's size; only a caller's layout needs the whole block at once. Threads: one
// at a time. Ownership: every chunk keeps its bytes alive by itself; the source may go first. Errors:
// FailedPrecondition where the representation cannot be had of this block, InvalidArgument for layers or layouts out of
// range, DataLoss where planes do not decode. All but DataLoss are found by Create.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "codecs/artifact.h"
#include "codecs/layout.h"
#include "daemon/core/byte_budget.h"
#include "firn/v1/kv.pb.h"
#include "tiers/store/store.h"

namespace firn {

struct PayloadRequest {
  v1::Representation representation = v1::REPRESENTATION_SOURCE;
  uint32_t layer_first = 0;
  uint32_t layer_count = 0;  // 0: to the last.
  std::optional<CallerLayout> layout;
  uint64_t layout_bytes = 0;
  uint64_t chunk_bytes = 0;
};

struct PayloadChunk {
  uint64_t offset = 0;  // In the linear payload space.
  uint64_t bytes = 0;
  std::vector<ByteSpan> pieces;
  std::shared_ptr<const void> owner;
};

class PayloadSource {
 public:
  // `artifacts` must outlive the source.
  static absl::StatusOr<std::unique_ptr<PayloadSource>> Create(GetResult result, const PayloadRequest& request,
                                                               const ArtifactSource* artifacts);

  const v1::GetBlock& found() const { return found_; }
  bool done() const { return cursor_ == bytes_ && segments_at_end(); }
  // True where Next only hands out views.
  bool cheap() const { return !decodes_; }
  // Bytes that the budget must have granted before the next Next; 0: none.
  uint64_t NextBufferBytes() const;
  // The next chunk, at most chunk_bytes of it. `grant` lives as long as the buffer it is for.
  absl::StatusOr<PayloadChunk> Next(std::unique_ptr<ByteBudget::Grant> grant);

 private:
  // Views to be sent before anything else is decoded, at a place in the payload.
  struct Segment {
    uint64_t offset = 0;
    RunBytes bytes;
    std::shared_ptr<const void> owner;
  };

  PayloadSource(GetResult result, const PayloadRequest& request, const ArtifactSource* artifacts);
  absl::Status Prepare();
  absl::Status PreparePacked();
  absl::Status PrepareDirect();
  absl::Status PrepareDecoded();
  void FillFound();
  absl::Status DecodeGroup(std::unique_ptr<ByteBudget::Grant> grant);
  absl::Status DecodeIntoLayout(std::unique_ptr<ByteBudget::Grant> grant);
  uint64_t PartBytes(Part part, uint32_t layers) const;
  uint32_t GroupLayers() const;
  bool segments_at_end() const { return segment_ == segments_.size(); }

  GetResult result_;
  const PayloadRequest request_;
  const ArtifactSource* const artifacts_;
  v1::GetBlock found_;
  BlockShape shape_;  // Of the layers asked for.
  DType out_ = DType::kFp16;
  uint32_t layers_ = 0;
  bool decodes_ = false;
  uint32_t next_layer_ = 0;  // The first layer not decoded yet, of `layers_`.
  std::vector<Segment> segments_;
  size_t segment_ = 0;
  uint64_t segment_offset_ = 0;
  uint64_t cursor_ = 0;  // Bytes handed out.
  uint64_t bytes_ = 0;   // Of the payload.
};

}  // namespace firn
