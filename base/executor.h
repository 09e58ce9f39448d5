// Where work runs, as a seam: an Asio pool in the daemon, a queue run by hand in tests.
//
// Foreign threads (io_uring, gRPC, RocksDB, CUDA) only Post. A task must not throw.
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>

#include "absl/functional/any_invocable.h"

namespace firn {

using Task = absl::AnyInvocable<void()>;

class Executor {
 public:
  virtual ~Executor() = default;
  // Runs `task` later on one of the executor's threads. Safe from any thread; never runs it inside the call.
  virtual void Post(Task task) = 0;
};

// A queue that a test runs by hand, one task at a time and in order. Thread-safe to post to.
class ManualExecutor final : public Executor {
 public:
  void Post(Task task) override;
  // Runs the oldest task; false when there is none.
  bool RunOne();
  // Runs until the queue is empty; returns how many ran.
  size_t RunAll();
  size_t pending() const;

 private:
  mutable std::mutex mu_;
  std::deque<Task> tasks_;  // Guarded by mu_.
};

// A fixed number of threads over one queue. The destructor runs what was posted, then joins.
class ThreadPoolExecutor final : public Executor {
 public:
  explicit ThreadPoolExecutor(size_t threads);
  ~ThreadPoolExecutor() override;
  void Post(Task task) override;

 private:
  struct State;
  State* state_;
};

}  // namespace firn
