#include "codecs/encoded_block.h"

#include <cstring>

#include "base/checksum.h"
#include "base/status.h"
#include "base/units.h"

namespace firn {
namespace {

constexpr size_t kStretchBytes = 64 * kKiB;  // Fits the second-level cache of any core, with room.

// Walks a run front to back, taking CRCs of consecutive stretches wherever the bytes lie.
class RunWalker {
 public:
  explicit RunWalker(const RunBytes& run) : run_(run) {}

  template <typename Visit>
  uint64_t NextCrc(uint64_t bytes, uint64_t seed, Visit visit) {
    uint64_t crc = seed;
    while (bytes > 0) {
      std::span<const uint8_t> piece = run_.spans()[piece_].subspan(offset_);
      piece = piece.first(std::min({piece.size(), size_t{bytes}, kStretchBytes}));
      visit(piece);
      crc = Crc64(piece, crc);
      bytes -= piece.size();
      offset_ += piece.size();
      if (offset_ == run_.spans()[piece_].size()) {
        ++piece_;
        offset_ = 0;
      }
    }
    return crc;
  }

 private:
  const RunBytes& run_;
  size_t piece_ = 0;
  size_t offset_ = 0;
};

// Calls visit(check index, crc) for each check of a run, until it returns false, and visit_bytes(stretch) before.
template <typename Visit, typename VisitBytes>
void VisitChecks(const ChecksumSeeds& seeds, uint32_t run_index, const RunBytes& run, uint32_t layers,
                 uint32_t layers_per_check, Visit visit, VisitBytes visit_bytes) {
  if (run.size() == 0) return;
  uint64_t layer_bytes = run.size() / layers;
  RunWalker walker(run);
  for (uint32_t first = 0, check = 0; first < layers; first += layers_per_check, ++check) {
    uint32_t count = std::min(layers_per_check, layers - first);
    uint64_t bytes = count == layers ? run.size() : count * layer_bytes;
    if (!visit(check, walker.NextCrc(bytes, seeds.Of(run_index, first), visit_bytes))) return;
  }
}

bool IsIntact(const RecordHeader& header, const ChecksumSeeds& seeds, uint32_t run_index, const RunBytes& run) {
  const RunInfo& info = header.runs[run_index];
  if (!header.encoded.Has(run_index) || run.size() != info.bytes) return false;
  bool intact = true;
  auto compare = [&](uint32_t check, uint64_t crc) {
    intact = info.checks[check] == crc;
    return intact;
  };
  VisitChecks(seeds, run_index, run, header.shape.layers, info.layers_per_check, compare, [](ByteSpan) {});
  return intact;
}

}  // namespace

void CopyScattered(const RunBytes& source, const MutableRunBytes& target) {
  size_t piece = 0, offset = 0;
  for (std::span<const uint8_t> from : source.spans()) {
    while (!from.empty()) {
      FIRN_CHECK(piece < target.spans().size());
      std::span<uint8_t> to = target.spans()[piece].subspan(offset);
      size_t count = std::min(from.size(), to.size());
      std::memcpy(to.data(), from.data(), count);
      from = from.subspan(count);
      offset += count;
      if (offset == target.spans()[piece].size()) {
        ++piece;
        offset = 0;
      }
    }
  }
}

RecordLayout LayoutOf(const RecordHeader& header, RunMask keep) {
  RecordLayout layout;
  layout.present = header.encoded & keep;
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (layout.present.Has(i)) layout.run_bytes[i] = header.runs[i].bytes;
  }
  layout.namespace_tag = NamespaceTag(header.identity.namespace_fingerprint);
  layout.layers = header.shape.layers;
  layout.mixed = {header.Mixed(Part::kK), header.Mixed(Part::kV)};
  layout.map_bytes = MapBytes(header);
  return layout;
}

namespace {

uint64_t HeaderBytes(const RecordLayout& layout) {
  uint64_t bytes = kRecordHeaderFixedBytes;
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (!layout.present.Has(i)) continue;
    // Every check but a run's last covers kCheckedBytesMin bytes at least.
    uint64_t checks = layout.run_bytes[i] / kCheckedBytesMin + 1;
    if (layout.layers != 0) {
      bool mixed = layout.mixed[static_cast<size_t>(RunPartOf(i))];
      uint32_t joined = mixed ? layout.layers : LayersPerCheck(layout.run_bytes[i] / layout.layers, layout.layers);
      checks = layout.run_bytes[i] == 0 ? 0 : (layout.layers + joined - 1) / joined;
    }
    bytes += kRecordHeaderRunBytes + 8 * checks;
  }
  return bytes + layout.map_bytes;
}

}  // namespace

uint64_t HeaderBytesBound(const RecordLayout& layout) { return std::min(HeaderBytes(layout), kRecordHeaderBytesMax); }

absl::Status CheckHeaderFits(const RecordLayout& layout) {
  const uint64_t bytes = HeaderBytes(layout);
  if (bytes <= kRecordHeaderBytesMax) return absl::OkStatus();
  return InvalidArgument("a record header of {} bytes; at most {}", bytes, kRecordHeaderBytesMax);
}

EncodedBlock EncodedBlock::Narrowed(RunMask keep) const {
  EncodedBlock out;
  out.header = header;
  out.present = present & keep;
  out.owner = owner;
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (out.present.Has(i)) out.runs[i] = runs[i];
  }
  return out;
}

RecordLayout EncodedBlock::Layout(RunMask keep) const {
  RecordLayout layout = header == nullptr ? RecordLayout{} : LayoutOf(*header, present & keep);
  layout.present = present & keep;
  for (uint32_t i = 0; i < kRunIds; ++i) layout.run_bytes[i] = layout.present.Has(i) ? runs[i].size() : 0;
  return layout;
}

void ComputeChecks(RecordHeader* header, RunMask mask, const std::array<RunBytes, kRunIds>& runs) {
  ComputeChecks(header, mask, runs, [](uint32_t, ByteSpan) {});
}

void ComputeChecks(RecordHeader* header, RunMask mask, const std::array<RunBytes, kRunIds>& runs,
                   absl::FunctionRef<void(uint32_t run_index, ByteSpan stretch)> visit) {
  uint32_t layers = header->shape.layers;
  FIRN_CHECK(layers > 0);
  ChecksumSeeds seeds(header->identity);
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (!mask.Has(i)) continue;
    RunInfo& info = header->runs[i];
    FIRN_CHECK(runs[i].size() == info.bytes);
    info.layers_per_check = LayersPerCheckOf(*header, i);
    info.checks.clear();
    auto keep = [&](uint32_t, uint64_t crc) {
      info.checks.push_back(crc);
      return true;
    };
    VisitChecks(seeds, i, runs[i], layers, info.layers_per_check, keep, [&](ByteSpan stretch) { visit(i, stretch); });
  }
}

RunMask IntactRuns(const EncodedBlock& block) {
  FIRN_CHECK(block.header != nullptr);
  ChecksumSeeds seeds(block.header->identity);
  RunMask intact;
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (block.present.Has(i) && IsIntact(*block.header, seeds, i, block.runs[i])) {
      intact |= RunMask::Of(RunKindOf(i), RunPartOf(i));
    }
  }
  return intact;
}

bool IsIntactRun(const std::shared_ptr<const RecordHeader>& header, uint32_t run_index, const RunBytes& run) {
  EncodedBlock alone;
  alone.header = header;
  alone.present = RunMask::Of(RunKindOf(run_index), RunPartOf(run_index));
  alone.runs[run_index] = run;
  return IntactRuns(alone) == alone.present;
}

}  // namespace firn
