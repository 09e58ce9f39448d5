// Copies between a GPU's memory and the parent's, gathered first and enqueued together: an arena hands out pages of
// 64 KiB, and a call to the driver for each of them costs more than the bus takes for it.
//
// Neighbours on both sides become one copy; what is left goes to the driver in one call where it has one for that.
// Threads: one. Stream behaviour: Enqueue enqueues; the copies of one list have no order among themselves, so they must
// not overlap. Errors: Enqueue's; copies that were enqueued before one must be waited for all the same.
#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "daemon/gpu/registered_regions.h"
#include "tiers/hot/protocol/messages.h"

namespace firn::gpu {

class CopyList {
 public:
  CopyList(uint8_t* pool, const RegisteredRegions* regions) : pool_(pool), regions_(regions) {}

  // Between places with as many bytes in all on both sides.
  void Add(const std::vector<Place>& source, const std::vector<Place>& target);
  // From memory of this GPU's.
  void AddOut(const uint8_t* from, const std::vector<Place>& target);
  // From memory of this GPU's to pinned memory.
  void AddPinned(const uint8_t* from, uint8_t* to, uint64_t bytes);
  absl::Status Enqueue(cudaStream_t stream);

 private:
  // Where a place's bytes from `done` on lie, and how many of them one copy may take.
  struct Stretch {
    uint8_t* at = nullptr;
    uint64_t bytes = 0;
    bool first_of_piece = false;  // Of a region: what lies before it is registered apart.
  };
  Stretch StretchOf(const Place& place, uint64_t done);
  void Append(uint8_t* to, const uint8_t* from, uint64_t bytes, bool may_join);

  uint8_t* const pool_;
  const RegisteredRegions* const regions_;
  std::vector<void*> to_;
  std::vector<const void*> from_;
  std::vector<size_t> bytes_;
  bool all_registered_ = true;
};

}  // namespace firn::gpu
