#include "tests/bench/reliability/stored_record.h"

#include <cmath>
#include <memory>
#include <utility>

#include "base/check.h"
#include "tests/bench/reliability/expectation.h"

namespace firn::bench {
namespace {

constexpr Protection kProtections[] = {
    {.name = "nothing", .checked = false, .ecc = {}},
    {.name = "checks", .checked = true, .ecc = {}},
    {.name = "secded", .checked = true, .ecc = EccPolicy::Uniform(EccCode::kSecded)},
    {.name = "graded_secded", .checked = true, .ecc = EccPolicy::Graded(EccCode::kSecded)},
    {.name = "rs", .checked = true, .ecc = EccPolicy::Uniform(EccCode::kReedSolomon)},
    {.name = "graded_rs", .checked = true, .ecc = EccPolicy::Graded(EccCode::kReedSolomon)},
};

// Header bytes that are there for the sake of checking alone: the checks of runs, and the header's own.
uint64_t CheckBytes(const RecordHeader& header) {
  uint64_t bytes = 8;
  for (const RunInfo& run : header.runs) bytes += run.checks.size() * 8;
  return bytes;
}

}  // namespace

std::span<const Protection> AllProtections() { return kProtections; }

const Protection* FindProtection(std::string_view name) {
  for (const Protection& protection : kProtections) {
    if (protection.name == name) return &protection;
  }
  return nullptr;
}

StoredRecord::StoredRecord(EncodedBlock block, const Protection& protection)
    : block_(std::move(block)), protection_(protection) {
  const std::vector<uint8_t> header = SerializeHeader(*block_.header);
  header_bytes_ = header.size();
  if (protection.checked) {
    Append(kHeader, protection.ecc.OfHeader(), RunBytes(ByteSpan(header)));
  } else {
    header_bytes_ -= CheckBytes(*block_.header);
  }
  for (uint32_t run = 0; run < kRunIds; ++run) {
    if (!block_.present.Has(run)) continue;
    Append(run, protection.ecc.OfRun(run), block_.runs[run]);
    run_bytes_ += block_.runs[run].size();
  }
}

void StoredRecord::Append(uint32_t index, EccCode code, const RunBytes& data) {
  Piece& piece = pieces_[index];
  piece = {code, image_.size(), data.size(), ParityBytes(code, data.size())};
  image_.resize(image_.size() + piece.data_bytes + piece.parity_bytes);
  const MutableByteSpan to = MutableByteSpan(image_).subspan(piece.offset);
  CopyScattered(data, MutableRunBytes(to.first(piece.data_bytes)));
  ComputeParity(code, data, MutableRunBytes(to.subspan(piece.data_bytes, piece.parity_bytes)));
  parity_bytes_ += piece.parity_bytes;
}

ReadBack StoredRecord::Read(MutableByteSpan image) const {
  FIRN_CHECK(image.size() == image_.size());
  ReadBack out;
  EccOutcome outcome;
  for (const Piece& piece : pieces_) {
    if (piece.code == EccCode::kNone) continue;
    const MutableByteSpan at = image.subspan(piece.offset, piece.data_bytes + piece.parity_bytes);
    outcome += CorrectInPlace(piece.code, MutableRunBytes(at.first(piece.data_bytes)),
                              MutableRunBytes(at.subspan(piece.data_bytes)));
  }
  out.corrected = !outcome.clean();
  out.block.header = block_.header;
  if (protection_.checked) {
    auto header = ParseHeader(image.subspan(pieces_[kHeader].offset, pieces_[kHeader].data_bytes), nullptr);
    out.missed = !header.ok() || header->identity != block_.header->identity;
    if (out.missed) return out;
    out.block.header = std::make_shared<const RecordHeader>(*std::move(header));
  }
  out.block.present = block_.present;
  for (uint32_t run = 0; run < kRunIds; ++run) {
    const Piece& piece = pieces_[run];
    if (block_.present.Has(run)) out.block.runs[run] = RunBytes(image.subspan(piece.offset, piece.data_bytes));
  }
  const RecordHeader& header = *out.block.header;
  const RunMask intact = protection_.checked ? IntactRuns(out.block) : block_.present;
  const ClassPair left = ClassOf(header, intact);
  out.missed = left.Min() == PrecisionClass::kNone;
  out.used = RunsFor(header, left) & intact;
  out.coarser = !out.missed && left != ClassOf(header, block_.present);
  return out;
}

StoredRecord::Shares StoredRecord::Expected(double rate) const {
  if (!protection_.checked) return {};
  double needed = 0, finer = 0;  // Logarithms of the probability that all of them come back.
  for (uint32_t index = 0; index <= kRunIds; ++index) {
    const Piece& piece = pieces_[index];
    if (piece.data_bytes == 0) continue;
    const ProtectionClass c = index == kHeader ? ProtectionClass::kMeta : ProtectionClassOf(RunKindOf(index));
    const bool is_needed = c == ProtectionClass::kMeta || c == ProtectionClass::kBase;
    (is_needed ? needed : finer) += std::log1p(-LossOf(piece.code, piece.data_bytes, rate));
  }
  return {.missed = -std::expm1(needed), .coarser = std::exp(needed) * -std::expm1(finer)};
}

}  // namespace firn::bench
