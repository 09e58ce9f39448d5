// A GPU as its child process drives it, as a seam: CUDA, or the processor itself for tests and machines without one.
//
// Jobs of one lane begin in order, and those that are not answered may run side by side (messages.h); each gets exactly
// one answer, from any thread, in any order. Jobs have passed CheckJob, so every place lies within the pool or the
// usable part of a region. Threads: Submit and the rest are called by one thread. Errors: a job's own go into its
// answer. What ends the GPU for this process goes to `on_fatal`; answers may stay out then.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "codecs/artifact.h"
#include "tiers/hot/protocol/messages.h"

namespace firn::gpu {

class Device {
 public:
  struct Events {
    std::function<void(JobDone)> on_done;
    std::function<void(Fatal)> on_fatal;
  };
  virtual ~Device() = default;

  // Takes pool and scratch, as much of the pool as there is. `artifacts` outlives the device. Once, and first.
  virtual absl::StatusOr<Ready> Open(const Hello& hello, const ArtifactSource* artifacts, Events events) = 0;
  // A region is there at `base`; it stays until the process ends. More of it becomes usable by and by.
  virtual void AddRegion(uint32_t region, uint8_t* base, uint64_t bytes) = 0;
  virtual void SetUsable(uint32_t region, uint64_t bytes) = 0;
  virtual void Submit(Job job) = 0;
  // Ends what runs; no event comes once it has returned. May be called twice.
  virtual void Stop() = 0;
};

}  // namespace firn::gpu
