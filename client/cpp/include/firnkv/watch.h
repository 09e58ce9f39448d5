// A stream of what happens to blocks: stored, demoted, degraded, promoted, removed.
//
// Resumes by itself after the connection broke or the daemon restarted; a batch with `gap` says that events were lost,
// and the caller resynchronizes with Client::List. Threads: Next from one thread at a time, Cancel from any.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "firnkv/client.h"

namespace firnkv {

enum class EventKind : uint8_t {
  kUnspecified = 0,
  kStored = 1,
  kDemoted = 2,
  kDegraded = 3,
  kPromoted = 4,
  kRemoved = 5
};
std::string_view EventKindName(EventKind kind);

struct BlockEvent {
  uint64_t sequence = 0;
  EventKind kind = EventKind::kUnspecified;
  Digest ns = {};
  Digest key = {};
  uint32_t shard = 0;
  uint32_t tier = 0;
  PrecisionPair now = {};  // kNone when removed.
};

struct EventBatch {
  std::vector<BlockEvent> events = {};
  uint64_t sequence = 0;  // Resume after this one.
  bool gap = false;       // Events before these are lost.
};

class WatchStream {
 public:
  ~WatchStream();
  WatchStream(const WatchStream&) = delete;
  WatchStream& operator=(const WatchStream&) = delete;

  // Waits for the next batch; the first comes at once and has no events: it says that the watch is in force.
  // DEADLINE_EXCEEDED after `timeout_ms` (the watch goes on), CANCELLED after Cancel, UNAVAILABLE when the daemon stays
  // away for `timeout_ms`.
  absl::StatusOr<EventBatch> Next(int64_t timeout_ms);
  void Cancel();

  class Impl;

 private:
  friend class Client;
  explicit WatchStream(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace firnkv
