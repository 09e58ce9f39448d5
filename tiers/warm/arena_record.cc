#include "tiers/warm/arena_record.h"

namespace firn {

ArenaRecord::ArenaRecord(PieceMask pieces, const uint64_t (&piece_bytes)[kPiecesMax]) : pieces_(pieces) {
  auto words = static_cast<size_t>(std::popcount(pieces));
  for (uint32_t i = 0; i < kPiecesMax; ++i) {
    if (Has(i)) words += PlanChunks(piece_bytes[i]).chunks();
  }
  words_ = std::make_unique<Word[]>(words);
  for (uint32_t i = 0; i < kPiecesMax; ++i) {
    if (!Has(i)) continue;
    FIRN_CHECK(piece_bytes[i] <= UINT32_MAX);
    words_[PlaceOf(i)].piece = {.bytes = static_cast<uint32_t>(piece_bytes[i])};
  }
}

}  // namespace firn
