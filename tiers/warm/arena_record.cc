#include "tiers/warm/arena_record.h"

#include <bit>

#include "base/check.h"

namespace firn {

ArenaRecord::ArenaRecord(PieceMask pieces, const uint64_t (&piece_bytes)[kPiecesMax]) : pieces_(pieces) {
  auto words = static_cast<size_t>(std::popcount(pieces));
  for (uint32_t i = 0; i < kPiecesMax; ++i) {
    if (Has(i)) words += PlanChunks(piece_bytes[i]).chunks();
  }
  words_ = std::make_unique<Word[]>(words);
  for (uint32_t i = 0; i < kPiecesMax; ++i) {
    if (!Has(i)) continue;
    FIRN_CHECK(piece_bytes[i] <= kBlockBytesMax);
    words_[PlaceOf(i)].piece = {.bytes = static_cast<uint32_t>(piece_bytes[i])};
  }
}

uint32_t ArenaRecord::PlaceOf(uint32_t index) const {
  FIRN_DCHECK(Has(index));
  return static_cast<uint32_t>(std::popcount(static_cast<unsigned>(pieces_) & ((1u << index) - 1)));
}

std::span<uint64_t> ArenaRecord::chunks(uint32_t index) {
  auto first = static_cast<size_t>(std::popcount(pieces_));
  for (uint32_t i = 0; i < index; ++i) {
    if (Has(i)) first += PlanChunks(piece(i).bytes).chunks();
  }
  return {&words_[first].chunk, PlanChunks(piece(index).bytes).chunks()};
}

}  // namespace firn
