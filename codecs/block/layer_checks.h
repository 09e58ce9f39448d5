// The checksums of runs, taken layer by layer while their bytes are still in the cache: what ComputeChecks gives,
// sooner.
//
// Not thread-safe; borrows header and runs.
#pragma once

#include <array>
#include <cstdint>

#include "codecs/encoded_block.h"
#include "codecs/record.h"

namespace firn {

class LayerChecks {
 public:
  LayerChecks(RecordHeader* header, const MutableRuns& runs);
  // Takes the next layer of all encoded runs of a part; after the last one the part's checks are complete.
  void AddLayer(Part part);

 private:
  struct Progress {
    uint32_t layer = 0;
    size_t piece = 0;
    uint64_t within = 0;  // Of the piece.
    uint64_t crc = 0;
  };
  void AddLayerOfRun(uint32_t run_index);

  RecordHeader* const header_;
  const MutableRuns& runs_;
  const ChecksumSeeds seeds_;
  std::array<Progress, kRunIds> progress_{};
  std::array<uint32_t, 2> mixed_layers_{};  // By Part: how many have been added where heads differ in precision.
};

}  // namespace firn
