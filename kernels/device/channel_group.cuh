// The group of tokens of one head that a block of threads codes, per channel: one after another in the grid.
#pragma once

#include "kernels/device/rows.cuh"
#include "kernels/nested/launch.h"

namespace firn::kernels {

struct ChannelGroup {
  RowAt head;
  uint32_t first, count;  // Tokens.
  uint32_t meta_offset;   // Of its minima, in values; its steps follow them.

  __device__ __forceinline__ explicit ChannelGroup(const NestedLaunch& launch) {
    uint32_t head_index = blockIdx.x / launch.groups, group = blockIdx.x - head_index * launch.groups;
    head = launch.shape.HeadOf(head_index);
    first = group * launch.job.group;
    count = min(static_cast<uint32_t>(launch.job.group), launch.shape.tokens - first);
    meta_offset = ((head.layer * launch.shape.heads + head.head) * launch.groups + group) * 2 * launch.shape.width;
  }
  __device__ __forceinline__ uint32_t InBlock(const NestedLaunch& launch, uint32_t token) const {
    return (head.layer * launch.shape.heads + head.head) * launch.shape.tokens + first + token;
  }
  template <typename Value>
  __device__ __forceinline__ Value* Row(const NestedLaunch& launch, uint32_t token) const {
    RowAt at{head.block, head.layer, head.head, first + token};
    return RowOf<Value>(launch.job.rows, launch.by_page, at);
  }
  template <typename Meta>
  __device__ __forceinline__ Meta* MetaAt(const NestedLaunch& launch, uint32_t index) const {
    uint64_t offset = (uint64_t{meta_offset} + index) * sizeof(Meta);
    return reinterpret_cast<Meta*>(launch.job.meta_run.At(head.block, offset));
  }
};

}  // namespace firn::kernels
