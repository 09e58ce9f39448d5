#include "tiers/warm/arena_tier.h"

#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "base/units.h"
#include "tiers/warm/memory/streaming_copy.h"

namespace firn {
namespace {

void CopyInto(const MemoryRegion& region, const RunBytes& source, const MutableRunBytes& target) {
  region.far() ? CopyStreaming(source, target) : CopyScattered(source, target);
}

// A piece's bytes and the parity behind them.
struct Protected {
  MutableRunBytes data, parity;
};

// Cuts a piece whose own length is not known apart: data and parity grow together, so that their sum tells it.
Protected Split(EccCode code, const MutableRunBytes& piece) {
  uint64_t low = 0, high = piece.size();
  while (low < high) {
    uint64_t middle = high - (high - low) / 2;
    middle + ParityBytes(code, middle) <= piece.size() ? low = middle : high = middle - 1;
  }
  FIRN_CHECK(low + ParityBytes(code, low) == piece.size());
  return {piece.Slice(0, low), piece.Slice(low, piece.size() - low)};
}

class ArenaDraft final : public Draft {
 public:
  ArenaDraft(std::shared_ptr<Arena> arena, ArenaRecord* record, const RecordLayout& layout)
      : arena_(std::move(arena)), record_(record) {
    layout_ = layout;
    pieces_ = arena_->Bytes(*record, record->pieces());
    for (uint32_t i = 0; i < kRunIds; ++i) {
      if (layout.present.Has(i)) runs_[i] = pieces_[i].Slice(0, layout.run_bytes[i]);
    }
  }
  ~ArenaDraft() override {
    if (record_ != nullptr) arena_->Abort(record_);
  }
  // Writes the header, and parity behind everything that is to have some.
  absl::Status Finish(ByteSpan header) {
    Protected room = Split(arena_->ecc().OfHeader(), pieces_[kHeaderPiece]);
    if (header.size() > room.data.size()) {
      return InternalError("a header of {} bytes, {} were reserved", header.size(), room.data.size());
    }
    CopyInto(arena_->region(), RunBytes(header), room.data);
    ComputeParity(arena_->ecc().OfHeader(), room.data, room.parity);
    for (uint32_t i = 0; i < kRunIds; ++i) {
      EccCode code = arena_->ecc().OfRun(i);
      if (code == EccCode::kNone || !layout_.present.Has(i)) continue;
      uint64_t bytes = layout_.run_bytes[i];
      ComputeParity(code, runs_[i], pieces_[i].Slice(bytes, pieces_[i].size() - bytes));
    }
    return absl::OkStatus();
  }
  ArenaRecord* Release() { return std::exchange(record_, nullptr); }

 private:
  const std::shared_ptr<Arena> arena_;
  ArenaRecord* record_;
  Arena::PieceBytes pieces_;
};

class ArenaCopy final : public Copy {
 public:
  ArenaCopy(std::shared_ptr<Arena> arena, ArenaRecord* record, RunMask runs)
      : arena_(std::move(arena)), record_(record), runs_(runs) {}
  ~ArenaCopy() override { arena_->Release(record_, PiecesOf(runs_), !forgotten_.load(std::memory_order_relaxed)); }

  RunMask Runs() const override { return runs_; }
  uint64_t StoredBytes() const override {
    uint64_t total = 0;
    std::as_const(*record_).VisitPieces(
        PiecesOf(runs_), [&](uint32_t, const ChunkPlan& plan, std::span<const uint64_t>) { total += plan.bytes(); });
    return total;
  }
  ArenaRecord* record() const { return record_; }
  void Forget() const {
    if (!forgotten_.exchange(true)) arena_->Unindex(record_, PiecesOf(runs_));
  }

 private:
  const std::shared_ptr<Arena> arena_;
  ArenaRecord* const record_;
  const RunMask runs_;
  mutable std::atomic<bool> forgotten_{false};  // Not part of what the copy is: the index's view of it.
};

// A scattered piece as one span, by way of `storage` where it is not one already.
ByteSpan Joined(const RunBytes& piece, std::vector<uint8_t>* storage) {
  if (piece.spans().size() == 1) return piece.spans()[0];
  storage->resize(piece.size());
  CopyScattered(piece, MutableRunBytes(*storage));
  return *storage;
}

}  // namespace

ArenaTier::ArenaTier(std::string name, std::unique_ptr<MemoryRegion> region, EccPolicy ecc)
    : Tier(name), arena_(std::make_shared<Arena>(name, std::move(region), ecc)) {}

ArenaTier::~ArenaTier() = default;

absl::StatusOr<std::unique_ptr<Draft>> ArenaTier::ReserveImpl(const RecordLayout& layout) {
  if (shut_down_.load()) return FailedPrecondition("{} is shut down", name());
  FIRN_ASSIGN_OR_RETURN(ArenaRecord * record, arena_->Reserve(layout, HeaderBytesBound(layout)));
  return std::make_unique<ArenaDraft>(arena_, record, layout);
}

void ArenaTier::CommitImpl(std::unique_ptr<Draft> draft, std::shared_ptr<const RecordHeader> header,
                           const CommitOptions& /*options*/, CommitDone done) {
  if (shut_down_.load()) return done(FailedPrecondition("{} is shut down", name()));
  auto& arena_draft = static_cast<ArenaDraft&>(*draft);
  for (uint32_t i = 0; i < kRunIds; ++i) FIRN_CHECK(header->runs[i].bytes == draft->layout().run_bytes[i]);
  uint64_t tag = NamespaceTag(header->identity.namespace_fingerprint);
  FIRN_CHECK(draft->layout().namespace_tag == 0 || draft->layout().namespace_tag == tag);
  absl::Status finished = arena_draft.Finish(SerializeHeader(*header));
  if (!finished.ok()) return done(InternalError("{}: {}", name(), Message(finished)));
  ArenaRecord* record = arena_draft.Release();
  arena_->Publish(record, tag);
  done(CopyPtr(std::make_shared<ArenaCopy>(arena_, record, header->encoded)));
}

absl::StatusOr<std::shared_ptr<const RecordHeader>> ArenaTier::HeaderOf(const RunBytes& piece,
                                                                        const Identity& identity) const {
  std::vector<uint8_t> storage;
  auto header = ParseHeader(Joined(piece, &storage), nullptr);
  if (!header.ok()) return DataLoss("{}: {}", name(), Message(header.status()));
  if (header->identity != identity) return DataLoss("{}: the record there is another's", name());
  return std::make_shared<const RecordHeader>(*std::move(header));
}

void ArenaTier::ReadImpl(CopyPtr copy, const Identity& identity, RunMask runs, ReadDone done) {
  const auto& arena_copy = static_cast<const ArenaCopy&>(*copy);
  RunMask present = runs & arena_copy.Runs();
  Arena::PieceBytes pieces = arena_->Bytes(*arena_copy.record(), PiecesOf(present));
  auto header = HeaderOf(pieces[kHeaderPiece], identity);
  if (!header.ok()) return done(header.status());
  EncodedBlock block;
  block.header = *std::move(header);
  block.present = present;
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (present.Has(i)) block.runs[i] = pieces[i].Slice(0, block.header->runs[i].bytes);
  }
  block.owner = std::move(copy);
  done(std::move(block));
}

