// The daemon's threads: a pool that runs the store's and the service's work, and a control loop for everything that
// must answer while the pool is busy: timers, signals and the admin HTTP endpoint.
//
// Threads: Post, After and Every are safe from any thread. Tasks must not throw; one that does ends the process.
// Ownership: destroying the pool runs what was posted before, then joins. The loop's callbacks run on the thread in
// Run().
#pragma once

#include <csignal>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "base/executor.h"

namespace boost::asio {
class io_context;
}

namespace firn {

class AsioExecutor final : public Executor {
 public:
  // `nice` is added to the niceness of the threads, as far as the system allows: 19 at most.
  explicit AsioExecutor(size_t threads, int nice = 0);
  ~AsioExecutor() override;
  void Post(Task task) override;
  size_t threads() const { return threads_; }
  // Returns when everything posted before has run to its end. Not to be called from a task.
  void Drain();

 private:
  struct State;
  const size_t threads_;
  std::unique_ptr<State> state_;
};

class ControlLoop {
 public:
  ControlLoop();
  ~ControlLoop();

  // Runs `task` on the loop: soon, after a time, or again and again (each time `interval_ms` after the last one ended).
  void Post(Task task);
  void After(int64_t delay_ms, Task task);
  void Every(int64_t interval_ms, std::function<void()> task);
  void OnSignals(std::initializer_list<int> signals, std::function<void(int)> handler);

  void Run();   // Until Stop.
  void Stop();  // From any thread; also before Run.

  boost::asio::io_context& context();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace firn
