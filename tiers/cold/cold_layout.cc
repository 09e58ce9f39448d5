// How records lie in extents: spans of their runs, protected planes apart, headers and checksums in place.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/checksum.h"
#include "tiers/cold/cold_items.h"

namespace firn {

MutableRunBytes SpanAt(const ChunkPool::Lease& lease, uint64_t offset, uint64_t length) {
  MutableRunBytes out;
  for (MutableByteSpan piece : lease.pieces()) {
    if (length == 0) break;
    if (offset >= piece.size()) {
      offset -= piece.size();
      continue;
    }
    uint64_t take = std::min<uint64_t>(piece.size() - offset, length);
    out.Append(piece.subspan(offset, take));
    offset = 0;
    length -= take;
  }
  FIRN_CHECK(length == 0);
  return out;
}

std::vector<RowExtent> RowExtentsOf(const LogItem& item) {
  std::vector<RowExtent> out;
  for (const LogExtent& extent : item.extents) out.push_back({extent.header.place, extent.header.shape});
  return out;
}

ColdLayout LayoutOf(const RecordNote& note, const std::vector<RowExtent>& extents) {
  ColdLayout layout;
  layout.run_bytes = note.run_bytes;
  layout.ecc = note.ecc;
  layout.header_bytes = note.header_bytes;
  for (size_t i = 0; i < extents.size() && i < kRecordExtentsMax; ++i) layout.extents[i] = extents[i].shape;
  return layout;
}

namespace {

void ZeroSpan(const MutableRunBytes& bytes) {
  for (MutableByteSpan piece : bytes.spans()) std::memset(piece.data(), 0, piece.size());
}

uint64_t CrcOf(const MutableRunBytes& bytes, uint64_t seed) {
  for (MutableByteSpan piece : bytes.spans()) seed = Crc64(piece, seed);
  return seed;
}

// Copies runs of an extent into memory of their own, laid out as `target`, with room for their parity.
std::shared_ptr<ChunkPool::Lease> CopyRuns(const ChunkPool::Lease& from, const ExtentShape& shape,
                                           const ExtentContents& target, std::shared_ptr<ChunkPool::Lease> into) {
  if (into == nullptr) into = ChunkPool::Lease::OnHeap(target.End());
  const RunLengths& lengths = target.lengths;
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (!target.shape.runs.Has(i) || !shape.runs.Has(i)) continue;
    CopyScattered(SpanAt(from, RunOffset(shape, lengths, i), lengths[i]),
                  SpanAt(*into, RunOffset(target.shape, lengths, i), lengths[i]));
  }
  return into;
}

}  // namespace

// Moves protected runs of the plane streams to an extent of their own. Where a whole extent is protected and no other
// is, only its stream changes; otherwise the runs are copied, which is rare: floors name planes of a part, pins
// everything.
void ColdTier::SplitProtected(std::vector<DraftExtent>* extents, const RunLengths& lengths, RunMask protect) const {
  RunMask moving;
  size_t touched = 0, whole = 0;
  for (size_t i = 1; i < extents->size(); ++i) {
    RunMask held = (*extents)[i].shape.runs & protect;
    if (held.Empty()) continue;
    moving |= held;
    ++touched;
    if (held == (*extents)[i].shape.runs) whole = i;
  }
  if (touched == 0) return;
  if (touched == 1 && whole != 0) {
    (*extents)[whole].stream = Stream::kProtected;
    return;
  }
  // None of these has the record header.
  auto contents_of = [&](const ExtentShape& shape) { return ExtentContents{shape, lengths, 0, options_.ecc}; };
  DraftExtent kept{Stream::kProtected, {moving, (*extents)[1].shape.runs_at}, nullptr};
  std::vector<DraftExtent> out;
  out.push_back(std::move((*extents)[0]));
  for (size_t i = 1; i < extents->size(); ++i) {
    DraftExtent& extent = (*extents)[i];
    if (!(extent.shape.runs & moving).Empty()) {
      kept.memory = CopyRuns(*extent.memory, extent.shape, contents_of(kept.shape), std::move(kept.memory));
      ExtentShape rest{extent.shape.runs - moving, extent.shape.runs_at};
      if (rest.runs.Empty()) continue;
      extent.memory = CopyRuns(*extent.memory, extent.shape, contents_of(rest), nullptr);
      extent.shape = rest;
    }
    out.push_back(std::move(extent));
  }
  out.push_back(std::move(kept));
  *extents = std::move(out);
}

// Completes an extent's payload and header but for its place.
LogExtent ColdTier::FinishExtent(DraftExtent extent, const RecordNote& note, ByteSpan record_header, uint64_t sequence,
                                 size_t siblings, bool relocated) const {
  LogExtent out;
  ExtentHeader& header = out.header;
  header.kind = ExtentKind::kRecord;
  header.stream = extent.stream;
  header.sequence = sequence;
  header.has_record_header = !record_header.empty();
  header.relocated = relocated;
  header.siblings.resize(header.has_record_header ? siblings : 0);
  header.note = note;
  ExtentContents contents{extent.shape, note.run_bytes, static_cast<uint32_t>(record_header.size()), note.ecc};
  FIRN_CHECK(header.header_bytes() + record_header.size() <= extent.shape.runs_at);
  header.shape = extent.shape;
  header.payload_bytes = contents.End() - header.header_bytes();
  const ChunkPool::Lease& memory = *extent.memory;
  uint64_t at = header.header_bytes();
  // What is between the parts goes to the medium too.
  auto go_to = [&](uint64_t start, uint64_t bytes) {
    ZeroSpan(SpanAt(memory, at, start - at));
    at = start + bytes;
    return SpanAt(memory, start, bytes);
  };
  if (header.has_record_header) {
    CopyScattered(RunBytes(record_header), go_to(header.record_header_at(), record_header.size()));
  }
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (extent.shape.runs.Has(i)) go_to(RunOffset(extent.shape, note.run_bytes, i), note.run_bytes[i]);
  }
  if (uint64_t bytes = ParityBytes(note.ecc.OfHeader(), record_header.size()); bytes > 0) {
    ComputeParity(note.ecc.OfHeader(), RunBytes(record_header), go_to(contents.HeaderParityOffset(), bytes));
  }
  for (uint32_t i = 0; i < kRunIds; ++i) {
    const EccCode code = note.ecc.OfRun(i);
    const uint64_t bytes = extent.shape.runs.Has(i) ? ParityBytes(code, note.run_bytes[i]) : 0;
    if (bytes == 0) continue;
    ComputeParity(code, SpanAt(memory, RunOffset(extent.shape, note.run_bytes, i), note.run_bytes[i]),
                  go_to(contents.ParityOffset(i), bytes));
  }
  header.payload_crc = CrcOf(SpanAt(memory, header.header_bytes(), header.payload_bytes), sequence);
  out.memory = std::move(extent.memory);
  return out;
}

}  // namespace firn