// Corrects copies of pieces that disagree with their parity: the arena's own bytes are others' to read at this moment.
void ArenaTier::ReadCorrectedImpl(CopyPtr copy, const Identity& identity, RunMask runs, ReadDone done) {
  const auto& arena_copy = static_cast<const ArenaCopy&>(*copy);
  RunMask present = runs & arena_copy.Runs();
  Arena::PieceBytes pieces = arena_->Bytes(*arena_copy.record(), PiecesOf(present));
  auto memory = std::make_shared<std::pair<std::array<std::vector<uint8_t>, kPiecesMax>, CopyPtr>>();
  EccOutcome outcome;
  std::array<RunBytes, kPiecesMax> as_it_lies, corrected;
  for (uint32_t i = 0; i < kPiecesMax; ++i) {
    if (pieces[i].size() == 0) continue;
    const EccCode code = i == kHeaderPiece ? ecc().OfHeader() : ecc().OfRun(i);
    const Protected split = Split(code, pieces[i]);
    as_it_lies[i] = corrected[i] = split.data;
    if (ParityAgrees(code, split.data, split.parity)) continue;
    std::vector<uint8_t>& own = memory->first[i];
    own.resize(pieces[i].size());
    MutableRunBytes whole{MutableByteSpan(own)};
    CopyScattered(pieces[i], whole);
    const Protected mended = Split(code, whole);
    EccOutcome done_here = CorrectInPlace(code, mended.data, mended.parity);
    if (done_here.corrected > 0) arena_->NoteDamage(*arena_copy.record(), i, own);
    outcome += done_here;
    corrected[i] = mended.data;
  }
  CountCorrections(outcome);
  // What checks as it lies is right: then it was its parity that was damaged.
  auto header = HeaderOf(as_it_lies[kHeaderPiece], identity);
  if (!header.ok() && !outcome.clean()) header = HeaderOf(corrected[kHeaderPiece], identity);
  if (!header.ok()) return done(header.status());
  EncodedBlock block;
  block.header = *std::move(header);
  block.present = present;
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (!present.Has(i)) continue;
    if (corrected[i].size() != block.header->runs[i].bytes) {
      return done(DataLoss("{}: run {} has {} bytes here, its header says {}", name(), i, corrected[i].size(),
                           block.header->runs[i].bytes));
    }
    const bool spoilt = !memory->first[i].empty() && IsIntactRun(block.header, i, as_it_lies[i]);
    block.runs[i] = spoilt ? as_it_lies[i] : corrected[i];
  }
  block.corrected = !outcome.clean();
  memory->second = std::move(copy);
  block.owner = std::move(memory);
  done(std::move(block));
}

absl::StatusOr<CopyPtr> ArenaTier::NarrowImpl(const CopyPtr& copy, RunMask keep) {
  const auto& arena_copy = static_cast<const ArenaCopy&>(*copy);
  RunMask runs = arena_copy.Runs() & keep;
  arena_->Share(arena_copy.record(), PiecesOf(runs));
  return CopyPtr(std::make_shared<ArenaCopy>(arena_, arena_copy.record(), runs));
}

void ArenaTier::ForgetImpl(const CopyPtr& copy, const Identity& /*identity*/) {
  static_cast<const ArenaCopy&>(*copy).Forget();
}

void ArenaTier::CopyInImpl(const RunBytes& source, const MutableRunBytes& target) const {
  CopyInto(arena_->region(), source, target);
}

absl::Status ArenaTier::SetCapacity(uint64_t bytes) {
  if (bytes < kArenaPageBytes || bytes > bytes_max()) {
    return InvalidArgument("{}: a capacity of {}; allowed: {} to {}, with which it was opened", name(),
                           FormatBytes(bytes), FormatBytes(kArenaPageBytes), FormatBytes(bytes_max()));
  }
  arena_->SetLimit(bytes);
  return absl::OkStatus();
}

}  // namespace firn
