// Reading in spite of damage: record headers and runs put right by the parity that lies beside them.
#include <algorithm>
#include <utility>

#include "base/checksum.h"
#include "base/status.h"
#include "tiers/cold/cold_read_op.h"

namespace firn {

bool ColdTier::HasParity(const Copy& copy) const {
  std::lock_guard lock(mu_);
  return static_cast<const ColdCopy&>(copy).layout->ecc.any();
}

void ColdTier::ReadCorrectedImpl(CopyPtr copy, const Identity& identity, RunMask runs, ReadDone done) {
  BeginRead(std::move(copy), identity, runs, /*correct=*/true, std::move(done));
}

// The record header in the front of the base extent, whose own header is null where it is damaged. What error
// correction makes of it is believed only with the digest that the index keeps.
absl::Status ColdTier::TakeRecordHeader(ReadOp* op, const ReadPart& part, ByteSpan front, const ExtentHeader* extent) {
  const EccCode code = op->ecc.OfHeader();
  if (extent == nullptr && code == EccCode::kNone) {
    return DataLoss("segment {:08x}: the extent header at {} is damaged", part.place.segment, part.place.offset);
  }
  uint64_t at = extent != nullptr ? extent->record_header_at() : ProtectedHeaderOffset(part.shape, op->header_bytes);
  auto take = [&](ByteSpan bytes) -> absl::Status {
    FIRN_ASSIGN_OR_RETURN(RecordHeader header, ParseHeader(bytes, nullptr));
    if (HeaderDigest(bytes) != op->digest || header.identity != op->identity) {
      return DataLoss("segment {:08x}: the record header at {} is not the one that was written", part.place.segment,
                      part.place.offset);
    }
    op->header = std::make_shared<RecordHeader>(std::move(header));
    return absl::OkStatus();
  };
  absl::Status status = take(front.subspan(at, op->header_bytes));
  const uint64_t parity_bytes = ParityBytes(code, op->header_bytes);
  if (!op->correct || parity_bytes == 0) return status;
  std::vector<uint8_t> mended(front.begin() + static_cast<ptrdiff_t>(at),
                              front.begin() + static_cast<ptrdiff_t>(at + op->header_bytes));
  std::vector<uint8_t> parity(parity_bytes);
  CopyScattered(SpanAt(*part.memory, part.head + op->ContentsOf(part).HeaderParityOffset(), parity_bytes),
                MutableRunBytes(MutableByteSpan(parity)));
  EccOutcome outcome =
      CorrectInPlace(code, MutableRunBytes(MutableByteSpan(mended)), MutableRunBytes(MutableByteSpan(parity)));
  if (outcome.clean()) return status;
  CountCorrections(outcome);
  op->corrected = true;
  // One that was right is not spoilt by its parity.
  return status.ok() ? status : take(mended);
}

// Puts what parity makes of runs that disagree with theirs in the place of what was read.
void ColdTier::CorrectRuns(ReadOp* op, EncodedBlock* block) {
  auto memory = std::make_shared<std::pair<std::vector<std::vector<uint8_t>>, std::shared_ptr<const void>>>();
  memory->second = block->owner;
  EccOutcome outcome;
  for (const auto& part : op->parts) {
    for (uint32_t i = 0; i < kRunIds; ++i) {
      const EccCode code = op->ecc.OfRun(i);
      const uint64_t bytes = op->lengths[i], parity_bytes = ParityBytes(code, bytes);
      if (!block->present.Has(i) || !part->shape.runs.Has(i) || parity_bytes == 0) continue;
      uint64_t at = part->head + op->ContentsOf(*part).ParityOffset(i);
      const MutableRunBytes stored_parity = SpanAt(*part->memory, at, parity_bytes);
      if (ParityAgrees(code, block->runs[i], stored_parity)) continue;
      std::vector<uint8_t>& own = memory->first.emplace_back(bytes + parity_bytes);
      MutableRunBytes data{MutableByteSpan(own).first(bytes)}, parity{MutableByteSpan(own).subspan(bytes)};
      CopyScattered(block->runs[i], data);
      CopyScattered(stored_parity, parity);
      EccOutcome done_here = CorrectInPlace(code, data, parity);
      outcome += done_here;
      // What is right as it lies is not spoilt by its parity.
      if (done_here.corrected > 0 && IsIntactRun(block->header, i, block->runs[i])) {
        memory->first.pop_back();
        continue;
      }
      block->runs[i] = data;
    }
  }
  CountCorrections(outcome);
  if (!outcome.clean()) op->corrected = true;
  block->owner = std::move(memory);
}

// A part of the medium refused sectors of: what error correction did not make of them is not there, rather than wrong.
void ColdTier::WithholdErased(ReadOp* op, EncodedBlock* block) {
  RunMask erased;
  for (const auto& part : op->parts) {
    if (part->erased) erased |= part->shape.runs & block->present;
  }
  if (erased.Empty()) return;
  const RunMask withheld = erased - IntactRuns(*block);
  if (withheld.Empty()) return;
  *block = block->Narrowed(block->present - withheld);
  op->refused |= withheld;
  op->corrected = false;  // Nothing is settled while the medium may still give it.
}

namespace {

// Calls visit(code, data, parity) for all that has parity in the extent of a record.
template <typename Visit>
void VisitProtected(const ExtentHeader& header, MutableByteSpan extent, Visit visit) {
  const RecordNote& note = header.note;
  auto one = [&](EccCode code, uint64_t at, uint64_t bytes, uint64_t parity_at) {
    const uint64_t parity_bytes = ParityBytes(code, bytes);
    if (parity_bytes == 0) return;
    visit(code, MutableRunBytes(extent.subspan(at, bytes)), MutableRunBytes(extent.subspan(parity_at, parity_bytes)));
  };
  if (header.has_record_header) {
    one(note.ecc.OfHeader(), header.record_header_at(), note.header_bytes, header.contents().HeaderParityOffset());
  }
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (!header.shape.runs.Has(i)) continue;
    one(note.ecc.OfRun(i), RunOffset(header.shape, note.run_bytes, i), note.run_bytes[i],
        header.contents().ParityOffset(i));
  }
}

}  // namespace

bool ColdTier::MendExtent(const ExtentHeader& header, uint64_t salt, MutableByteSpan extent) {
  if (header.kind != ExtentKind::kRecord || !header.note.ecc.any()) return false;
  std::vector<uint8_t> front = SerializeExtentHeader(header, salt);
  std::copy(front.begin(), front.end(), extent.begin());
  auto good = [&] { return Crc64(extent.subspan(front.size()), header.sequence) == header.payload_crc; };
  const std::vector<uint8_t> as_it_lay(extent.begin(), extent.end());
  EccOutcome outcome;
  VisitProtected(header, extent, [&](EccCode code, const MutableRunBytes& data, const MutableRunBytes& parity) {
    outcome += CorrectInPlace(code, data, parity);
  });
  CountCorrections(outcome);
  if (good()) return true;
  // It may be the parity alone that is damaged, and then it follows from the rest: where it is beyond use, or
  // everywhere.
  VisitProtected(header, extent, [&](EccCode code, const MutableRunBytes& data, const MutableRunBytes& parity) {
    if (!ParityAgrees(code, RunBytes(data), parity)) ComputeParity(code, data, parity);
  });
  if (good()) return true;
  std::copy(as_it_lay.begin(), as_it_lay.end(), extent.begin());
  VisitProtected(header, extent, [&](EccCode code, const MutableRunBytes& data, const MutableRunBytes& parity) {
    ComputeParity(code, data, parity);
  });
  return good();
}

}  // namespace firn
