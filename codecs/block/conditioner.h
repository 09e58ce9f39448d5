// What is done to rows outside the codec: the rotary embedding is taken back, and for codecs that do not do it
// themselves rows are centred, balanced and rotated; decoding undoes it (docs/formats/conditioning.md).
//
// Not thread-safe: one object a thread. It borrows nothing but the transform that each call is given.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "codecs/block/head_transform.h"
#include "codecs/block/part_geometry.h"
#include "codecs/rope/rope_table.h"

namespace firn {

// One row in and out, in FP32: `Forward` before coding, `Backward` after decoding. Rows are contiguous.
struct Conditioning {
  const RopeTable* rope = nullptr;              // Null: no rotary embedding to take back.
  const ChannelTransform* transform = nullptr;  // Null: the codec applies it.
  uint32_t rotation = 1;                        // Channels that the Hadamard transform mixes; with `transform` alone.
  uint32_t width = 0;
};
void ConditionRows(const Conditioning& conditioning, uint32_t first_token, uint32_t tokens, float* rows);
void RestoreRows(const Conditioning& conditioning, uint32_t first_token, uint32_t tokens, float* rows);
// Whether the magnitudes of all values are at most `limit`; NaN's is not.
bool RowsWithin(const float* rows, uint64_t count, float limit);
void ConditionRowsReference(const Conditioning& conditioning, uint32_t first_token, uint32_t tokens, float* rows);
void RestoreRowsReference(const Conditioning& conditioning, uint32_t first_token, uint32_t tokens, float* rows);

class Conditioner {
 public:
  // `first_token` is the position in its sequence of the block's first token.
  Conditioner(const PartGeometry& geometry, const HeadTransform& transform, uint32_t first_token);

  // False where rows go to the codec as they are.
  bool active() const { return active_; }
  // Rows of type `in` as the codec gets them, FP32; valid until the next call. `first_token` counts coded tokens.
  const float* Forward(const uint8_t* rows, DType in, const ChannelTransform& transform, uint32_t first_token,
                       uint32_t tokens);
  // The same into `target`, which has room for whole rows.
  void ForwardTo(const uint8_t* rows, DType in, const ChannelTransform& transform, uint32_t first_token,
                 uint32_t tokens, float* target) const;
  // Whether rows that came of Forward can be rotated back without passing what FP32 holds.
  bool CanComeBack(const float* rows, uint32_t tokens) const;
  // In place.
  void Backward(float* rows, const ChannelTransform& transform, uint32_t first_token, uint32_t tokens) const;
  // What the codec is given where rows have been through the transform already.
  ChannelTransform ForCodec(const ChannelTransform& transform) const {
    return applies_ ? ChannelTransform{} : transform;
  }

 private:
  Conditioning With(const ChannelTransform& transform) const;

  std::optional<RopeTable> rope_;
  bool applies_ = false, active_ = false;
  uint32_t rotation_ = 1, width_ = 0;
  std::vector<float> rows_;
};

}  // namespace firn
