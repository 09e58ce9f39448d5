#include "base/executor.h"

#include <condition_variable>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"

namespace firn {

void ManualExecutor::Post(Task task) {
  std::lock_guard lock(mu_);
  tasks_.push_back(std::move(task));
}

bool ManualExecutor::RunOne() {
  Task task;
  {
    std::lock_guard lock(mu_);
    if (tasks_.empty()) return false;
    task = std::move(tasks_.front());
    tasks_.pop_front();
  }
  task();
  return true;
}

size_t ManualExecutor::RunAll() {
  size_t ran = 0;
  while (RunOne()) ++ran;
  return ran;
}

size_t ManualExecutor::pending() const {
  std::lock_guard lock(mu_);
  return tasks_.size();
}

struct ThreadPoolExecutor::State {
  std::mutex mu;
  std::condition_variable wake;
  std::deque<Task> tasks;  // Guarded by mu.
  bool stopping = false;   // Guarded by mu.
  std::vector<std::thread> threads;

  void Run() {
    std::unique_lock lock(mu);
    for (;;) {
      wake.wait(lock, [this] { return stopping || !tasks.empty(); });
      if (tasks.empty()) return;
      Task task = std::move(tasks.front());
      tasks.pop_front();
      lock.unlock();
      task();
      task = nullptr;  // Whatever the task owns is released outside the lock.
      lock.lock();
    }
  }
};

ThreadPoolExecutor::ThreadPoolExecutor(size_t threads) : state_(new State) {
  FIRN_CHECK(threads > 0);
  for (size_t i = 0; i < threads; ++i) state_->threads.emplace_back([this] { state_->Run(); });
}

ThreadPoolExecutor::~ThreadPoolExecutor() {
  {
    std::lock_guard lock(state_->mu);
    state_->stopping = true;
  }
  state_->wake.notify_all();
  for (auto& thread : state_->threads) thread.join();
  delete state_;
}

void ThreadPoolExecutor::Post(Task task) {
  {
    std::lock_guard lock(state_->mu);
    state_->tasks.push_back(std::move(task));
  }
  state_->wake.notify_one();
}

}  // namespace firn
