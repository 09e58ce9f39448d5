// A GPU tier with its child process above a DRAM tier, without a store and without a service, and many operations on
// them at once.
//
// Blocks have 32 layers of 8 heads of 128 channels, K and V, FP16: 128 KiB a token. Threads: one caller; operations run
// on an executor of the chain's own. Ownership: copies must go before the chain does.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "base/executor.h"
#include "tiers/hot/gpu_tier.h"
#include "tiers/warm/warm_tier.h"

namespace firn::bench {

struct GpuChainOptions {
  std::string program;
  bool cpu = false;  // The processor in place of a GPU.
  uint32_t device = 0;
  uint64_t pool_bytes = 0, arena_bytes = 0, staging_bytes = 0, scratch_bytes = 0;
};

class GpuChain : private ArtifactSource {
 public:
  static constexpr uint32_t kLayers = 32, kHeads = 8, kWidth = 128;
  static constexpr uint64_t kTokenBytes = uint64_t{kLayers} * kHeads * kWidth * 2 * 2;

  static absl::StatusOr<std::unique_ptr<GpuChain>> Open(GpuChainOptions options);

  // One block of made-up values in ordinary memory, with its checks; the same identity for all.
  absl::StatusOr<EncodedBlock> MakeBlock(uint32_t tokens) const;
  // Centred, balanced and rotated keys and rotated values, or keys per channel.
  EncodeSpec Spec(PrecisionClass precision, bool balanced) const;

  // Each calls `done` on the executor. `CommitHot` takes the draft's bytes as they are in staging where `from` is
  // null, else the bytes of `from`.
  using CopyDone = absl::AnyInvocable<void(absl::StatusOr<CopyPtr>)>;
  void CommitHot(const EncodedBlock& block, const EncodedBlock* from, CopyDone done);
  void ReadHot(const CopyPtr& copy, absl::AnyInvocable<void(absl::Status)> done);
  // Into the DRAM tier, and committed there.
  void Demote(const CopyPtr& copy, const EncodeSpec& spec, CopyDone done);
  absl::StatusOr<CopyPtr> PutWarm(const EncodedBlock& block);
  absl::StatusOr<EncodedBlock> ReadWarm(const CopyPtr& copy);
  // Leaves no two free pages of the DRAM tier side by side, as after a long time of blocks of all sizes.
  absl::Status ScatterWarm();

  // Runs operations [0, count), `in_flight` at a time, each started where one ended. The first error.
  using Operation = std::function<void(uint64_t index, absl::AnyInvocable<void(absl::Status)> done)>;
  absl::Status RunAll(uint64_t count, uint64_t in_flight, const Operation& operation);

  // Of the child's process, in user and kernel mode.
  double ChildCpuSeconds() const;
  std::string DeviceName() const { return hot_->LinkStats().device; }
  uint64_t staging_bytes() const { return hot_->staging_bytes() / 2; }

 private:
  GpuChain();
  std::shared_ptr<const Artifact> Find(const Digest& digest) const override {
    return digest == balance_->digest() ? balance_ : nullptr;
  }

  std::shared_ptr<const Artifact> balance_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<ArenaTier> warm_;
  std::unique_ptr<GpuTier> hot_;
};

}  // namespace firn::bench
