#include "codecs/block/layer_checks.h"

#include <algorithm>

#include "base/checksum.h"

namespace firn {

LayerChecks::LayerChecks(RecordHeader* header, const MutableRuns& runs)
    : header_(header), runs_(runs), seeds_(header->identity) {}

void LayerChecks::AddLayer(Part part) {
  if (header_->Mixed(part)) {
    if (++mixed_layers_[static_cast<size_t>(part)] < header_->shape.layers) return;
    // One check a run, of layers that differ in length.
    std::array<RunBytes, kRunIds> runs;
    for (uint32_t i = 0; i < kRunIds; ++i) runs[i] = runs_[i];
    RunMask of_part;
    for (uint32_t kind = 0; kind < kRunKinds; ++kind) of_part |= RunMask::Of(static_cast<RunKind>(kind), part);
    return ComputeChecks(header_, of_part & header_->encoded, runs);
  }
  for (uint32_t kind = 0; kind < kRunKinds; ++kind) {
    uint32_t run_index = RunIndex(static_cast<RunKind>(kind), part);
    if (header_->encoded.Has(run_index)) AddLayerOfRun(run_index);
  }
}

void LayerChecks::AddLayerOfRun(uint32_t run_index) {
  RunInfo& info = header_->runs[run_index];
  Progress& at = progress_[run_index];
  uint32_t layers = header_->shape.layers;
  uint64_t left = info.bytes / layers;
  if (at.layer == 0) {
    info.checks.clear();
    info.layers_per_check = LayersPerCheck(left, layers);
  }
  if (at.layer % info.layers_per_check == 0) at.crc = seeds_.Of(run_index, at.layer);
  bool empty = left == 0;
  while (left > 0) {
    std::span<uint8_t> piece = runs_[run_index].spans()[at.piece].subspan(at.within);
    uint64_t take = std::min<uint64_t>(left, piece.size());
    at.crc = Crc64(piece.first(take), at.crc);
    left -= take;
    at.within += take;
    if (at.within == runs_[run_index].spans()[at.piece].size()) ++at.piece, at.within = 0;
  }
  ++at.layer;
  if (!empty && (at.layer % info.layers_per_check == 0 || at.layer == layers)) info.checks.push_back(at.crc);
}

}  // namespace firn
