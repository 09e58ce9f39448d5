// The end of a batch whose parts end on their own.
#pragma once

#include <atomic>
#include <utility>

#include "daemon/rpc/grpc_glue.h"

namespace firn {

// Calls back once when all parts of a batch have: the last one finishes the call. Any thread.
class Countdown {
 public:
  Countdown(size_t parts, UnaryDone done) : left_(parts), done_(std::move(done)) {}
  void Part() {
    if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) done_(absl::OkStatus());
  }

 private:
  std::atomic<size_t> left_;
  UnaryDone done_;
};

}  // namespace firn
