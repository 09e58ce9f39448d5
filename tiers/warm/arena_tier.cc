#include "tiers/warm/arena_tier.h"

#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "tiers/warm/memory/streaming_copy.h"

namespace firn {
namespace {

class ArenaDraft final : public Draft {
 public:
  ArenaDraft(std::shared_ptr<Arena> arena, ArenaRecord* record, const RecordLayout& layout)
      : arena_(std::move(arena)), record_(record) {
    layout_ = layout;
    Arena::PieceBytes pieces = arena_->Bytes(*record, record->pieces());
    for (uint32_t i = 0; i < kRunIds; ++i) runs_[i] = std::move(pieces[i]);
    header_ = std::move(pieces[kHeaderPiece]);
  }
  ~ArenaDraft() override {
    if (record_ != nullptr) arena_->Abort(record_);
  }
  const MutableRunBytes& header() const { return header_; }
  ArenaRecord* Release() { return std::exchange(record_, nullptr); }

 private:
  const std::shared_ptr<Arena> arena_;
  ArenaRecord* record_;
  MutableRunBytes header_;
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

ArenaTier::ArenaTier(std::string name, std::unique_ptr<MemoryRegion> region)
    : Tier(name), arena_(std::make_shared<Arena>(name, std::move(region))) {}

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
  std::vector<uint8_t> serialized = SerializeHeader(*header);
  const MutableRunBytes& room = arena_draft.header();
  if (serialized.size() > room.size()) {
    return done(InternalError("{}: a header of {} bytes, {} were reserved", name(), serialized.size(), room.size()));
  }
  CopyInImpl(RunBytes(ByteSpan(serialized)), room);
  ArenaRecord* record = arena_draft.Release();
  arena_->Publish(record, tag);
  done(CopyPtr(std::make_shared<ArenaCopy>(arena_, record, header->encoded)));
}

void ArenaTier::ReadImpl(CopyPtr copy, const Identity& identity, RunMask runs, ReadDone done) {
  const auto& arena_copy = static_cast<const ArenaCopy&>(*copy);
  RunMask present = runs & arena_copy.Runs();
  Arena::PieceBytes pieces = arena_->Bytes(*arena_copy.record(), PiecesOf(present));
  std::vector<uint8_t> storage;
  auto header = ParseHeader(Joined(pieces[kHeaderPiece], &storage), nullptr);
  if (!header.ok()) return done(DataLoss("{}: {}", name(), Message(header.status())));
  if (header->identity != identity) return done(DataLoss("{}: the record there is another's", name()));
  EncodedBlock block;
  block.header = std::make_shared<const RecordHeader>(*std::move(header));
  block.present = present;
  for (uint32_t i = 0; i < kRunIds; ++i) block.runs[i] = pieces[i];
  block.owner = std::move(copy);
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
  arena_->region().far() ? CopyStreaming(source, target) : CopyScattered(source, target);
}

absl::Status ArenaTier::SetCapacity(uint64_t bytes) {
  if (bytes < kArenaPageBytes || bytes > bytes_max()) {
    return InvalidArgument("{}: a capacity of {} bytes; {} to {} expected, what it was opened with", name(), bytes,
                           kArenaPageBytes, bytes_max());
  }
  arena_->SetLimit(bytes);
  return absl::OkStatus();
}

}  // namespace firn
