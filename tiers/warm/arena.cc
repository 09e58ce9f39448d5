#include "tiers/warm/arena.h"

#include <cstring>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace firn {
namespace {

// Findings on one page from which on it isn't trusted, and the share of the pool that may be given up for that.
constexpr uint32_t kDamagesMax = 2;
constexpr uint64_t kQuarantineShare = 64;

bool IsHeld(const ArenaPiece& piece) { return piece.copies > 0 && piece.indexed == 0; }

}  // namespace

Arena::Arena(std::string name, std::unique_ptr<MemoryRegion> region, EccPolicy ecc)
    : name_(std::move(name)),
      region_(std::move(region)),
      ecc_(ecc),
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
  piece_bytes[kHeaderPiece] = header_bytes + ParityBytes(ecc_.OfHeader(), header_bytes);
  uint64_t asked = 0, needed = PlanChunks(piece_bytes[kHeaderPiece]).bytes();
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (!layout.present.Has(i)) continue;
    if (layout.run_bytes[i] > kBlockBytesMax) {
      return InvalidArgument("{}: run {} of {} bytes, at most {}", name_, i, layout.run_bytes[i], kBlockBytesMax);
    }
    piece_bytes[i] = layout.run_bytes[i] + ParityBytes(ecc_.OfRun(i), layout.run_bytes[i]);
    asked += layout.run_bytes[i];
    needed += PlanChunks(piece_bytes[i]).bytes();
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

bool Arena::TakeChunks(ArenaRecord* record, uint64_t tag, DirtyChunks* dirty) {
  uint64_t wanted = 0, taken = 0;
  record->VisitPieces(record->pieces(), [&](uint32_t, const ChunkPlan& plan, std::span<uint64_t> offsets) {
    for (uint32_t c = 0; c < plan.chunks(); ++c, ++wanted) {
      if (taken < wanted) continue;  // One before it was not to be had.
      auto chunk = c < plan.pages ? pool_.TakePage(tag) : pool_.TakeSlot(plan.slots[c - plan.pages]);
      if (!chunk.has_value()) continue;
      offsets[c] = chunk->offset;
      if (chunk->dirty) dirty->push_back({region_->base() + chunk->offset, plan.chunk_bytes(c)});
      ++taken;
    }
  });
  if (taken == wanted && UsedBytes() <= CapacityBytes()) return true;
  record->VisitPieces(record->pieces(), [&](uint32_t, ChunkPlan plan, std::span<uint64_t> offsets) {
    uint64_t count = std::min<uint64_t>(taken, plan.chunks());
    taken -= count;
    plan.slot_count = static_cast<uint32_t>(count - std::min<uint64_t>(count, plan.pages));
    plan.pages = static_cast<uint32_t>(std::min<uint64_t>(count, plan.pages));
    FreeChunks(plan, offsets.first(count));
  });
  return false;
}

void Arena::FreeChunks(const ChunkPlan& plan, std::span<const uint64_t> offsets) {
  // From the back, so that the pool hands neighbours out in rising order again.
  for (uint32_t i = plan.chunks(); i > 0; --i) {
    if (Quarantine(offsets[i - 1], i - 1 < plan.pages, plan.chunk_bytes(i - 1))) continue;
    if (i - 1 < plan.pages) {
      pool_.FreePage(offsets[i - 1]);
    } else {
      pool_.FreeSlot(offsets[i - 1], plan.slots[i - 1 - plan.pages]);
    }
  }
}

bool Arena::Quarantine(uint64_t offset, bool page, uint64_t bytes) {
  if (damaged_.empty() || damaged_.erase(offset) == 0) return false;
  if (damages_[offset / kArenaPageBytes] < kDamagesMax) return false;
  if (quarantined_bytes_ + bytes > pool_.pages() * kArenaPageBytes / kQuarantineShare) return false;
  quarantined_.emplace(offset, page);
  quarantined_bytes_ += bytes;
  return true;
}

