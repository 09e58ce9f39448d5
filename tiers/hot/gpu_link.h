// The parent's end of one GPU child: starts it, talks to it, and starts it again when it dies.
//
// Each start is an epoch. Jobs belong to the epoch they were made for: whatever of it has not been answered when the
// child dies fails with Unavailable, and so does what comes too late. A child that breaks the protocol, that answers
// nothing for `job_timeout_ms` or that does not get ready in time is killed. After a death the next start waits, at
// first `backoff_first_ms`, twice as long after each start that did not last, at most `backoff_max_ms`.
//
// Threads: every call is safe from any thread. One thread of the link's own runs the child, the callbacks and the
// replies: they must not block. Ownership: regions must outlive the link. Stop() ends the child and the thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "codecs/artifact.h"
#include "tiers/hot/protocol/messages.h"
#include "tiers/hot/protocol/unique_fd.h"

namespace firn {

// A child that was just started.
class GpuChild {
 public:
  virtual ~GpuChild() = default;  // Ends it, whatever state it is in, and waits for its end.
  virtual UniqueFd TakeSocket() = 0;
  virtual int pid() const = 0;  // 0 where it is no process.
};
using GpuChildStarter = std::function<absl::StatusOr<std::unique_ptr<GpuChild>>()>;

// Starts `program` with `arguments`, the socket as descriptor 3. It dies with the thread that started it.
GpuChildStarter StartProgram(std::string program, std::vector<std::string> arguments);

// Memory that the child maps: bytes from the front are usable, more and more of them.
struct GpuRegion {
  int fd = -1;
  const uint8_t* base = nullptr;
  uint64_t bytes = 0;
  std::function<uint64_t()> usable_bytes;
};

// The region of an Arena or an ArenaTier, by any kind of pointer, which the region keeps.
template <typename Pointer>
GpuRegion RegionOf(Pointer arena) {
  const auto& region = arena->region();
  return {region.fd(), region.base(), region.bytes(), [arena] { return arena->populated_bytes(); }};
}

class GpuLink {
 public:
  struct Options {
    std::string name = "gpu";
    GpuChildStarter start;
    uint32_t device = 0;
    uint64_t pool_bytes = 0;
    uint64_t scratch_bytes = uint64_t{256} << 20;
    std::vector<GpuRegion> regions;  // Region i of the list has the id i + 1.
    int64_t ready_timeout_ms = 60'000;
    int64_t job_timeout_ms = 30'000;
    int64_t backoff_first_ms = 100;
    int64_t backoff_max_ms = 10'000;
    std::function<void(const std::string&)> notice;  // Worth a line in the log; may be null.
    // A child is ready, or is gone; from the link's thread, in turns.
    std::function<void(uint64_t epoch, const gpu::Ready& ready)> on_up;
    std::function<void(uint64_t epoch, const absl::Status& why)> on_down;
  };
  struct Stats {
    bool up = false;
    uint64_t epoch = 0;
    int pid = 0;
    uint64_t starts = 0, deaths = 0;
    uint64_t jobs = 0, jobs_failed = 0, jobs_waiting = 0;
    std::string device;        // Of the last child that was ready.
    std::string last_failure;  // Why the last one died; empty: none did.
  };

  explicit GpuLink(Options options);
  ~GpuLink();

  void Start();
  void Stop();

  // Where a stretch of memory lies among the regions, as places in order; false where some of it does not.
  bool Locate(const uint8_t* data, uint64_t bytes, std::vector<gpu::Place>* places) const;

  using Done = absl::AnyInvocable<void(absl::StatusOr<std::vector<uint8_t>>)>;
  // Sends `work` to the child of `epoch`. `artifacts` are those that it names: the child gets each once.
  void Run(uint64_t epoch, gpu::Lane lane, decltype(gpu::Job::work) work,
           std::vector<std::shared_ptr<const Artifact>> artifacts, Done done);
  Stats GetStats() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace firn
