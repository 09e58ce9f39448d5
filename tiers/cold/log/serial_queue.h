// One task at a time, in order, on an executor of many threads: the cold tier's log is written from here.
//
// Threads: Post is safe from any thread, also from a running task. Ownership: the executor is not owned. Tasks still
// queued when the queue goes run later all the same: their owner waits for them first.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "base/executor.h"

namespace firn {

class SerialQueue {
 public:
  explicit SerialQueue(Executor* executor) : state_(std::make_shared<State>()) { state_->executor = executor; }
  SerialQueue(const SerialQueue&) = delete;
  SerialQueue& operator=(const SerialQueue&) = delete;

  void Post(Task task) {
    {
      std::lock_guard lock(state_->mu);
      state_->tasks.push_back(std::move(task));
      if (std::exchange(state_->scheduled, true)) return;
    }
    Schedule(state_);
  }

  // No task is there, and none is being run: the last one has ended and is destroyed.
  bool quiet() const {
    std::lock_guard lock(state_->mu);
    return !state_->scheduled;
  }

 private:
  static constexpr int kTasksPerTurn = 64;

  struct State {
    Executor* executor = nullptr;
    std::mutex mu;
    std::deque<Task> tasks;  // Guarded by mu.
    bool scheduled = false;  // Guarded by mu.
  };

  static void Schedule(std::shared_ptr<State> state) {
    Executor* executor = state->executor;
    executor->Post([state = std::move(state)]() mutable { Run(std::move(state)); });
  }

  static void Run(std::shared_ptr<State> state) {
    for (int i = 0; i < kTasksPerTurn; ++i) {
      Task task;
      {
        std::lock_guard lock(state->mu);
        if (state->tasks.empty()) {
          state->scheduled = false;
          return;
        }
        task = std::move(state->tasks.front());
        state->tasks.pop_front();
      }
      task();
    }
    Schedule(std::move(state));
  }

  const std::shared_ptr<State> state_;
};

}  // namespace firn