void Arena::NoteDamage(const ArenaRecord& record, uint32_t piece, ByteSpan right) {
  std::vector<uint64_t> wrong;
  record.VisitPieces(static_cast<PieceMask>(1u << piece),
                     [&](uint32_t, const ChunkPlan& plan, std::span<const uint64_t> offsets) {
                       uint64_t at = 0;
                       for (uint32_t c = 0; c < plan.chunks() && at < right.size(); ++c) {
                         uint64_t bytes = std::min<uint64_t>(plan.chunk_bytes(c), right.size() - at);
                         if (std::memcmp(region_->base() + offsets[c], right.data() + at, bytes) != 0) {
                           wrong.push_back(offsets[c]);
                         }
                         at += bytes;
                       }
                     });
  std::lock_guard lock(mu_);
  for (uint64_t offset : wrong) {
    if (damaged_.insert(offset).second) ++damages_[offset / kArenaPageBytes];
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
  draft->VisitPieces(draft->pieces(), [&](uint32_t, const ChunkPlan& plan, std::span<uint64_t> offsets) {
    stored_bytes_ -= plan.bytes();
    draft_bytes_ -= plan.bytes();
    FreeChunks(plan, offsets);
  });
  Unlink(draft);
}

void Arena::Publish(ArenaRecord* draft, uint64_t namespace_tag) {
  std::lock_guard lock(mu_);
  FIRN_CHECK(draft->draft);
  draft->draft = false;
  ++copies_;
  draft->VisitPieces(draft->pieces(), [&](uint32_t i, const ChunkPlan& plan, std::span<uint64_t> offsets) {
    draft_bytes_ -= plan.bytes();
    draft->piece(i).copies = draft->piece(i).indexed = 1;
    for (uint64_t offset : offsets.first(plan.pages)) pool_.TagPage(offset, namespace_tag);
  });
}

void Arena::Share(ArenaRecord* record, PieceMask pieces) {
  std::lock_guard lock(mu_);
  ++copies_;
  record->VisitPieces(pieces, [&](uint32_t i, const ChunkPlan& plan, std::span<uint64_t>) {
    ArenaPiece& piece = record->piece(i);
    FIRN_CHECK(piece.copies > 0 && piece.copies < UINT16_MAX);
    if (IsHeld(piece)) held_bytes_ -= plan.bytes();
    ++piece.copies;
    ++piece.indexed;
  });
}

void Arena::Unindex(ArenaRecord* record, PieceMask pieces) {
  std::lock_guard lock(mu_);
  --copies_;
  record->VisitPieces(pieces, [&](uint32_t i, const ChunkPlan& plan, std::span<uint64_t>) {
    ArenaPiece& piece = record->piece(i);
    FIRN_CHECK(piece.indexed > 0);
    --piece.indexed;
    if (IsHeld(piece)) held_bytes_ += plan.bytes();
  });
}

void Arena::Release(ArenaRecord* record, PieceMask pieces, bool indexed) {
  std::lock_guard lock(mu_);
  if (indexed) --copies_;
  record->VisitPieces(pieces, [&](uint32_t i, const ChunkPlan& plan, std::span<uint64_t> offsets) {
    ArenaPiece& piece = record->piece(i);
    FIRN_CHECK(piece.copies > 0);
    if (IsHeld(piece)) held_bytes_ -= plan.bytes();
    --piece.copies;
    if (indexed) --piece.indexed;
    if (IsHeld(piece)) held_bytes_ += plan.bytes();
    if (piece.copies > 0) return;
    stored_bytes_ -= plan.bytes();
    FreeChunks(plan, offsets);
  });
  // Every copy has the header: it goes last.
  if (record->piece(kHeaderPiece).copies == 0) Unlink(record);
}

Arena::PieceBytes Arena::Bytes(const ArenaRecord& record, PieceMask pieces) const {
  PieceBytes out;
  record.VisitPieces(pieces, [&](uint32_t piece, const ChunkPlan& plan, std::span<const uint64_t> offsets) {
    uint64_t left = record.piece(piece).bytes;
    uint64_t begin = 0, end = 0;  // Arena offsets of the span being joined.
    for (uint32_t i = 0; i < plan.chunks(); ++i) {
      uint64_t bytes = std::min(left, plan.chunk_bytes(i));
      if (i == 0 || offsets[i] != end) {
        out[piece].Append({region_->base() + begin, end - begin});
        begin = end = offsets[i];
      }
      end += bytes;
      left -= bytes;
    }
    out[piece].Append({region_->base() + begin, end - begin});
  });
  return out;
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
  usage.quarantined_bytes = quarantined_bytes_;
  return usage;
}

absl::Status Arena::AuditForTest() const {
  std::lock_guard lock(mu_);
  uint64_t pages = 0, slots = 0, stored = 0, drafts = 0, held = 0;
  std::unordered_set<uint64_t> owned;
  absl::Status found;
  for (const ArenaRecord* record = records_; record != nullptr; record = record->next) {
    record->VisitPieces(record->pieces(), [&](uint32_t i, const ChunkPlan& plan, std::span<const uint64_t> offsets) {
      if (!record->draft && record->piece(i).copies == 0) return;
      stored += plan.bytes();
      if (record->draft) drafts += plan.bytes();
      if (IsHeld(record->piece(i))) held += plan.bytes();
      for (uint32_t c = 0; c < plan.chunks(); ++c) {
        bool page = c < plan.pages;
        ++(page ? pages : slots);
        if (!owned.insert(offsets[c]).second) found = InternalError("{}: offset {} is owned twice", name_, offsets[c]);
        if (page ? !pool_.IsTakenPage(offsets[c]) : !pool_.IsTakenSlot(offsets[c], plan.slots[c - plan.pages])) {
          found = InternalError("{}: offset {} is owned and not taken", name_, offsets[c]);
        }
      }
    });
  }
  FIRN_RETURN_IF_ERROR(found);
  for (const auto& [offset, page] : quarantined_) ++(page ? pages : slots);
  if (stored != stored_bytes_ || drafts != draft_bytes_ || held != held_bytes_) {
    return InternalError("{}: stored {} counted {}, drafts {} counted {}, held {} counted {}", name_, stored,
                         stored_bytes_, drafts, draft_bytes_, held, held_bytes_);
  }
  return pool_.Audit(pages, slots);
}

}  // namespace firn
