#include "tiers/warm/arena.h"

#include <cstring>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace firn {
namespace {

bool IsHeld(const ArenaPiece& piece) { return piece.copies > 0 && piece.indexed == 0; }

template <typename Visit>
void VisitPieces(PieceMask pieces, Visit visit) {
  for (uint32_t i = 0; i < kPiecesMax; ++i) {
    if (pieces >> i & 1) visit(i);
  }
}

}  // namespace

Arena::Arena(std::string name, std::unique_ptr<MemoryRegion> region)
    : name_(std::move(name)),
      region_(std::move(region)),
      pool_(region_->bytes() / kArenaPageBytes),
      limit_bytes_(region_->bytes()) {}

Arena::~Arena() { FIRN_CHECK(records_ == nullptr); }

absl::Status Arena::Populate(uint64_t bytes) {
  std::lock_guard one_at_a_time(populate_mu_);
  uint64_t from = populated_bytes_.load(std::memory_order_relaxed);
  uint64_t granule = region_->granule_bytes();
  FIRN_CHECK(granule % kArenaPageBytes == 0 && region_->bytes() % granule == 0);
  uint64_t granules = std::min((region_->bytes() - from) / granule, bytes / granule + (bytes % granule != 0));
  if (granules == 0) return absl::OkStatus();
  FIRN_RETURN_IF_ERROR(region_->Populate(from, granules * granule));
  std::lock_guard lock(mu_);
  pool_.Grow(granules * granule / kArenaPageBytes, region_->zeroed());
  populated_bytes_.store(from + granules * granule, std::memory_order_release);
  return absl::OkStatus();
}

void Arena::SetLimit(uint64_t bytes) {
  std::lock_guard lock(mu_);
  limit_bytes_ = bytes;
}

absl::StatusOr<ArenaRecord*> Arena::Reserve(const RecordLayout& layout, uint64_t header_bytes) {
  uint64_t piece_bytes[kPiecesMax] = {};
  piece_bytes[kHeaderPiece] = header_bytes;
  uint64_t asked = 0, needed = PlanChunks(header_bytes).bytes();
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (!layout.present.Has(i)) continue;
    if (layout.run_bytes[i] > kBlockBytesMax) {
      return InvalidArgument("{}: run {} of {} bytes, at most {}", name_, i, layout.run_bytes[i], kBlockBytesMax);
    }
    piece_bytes[i] = layout.run_bytes[i];
    asked += layout.run_bytes[i];
    needed += PlanChunks(layout.run_bytes[i]).bytes();
  }
  if (needed > region_->bytes()) {
    return InvalidArgument("{}: a record of {} bytes takes {} with its header and never fits {}", name_, asked, needed,
                           region_->bytes());
  }
  auto record = std::make_unique<ArenaRecord>(PiecesOf(layout.present), piece_bytes);
  DirtyChunks dirty;
  {
    std::lock_guard lock(mu_);
    if (!TakeChunks(record.get(), layout.namespace_tag, &dirty)) {
      return ResourceExhausted("{}: {} bytes asked for, which take {}; {} free of {}", name_, asked, needed,
                               CapacityBytes() - std::min(CapacityBytes(), UsedBytes()), CapacityBytes());
    }
    stored_bytes_ += needed;
    draft_bytes_ += needed;
    record->next = records_;
    if (records_ != nullptr) records_->previous = record.get();
    records_ = record.get();
  }
  for (MutableByteSpan chunk : dirty) std::memset(chunk.data(), 0, chunk.size());
  return record.release();
}

bool Arena::TakePiece(ArenaRecord* record, uint32_t piece, uint64_t tag, DirtyChunks* dirty, uint32_t* taken) {
  ChunkPlan plan = PlanChunks(record->piece(piece).bytes);
  std::span<uint64_t> chunks = record->chunks(piece);
  for (*taken = 0; *taken < plan.chunks(); ++*taken) {
    bool page = *taken < plan.pages;
    auto chunk = page ? pool_.TakePage(tag) : pool_.TakeSlot(plan.slots[*taken - plan.pages]);
    if (!chunk.has_value()) return false;
    chunks[*taken] = chunk->offset;
    if (chunk->dirty) dirty->push_back({region_->base() + chunk->offset, plan.chunk_bytes(*taken)});
  }
  return true;
}

bool Arena::TakeChunks(ArenaRecord* record, uint64_t tag, DirtyChunks* dirty) {
  uint32_t taken = 0, piece = 0;
  bool fits = true;
  for (; piece < kPiecesMax; ++piece) {
    if (!record->Has(piece)) continue;
    fits = TakePiece(record, piece, tag, dirty, &taken);
    if (!fits) break;
  }
  if (fits && UsedBytes() <= CapacityBytes()) return true;
  if (!fits) FreeChunks(*record, piece, taken);
  for (uint32_t i = 0; i < piece; ++i) {
    if (record->Has(i)) FreeChunks(*record, i, PlanChunks(record->piece(i).bytes).chunks());
  }
  return false;
}

void Arena::FreeChunks(const ArenaRecord& record, uint32_t piece, uint32_t count) {
  ChunkPlan plan = PlanChunks(record.piece(piece).bytes);
  std::span<const uint64_t> chunks = record.chunks(piece);
  // From the back, so that the pool hands neighbours out in rising order again.
  for (uint32_t i = count; i > 0; --i) {
    if (i - 1 < plan.pages) {
      pool_.FreePage(chunks[i - 1]);
    } else {
      pool_.FreeSlot(chunks[i - 1], plan.slots[i - 1 - plan.pages]);
    }
  }
}

void Arena::Unlink(ArenaRecord* record) {
  (record->previous != nullptr ? record->previous->next : records_) = record->next;
  if (record->next != nullptr) record->next->previous = record->previous;
  delete record;
}

