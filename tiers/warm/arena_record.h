// The arena's bookkeeping of one record: which chunks its pieces have, and how many copies share each.
//
// A piece is one run, or the serialized header (kHeaderPiece). Narrowing makes another copy that shares the pieces that
// stay, so each piece counts the copies that use it, and of those the ones that the index refers to. Lives in ordinary
// memory, not in the arena: other processes may map that, and far memory is slow. About 60 bytes and 16 more for each
// run and chunk. Threads: pieces' counts and the links are guarded by the arena's lock; the rest is constant after the
// reserve.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <span>

#include "base/check.h"
#include "codecs/types.h"
#include "tiers/warm/size_classes.h"

namespace firn {

inline constexpr uint32_t kHeaderPiece = kRunIds;
inline constexpr uint32_t kPiecesMax = kRunIds + 1;

// Run indices as in RunMask, and the header's bit above them.
using PieceMask = uint16_t;
inline constexpr PieceMask PiecesOf(RunMask runs) { return static_cast<PieceMask>(runs.bits() | 1u << kHeaderPiece); }

struct ArenaPiece {
  uint32_t bytes = 0;
  uint16_t copies = 0;   // Live copies that use it.
  uint16_t indexed = 0;  // Of these, not forgotten by the index.
};

class ArenaRecord {
 public:
  // `piece_bytes[i]` for every i in `pieces`; chunks are to be filled in.
  ArenaRecord(PieceMask pieces, const uint64_t (&piece_bytes)[kPiecesMax]);

  PieceMask pieces() const { return pieces_; }
  bool Has(uint32_t piece) const { return pieces_ >> piece & 1; }
  ArenaPiece& piece(uint32_t index) { return words_[PlaceOf(index)].piece; }
  const ArenaPiece& piece(uint32_t index) const { return words_[PlaceOf(index)].piece; }
  // visit(index, plan, offsets) for each of `pieces` in order: `offsets` are the places of its chunks in the arena.
  template <typename Visit>
  void VisitPieces(PieceMask pieces, Visit visit) {
    Word* at = words_.get() + std::popcount(pieces_);
    for (uint32_t i = 0; i < kPiecesMax; ++i) {
      if (!Has(i)) continue;
      ChunkPlan plan = PlanChunks(piece(i).bytes);
      if (pieces >> i & 1) visit(i, plan, std::span<uint64_t>(&at->chunk, plan.chunks()));
      at += plan.chunks();
    }
  }
  template <typename Visit>
  void VisitPieces(PieceMask pieces, Visit visit) const {
    const_cast<ArenaRecord*>(this)->VisitPieces(
        pieces, [&](uint32_t i, const ChunkPlan& plan, std::span<const uint64_t> offsets) { visit(i, plan, offsets); });
  }

  ArenaRecord* previous = nullptr;  // The arena's list of records.
  ArenaRecord* next = nullptr;
  bool draft = true;

 private:
  union Word {
    Word() : chunk(0) {}
    ArenaPiece piece;
    uint64_t chunk;
  };
  static_assert(sizeof(Word) == 8);
  uint32_t PlaceOf(uint32_t index) const {
    FIRN_DCHECK(Has(index));
    return static_cast<uint32_t>(std::popcount(static_cast<unsigned>(pieces_) & ((1u << index) - 1)));
  }

  PieceMask pieces_;
  std::unique_ptr<Word[]> words_;  // The pieces in order, then the chunks of each in order.
};

}  // namespace firn
