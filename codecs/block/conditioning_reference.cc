// The scalar reference of conditioning: the definition that the vectors match byte for byte.

#include <limits>

#include "codecs/block/conditioner.h"
#include "codecs/nested/nested_format.h"

namespace firn {
namespace {

constexpr float kLargest = std::numeric_limits<float>::max();

void TurnRow(const RopeTable& rope, uint32_t token, bool back, float* row) {
  const float *cosines = rope.Cosines(token), *sines = rope.Sines(token);
  for (uint32_t i = 0; i < rope.pairs(); ++i) {
    uint32_t first = rope.interleaved() ? 2 * i : i, second = rope.interleaved() ? 2 * i + 1 : i + rope.pairs();
    float a = row[first], b = row[second], c = cosines[i], s = back ? -sines[i] : sines[i];
    row[first] = a * c - b * s;
    row[second] = b * c + a * s;
  }
}

// Coding moves values a little: of those near the end of FP32's range weights and angles may make Inf, and sums of
// that no number at all.
void Saturate(uint32_t width, float* row) {
  for (uint32_t c = 0; c < width; ++c) row[c] = nested::Saturated(row[c], kLargest);
}

void RotateRow(const Conditioning& conditioning, float* row) {
  for (uint32_t stride = 1; stride < conditioning.rotation; stride *= 2) {
    for (uint32_t start = 0; start < conditioning.width; start += 2 * stride) {
      for (uint32_t i = start; i < start + stride; ++i) {
        float a = row[i], b = row[i + stride];
        row[i] = a + b;
        row[i + stride] = a - b;
      }
    }
  }
}

}  // namespace

void ConditionRowsReference(const Conditioning& conditioning, uint32_t first_token, uint32_t tokens, float* rows) {
  for (uint32_t t = 0; t < tokens; ++t, rows += conditioning.width) {
    if (conditioning.rope != nullptr) TurnRow(*conditioning.rope, first_token + t, /*back=*/true, rows);
    if (conditioning.transform == nullptr) continue;
    const ChannelTransform& transform = *conditioning.transform;
    for (uint32_t c = 0; c < conditioning.width; ++c) {
      float centred = transform.mean != nullptr ? rows[c] - transform.mean[c] : rows[c];
      rows[c] = centred * (transform.encode_scale != nullptr ? transform.encode_scale[c] : transform.uniform_scale);
    }
    RotateRow(conditioning, rows);
  }
}

void RestoreRowsReference(const Conditioning& conditioning, uint32_t first_token, uint32_t tokens, float* rows) {
  for (uint32_t t = 0; t < tokens; ++t, rows += conditioning.width) {
    if (conditioning.transform != nullptr) {
      const ChannelTransform& transform = *conditioning.transform;
      RotateRow(conditioning, rows);
      for (uint32_t c = 0; c < conditioning.width; ++c) {
        float scale = transform.decode_scale != nullptr ? transform.decode_scale[c] : transform.uniform_scale;
        rows[c] = rows[c] * scale;
        if (transform.mean != nullptr) rows[c] = rows[c] + transform.mean[c];
      }
      Saturate(conditioning.width, rows);
    }
    if (conditioning.rope == nullptr) continue;
    TurnRow(*conditioning.rope, first_token + t, /*back=*/false, rows);
    Saturate(conditioning.width, rows);
  }
}

}  // namespace firn
