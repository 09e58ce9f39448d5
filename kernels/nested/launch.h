// What the launchers of the nested code's kernels are given once the checks have passed. Internal to kernels/.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/device/rows.cuh"
#include "kernels/nested.h"

namespace firn::kernels {

struct NestedLaunch {
  NestedJob job;
  BatchShape shape;
  FastDivisor by_page;
  Places places = Places::kAny;
  uint32_t rotation = 1;  // Channels that the Hadamard transform mixes.
  uint32_t groups = 1;    // Of a row, or of a channel.
};

// For widths of 32 * lanes. Per token: one group a row.
struct FastShape {
  uint32_t lanes = 0;
};
cudaError_t LaunchEncodeTokenFast(const NestedLaunch& launch, const FastShape& fast, cudaStream_t stream);
cudaError_t LaunchDecodeTokenFast(const NestedLaunch& launch, const FastShape& fast, cudaStream_t stream);
cudaError_t LaunchEncodeChannelFast(const NestedLaunch& launch, const FastShape& fast, cudaStream_t stream);
cudaError_t LaunchDecodeChannelFast(const NestedLaunch& launch, const FastShape& fast, cudaStream_t stream);

// For widths that are multiples of 16, rows and runs aligned as for the fast kernels. Per token: groups are multiples
// of 4, rows of at most kTileWidthMax channels. Per channel: what a group takes of shared memory fits.
inline constexpr uint32_t kTileWidthMax = 16384;
inline constexpr uint64_t kChannelTileBytesMax = 100 * 1024;
// A group's values, and two FP32 numbers a channel.
inline uint32_t ChannelTileBytes(const NestedLaunch& launch) {
  uint32_t tokens = launch.job.group < launch.shape.tokens ? launch.job.group : launch.shape.tokens;
  return launch.shape.width * (8 + 2 * tokens);
}
cudaError_t LaunchEncodeTokenTile(const NestedLaunch& launch, cudaStream_t stream);
cudaError_t LaunchDecodeTokenTile(const NestedLaunch& launch, cudaStream_t stream);
cudaError_t LaunchEncodeChannelTile(const NestedLaunch& launch, cudaStream_t stream);
cudaError_t LaunchDecodeChannelTile(const NestedLaunch& launch, cudaStream_t stream);

// For any shape.
cudaError_t LaunchEncodeTokenAny(const NestedLaunch& launch, cudaStream_t stream);
cudaError_t LaunchDecodeTokenAny(const NestedLaunch& launch, cudaStream_t stream);
cudaError_t LaunchEncodeChannelAny(const NestedLaunch& launch, cudaStream_t stream);
cudaError_t LaunchDecodeChannelAny(const NestedLaunch& launch, cudaStream_t stream);

}  // namespace firn::kernels