void Arena::Abort(ArenaRecord* draft) {
  std::lock_guard lock(mu_);
  FIRN_CHECK(draft->draft);
  VisitPieces(draft->pieces(), [&](uint32_t i) {
    stored_bytes_ -= draft->stored_bytes(i);
    draft_bytes_ -= draft->stored_bytes(i);
    FreeChunks(*draft, i, static_cast<uint32_t>(draft->chunks(i).size()));
  });
  Unlink(draft);
}

void Arena::Publish(ArenaRecord* draft, uint64_t namespace_tag) {
  std::lock_guard lock(mu_);
  FIRN_CHECK(draft->draft);
  draft->draft = false;
  ++copies_;
  VisitPieces(draft->pieces(), [&](uint32_t i) {
    draft_bytes_ -= draft->stored_bytes(i);
    draft->piece(i).copies = draft->piece(i).indexed = 1;
    uint32_t pages = PlanChunks(draft->piece(i).bytes).pages;
    for (uint64_t offset : draft->chunks(i).first(pages)) pool_.TagPage(offset, namespace_tag);
  });
}

void Arena::Share(ArenaRecord* record, PieceMask pieces) {
  std::lock_guard lock(mu_);
  ++copies_;
  VisitPieces(pieces, [&](uint32_t i) {
    ArenaPiece& piece = record->piece(i);
    FIRN_CHECK(piece.copies > 0 && piece.copies < UINT16_MAX);
    if (IsHeld(piece)) held_bytes_ -= record->stored_bytes(i);
    ++piece.copies;
    ++piece.indexed;
  });
}

void Arena::Unindex(ArenaRecord* record, PieceMask pieces) {
  std::lock_guard lock(mu_);
  --copies_;
  VisitPieces(pieces, [&](uint32_t i) {
    ArenaPiece& piece = record->piece(i);
    FIRN_CHECK(piece.indexed > 0);
    --piece.indexed;
    if (IsHeld(piece)) held_bytes_ += record->stored_bytes(i);
  });
}

void Arena::Release(ArenaRecord* record, PieceMask pieces, bool indexed) {
  std::lock_guard lock(mu_);
  if (indexed) --copies_;
  VisitPieces(pieces, [&](uint32_t i) {
    ArenaPiece& piece = record->piece(i);
    FIRN_CHECK(piece.copies > 0);
    if (IsHeld(piece)) held_bytes_ -= record->stored_bytes(i);
    --piece.copies;
    if (indexed) --piece.indexed;
    if (IsHeld(piece)) held_bytes_ += record->stored_bytes(i);
    if (piece.copies > 0) return;
    stored_bytes_ -= record->stored_bytes(i);
    FreeChunks(*record, i, static_cast<uint32_t>(record->chunks(i).size()));
  });
  // Every copy has the header: it goes last.
  if (record->piece(kHeaderPiece).copies == 0) Unlink(record);
}

MutableRunBytes Arena::Bytes(const ArenaRecord& record, uint32_t piece) const {
  MutableRunBytes run;
  uint64_t left = record.piece(piece).bytes;
  ChunkPlan plan = PlanChunks(left);
  std::span<const uint64_t> chunks = record.chunks(piece);
  uint64_t begin = 0, end = 0;  // Arena offsets of the span being joined.
  for (uint32_t i = 0; i < plan.chunks(); ++i) {
    uint64_t bytes = std::min(left, plan.chunk_bytes(i));
    if (i > 0 && chunks[i] == end) {
      end += bytes;
    } else {
      run.Append({region_->base() + begin, end - begin});
      begin = chunks[i];
      end = begin + bytes;
    }
    left -= bytes;
  }
  run.Append({region_->base() + begin, end - begin});
  return run;
}

TierUsage Arena::Usage() const {
  std::lock_guard lock(mu_);
  TierUsage usage;
  usage.capacity_bytes = CapacityBytes();
  usage.used_bytes = UsedBytes();
  usage.overhead_bytes = UsedBytes() - stored_bytes_;
  usage.draft_bytes = draft_bytes_;
  usage.held_bytes = held_bytes_;
  usage.copies = copies_;
  return usage;
}

absl::Status Arena::AuditForTest() const {
  std::lock_guard lock(mu_);
  uint64_t pages = 0, slots = 0, stored = 0, drafts = 0, held = 0;
  std::unordered_set<uint64_t> owned;
  for (const ArenaRecord* record = records_; record != nullptr; record = record->next) {
    for (uint32_t i = 0; i < kPiecesMax; ++i) {
      if (!record->Has(i) || (!record->draft && record->piece(i).copies == 0)) continue;
      ChunkPlan plan = PlanChunks(record->piece(i).bytes);
      stored += plan.bytes();
      if (record->draft) drafts += plan.bytes();
      if (IsHeld(record->piece(i))) held += plan.bytes();
      for (uint32_t c = 0; c < plan.chunks(); ++c) {
        uint64_t offset = record->chunks(i)[c];
        bool page = c < plan.pages;
        ++(page ? pages : slots);
        if (!owned.insert(offset).second) return InternalError("{}: offset {} is owned twice", name_, offset);
        if (page ? !pool_.IsTakenPage(offset) : !pool_.IsTakenSlot(offset, plan.slots[c - plan.pages])) {
          return InternalError("{}: offset {} is owned and not taken", name_, offset);
        }
      }
    }
  }
  if (stored != stored_bytes_ || drafts != draft_bytes_ || held != held_bytes_) {
    return InternalError("{}: stored {} counted {}, drafts {} counted {}, held {} counted {}", name_, stored,
                         stored_bytes_, drafts, draft_bytes_, held, held_bytes_);
  }
  return pool_.Audit(pages, slots);
}

}  // namespace firn
