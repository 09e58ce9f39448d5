#include "daemon/runtime/asio_executor.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <latch>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"

namespace firn {

namespace asio = boost::asio;
using WorkGuard = asio::executor_work_guard<asio::io_context::executor_type>;

struct AsioExecutor::State {
  explicit State(size_t count) : context(static_cast<int>(count)), guard(asio::make_work_guard(context)) {}
  asio::io_context context;
  WorkGuard guard;
  std::vector<std::thread> threads;
};

AsioExecutor::AsioExecutor(size_t threads, int nice) : threads_(threads), state_(std::make_unique<State>(threads)) {
  FIRN_CHECK(threads > 0);
  for (size_t i = 0; i < threads; ++i) {
    state_->threads.emplace_back([this, nice]() noexcept {
      // On Linux a thread has a niceness of its own.
      id_t self = static_cast<id_t>(::gettid());
      if (nice > 0) ::setpriority(PRIO_PROCESS, self, std::min(19, ::getpriority(PRIO_PROCESS, self) + nice));
      state_->context.run();
    });
  }
}

AsioExecutor::~AsioExecutor() {
  state_->guard.reset();
  for (std::thread& thread : state_->threads) thread.join();
}

void AsioExecutor::Post(Task task) { asio::post(state_->context, std::move(task)); }

void AsioExecutor::Drain() {
  // Tasks begin in order; when every thread has come here, none is at an earlier one.
  auto all_here = std::make_shared<std::latch>(static_cast<ptrdiff_t>(threads_));
  for (size_t i = 0; i < threads_; ++i) Post([all_here] { all_here->arrive_and_wait(); });
  all_here->wait();
}

struct ControlLoop::State {
  State() : context(1), guard(asio::make_work_guard(context)) {}
  asio::io_context context;
  WorkGuard guard;
  std::vector<std::unique_ptr<asio::signal_set>> signals;
};

ControlLoop::ControlLoop() : state_(std::make_unique<State>()) {}
ControlLoop::~ControlLoop() = default;

void ControlLoop::Post(Task task) { asio::post(state_->context, std::move(task)); }

void ControlLoop::After(int64_t delay_ms, Task task) {
  auto timer = std::make_shared<asio::steady_timer>(state_->context, std::chrono::milliseconds(delay_ms));
  timer->async_wait([timer, task = std::move(task)](const boost::system::error_code& error) mutable {
    if (!error) task();
  });
}

void ControlLoop::Every(int64_t interval_ms, std::function<void()> task) {
  After(interval_ms, [this, interval_ms, task = std::move(task)]() mutable {
    task();
    Every(interval_ms, std::move(task));
  });
}

void ControlLoop::OnSignals(std::initializer_list<int> signals, std::function<void(int)> handler) {
  auto set = std::make_unique<asio::signal_set>(state_->context);
  for (int signal : signals) set->add(signal);
  asio::signal_set* raw = set.get();
  state_->signals.push_back(std::move(set));
  // Waits again after each signal: a second SIGTERM must find a handler, or it would end the process.
  auto wait = std::make_shared<std::function<void()>>();
  *wait = [raw, handler = std::move(handler), again = std::weak_ptr(wait)] {
    raw->async_wait([handler, self = again.lock()](const boost::system::error_code& error, int signal) {
      if (error) return;
      handler(signal);
      (*self)();
    });
  };
  (*wait)();
}

void ControlLoop::Run() { state_->context.run(); }
void ControlLoop::Stop() { state_->context.stop(); }
asio::io_context& ControlLoop::context() { return state_->context; }

}  // namespace firn
