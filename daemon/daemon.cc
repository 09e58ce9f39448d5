#include "daemon/daemon.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <thread>
#include <utility>

#include "base/status.h"
#include "daemon/core/service_core.h"
#include "daemon/health.h"
#include "daemon/http/metrics.h"
#include "daemon/http/server.h"
#include "daemon/rpc/grpc_server.h"
#include "daemon/runtime/asio_executor.h"
#include "daemon/runtime/instance_lock.h"
#include "daemon/runtime/log.h"
#include "daemon/runtime/process_limits.h"
#include "daemon/runtime/supervisor.h"
#include "daemon/startup.h"
#include "daemon/version.h"

namespace firn {
namespace {

constexpr int64_t kTickMs = 50;
constexpr int64_t kColdTickMs = 1000;
constexpr int64_t kSweepMs = 100;
constexpr int64_t kStartExtensionMs = 30'000;
constexpr int64_t kStopWhileStartingMs = 4'000;
constexpr int64_t kStragglersMs = 5'000;
constexpr int64_t kFarewellMs = 200;
constexpr int64_t kStopGraceMs = 15'000;

bool WaitUntil(int64_t limit_ms, const std::function<bool()>& holds) {
  for (int64_t waited_ms = 0; !holds(); ++waited_ms) {
    if (waited_ms >= limit_ms) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

class Daemon {
 public:
  explicit Daemon(DaemonOptions options);
  int Run();

 private:
  ServiceCore::Options CoreOptions();
  // Locks, endpoint, listeners; an exit code when one of them cannot be had.
  std::optional<int> Open();
  void StartTimers();
  void StartUp();
  void OnStore(std::unique_ptr<Store> store);
  void OnSignal(int signal);
  void Reload();
  void BeginStop(int exit_code);
  void StopServing();
  void CloseStore();
  void Tick();
  void TickSlowly();
  // Asks the media for what they owe. On the control loop, which waits for no disk: the executor's threads may.
  void LookAtMedia();
  void FeedWatchdog();
  HttpAnswer AnswerHttp(const std::string& path);
  std::string Metrics();
  // Runs `use(store)` unless the store is not there yet or is going.
  template <typename Use>
  void WithStore(Use use) {
    std::shared_lock lock(store_mu_);
    if (store_ != nullptr && !store_closing_) use(store_.get());
  }

  DaemonOptions options_;
  const Clock* const clock_ = Clock::Real();
  const int64_t started_unix_s_ = std::time(nullptr);
  ControlLoop loop_;
  std::optional<AsioExecutor> executor_, demotion_executor_;
  std::optional<ServiceCore> core_;
  HealthMonitor health_{options_.config.limits.disk_stall_ms};
  std::unique_ptr<InstanceLock> lock_;
  std::unique_ptr<HttpServer> http_;
  std::vector<std::unique_ptr<GrpcListener>> listeners_;
  std::optional<Startup> startup_;
  std::thread startup_thread_, stop_thread_;
  std::atomic<bool> startup_over_{false}, stopping_{false};
  std::atomic<bool> tick_pending_{false}, cold_tick_pending_{false}, executor_alive_{true};
  int exit_code_ = kExitOk;       // Of the control loop's thread.
  std::mutex serving_mu_;         // Health is not set to serving once stopping has begun.
  std::shared_mutex store_mu_;    // Shared by those who use the store.
  std::unique_ptr<Store> store_;  // Guarded by store_mu_.
  bool store_closing_ = false;    // Guarded by store_mu_.
};

Daemon::Daemon(DaemonOptions options) : options_(std::move(options)) {
  executor_.emplace(ThreadsInForce(options_.config));
  demotion_executor_.emplace(ThreadsInForce(options_.config), static_cast<int>(options_.config.store.demotion_nice));
  core_.emplace(CoreOptions());
  startup_.emplace(Startup::Options{.config = &options_.config,
                                    .executor = &*executor_,
                                    .demotion_executor = &*demotion_executor_,
                                    .clock = clock_,
                                    .progress = [this](const std::string& text) {
                                      core_->SetStarting(text);
                                      if (!stopping_ && !startup_over_) NotifyExtendTimeout(kStartExtensionMs, text);
                                    }});
}

ServiceCore::Options Daemon::CoreOptions() {
  ServiceCore::Options core{
      .executor = &*executor_, .clock = clock_, .limits = options_.config.limits, .tiers = {}, .version = kFirnVersion};
  // A block enters by the hottest tier that can hold it: one that fits in no tier before the log is over the limit.
  uint64_t largest = 0;
  for (const TierSettings& tier : options_.config.tiers) {
    if (tier.medium != Medium::kNvme || &tier == &options_.config.tiers[0]) {
      largest = std::max(largest, tier.capacity_bytes);
    }
  }
  core.limits.block_bytes_max = std::min(core.limits.block_bytes_max, largest);
  // The others are for files. A connection too many is refused; a file that cannot be opened is a failing tier.
  core.limits.connections_max =
      static_cast<uint32_t>(std::min<uint64_t>(core.limits.connections_max, DescriptorsMax() / 4 * 3));
  for (const TierSettings& tier : options_.config.tiers) {
    core.tiers.push_back({tier.name, MediumOf(tier), tier.medium == Medium::kNvme, tier.precision, tier.least,
                          tier.capacity_bytes, tier.ecc.ToString()});
  }
  return core;
}

std::optional<int> Daemon::Open() {
  auto lock = InstanceLock::Acquire(options_.config.state_dir + "/firnd.lock");
  if (!lock.ok()) {
    Log(LogLevel::kError, "cannot start", {{"error", Message(lock.status())}});
    return kExitCannotListen;
  }
  lock_ = *std::move(lock);
  if (options_.config.admin_http != "off") {
    auto http = HttpServer::Start(&loop_, options_.config.admin_http,
                                  [this](const std::string& path) { return AnswerHttp(path); });
    if (!http.ok()) {
      Log(LogLevel::kError, "cannot start", {{"error", Message(http.status())}});
      return kExitCannotListen;
    }
    http_ = *std::move(http);
    Log(LogLevel::kInfo, "admin endpoint is up", {{"address", options_.config.admin_http}, {"port", http_->port()}});
  }
  for (const ListenerSettings& settings : options_.config.listeners) {
    auto listener = GrpcListener::Start(&*core_, settings, options_.config.listeners.size());
    if (!listener.ok()) {
      Log(LogLevel::kError, "cannot start", {{"listener", settings.Address()}, {"error", Message(listener.status())}});
      return kExitCannotListen;
    }
    Log(LogLevel::kInfo, "listening",
        {{"address", (*listener)->address()}, {"tenant", settings.tenant}, {"admin", settings.admin}});
    listeners_.push_back(*std::move(listener));
  }
  return std::nullopt;
}

int Daemon::Run() {
  loop_.OnSignals({SIGTERM, SIGINT, SIGHUP}, [this](int signal) { OnSignal(signal); });
  if (auto failed = Open(); failed.has_value()) return *failed;
  StartTimers();
  startup_thread_ = std::thread([this] { StartUp(); });
  loop_.Run();
  startup_thread_.join();
  stop_thread_.join();
  http_.reset();
  // What is still posted runs while everything it refers to is there; demotions post to the other pool.
  demotion_executor_.reset();
  executor_.reset();
  return exit_code_;
}

void Daemon::StartTimers() {
  loop_.Every(kTickMs, [this] { Tick(); });
  loop_.Every(kColdTickMs, [this] {
    LookAtMedia();
    TickSlowly();
  });
  loop_.Every(kSweepMs, [this] { core_->Sweep(); });
  if (int64_t interval_ms = WatchdogIntervalMs(); interval_ms > 0) {
    loop_.Every(interval_ms, [this] { FeedWatchdog(); });
  }
}

void Daemon::Tick() {
  if (tick_pending_.exchange(true)) return;  // The last one has not run yet.
  executor_->Post([this] {
    WithStore([](Store* store) { store->Tick(); });
    tick_pending_ = false;
  });
}

void Daemon::TickSlowly() {
  if (cold_tick_pending_.exchange(true)) return;
  executor_->Post([this] {
    WithStore([this](Store* store) {
      health_.Observe(store->Stats(), clock_->NowNs());
      for (ColdTier* cold : startup_->cold_tiers()) {
        cold->Tick();
        ColdHealth health = cold->Health();
        health_.SetMediumTrouble(cold->name(), health.state == ColdState::kOk ? "" : health.reason);
      }
      for (GpuTier* gpu : startup_->gpu_tiers()) {
        GpuLink::Stats link = gpu->LinkStats();
        health_.SetMediumTrouble(gpu->name(), link.up ? "" : "no GPU child serves: " + link.last_failure);
      }
    });
    cold_tick_pending_ = false;
  });
}

void Daemon::LookAtMedia() {
  WithStore([this](Store*) {
    for (ColdTier* cold : startup_->cold_tiers()) {
      auto oldest = cold->OldestIo();
      if (!health_.SetOldestIo(cold->name(), oldest)) continue;
      Log(LogLevel::kWarning, "the medium of a tier began or ceased to hang",
          {{"tier", cold->name()},
           {"oldest", oldest.has_value() ? oldest->what : "none"},
           {"waiting_ms", oldest.has_value() ? oldest->age_ns / 1'000'000 : 0},
           {"disk_stall_ms", options_.config.limits.disk_stall_ms}});
    }
  });
}

// Alive means that the executor runs what is posted, not only that a timer does.
void Daemon::FeedWatchdog() {
  if (!executor_alive_.exchange(false)) return;
  NotifyAlive();
  executor_->Post([this] { executor_alive_ = true; });
}

void Daemon::StartUp() {
  auto store = startup_->Run();
  if (!store.ok()) {
    startup_over_ = true;
    bool cancelled = store.status().code() == absl::StatusCode::kCancelled;
    if (!cancelled) Log(LogLevel::kError, "cannot start", {{"error", Message(store.status())}});
    // The directory of a tier is in use.
    bool another = store.status().code() == absl::StatusCode::kAlreadyExists;
    int code = cancelled ? kExitOk : another ? kExitCannotListen : kExitTierFailed;
    loop_.Post([this, code] { BeginStop(code); });
    return;
  }
  OnStore(*std::move(store));
  absl::Status populated = startup_->PopulateRest();
  startup_over_ = true;
  if (!populated.ok() && populated.code() != absl::StatusCode::kCancelled) {
    Log(LogLevel::kError, "cannot take the memory configured", {{"error", Message(populated)}});
    loop_.Post([this] { BeginStop(kExitTierFailed); });
  }
}

void Daemon::OnStore(std::unique_ptr<Store> store) {
  Store* serving = store.get();
  {
    std::lock_guard lock(store_mu_);
    store_ = std::move(store);
  }
  std::lock_guard lock(serving_mu_);
  if (stopping_) return;
  core_->SetStore(serving);
  for (const auto& listener : listeners_) listener->SetServing(true);
  StoreStats stats = serving->Stats();
  Log(LogLevel::kInfo, "ready", {{"blocks", stats.blocks}, {"namespaces", stats.namespaces}});
  NotifyReady("serving");
}

void Daemon::OnSignal(int signal) {
  if (signal == SIGHUP) return Reload();
  if (stopping_) {
    Log(LogLevel::kInfo, "stopping already", {{"signal", signal}});
    return;
  }
  Log(LogLevel::kInfo, "stopping", {{"signal", signal}, {"budget_ms", options_.config.shutdown_budget_ms}});
  BeginStop(kExitOk);
}

void Daemon::Reload() {
  if (options_.config_path.empty()) {
    Log(LogLevel::kInfo, "nothing to reload: started without a configuration file");
    return;
  }
  auto next = LoadConfig(options_.config_path, options_.places);
  if (!next.ok()) {
    Log(LogLevel::kError, "the configuration was not reloaded", {{"error", Message(next.status())}});
    return;
  }
  for (const std::string& difference : UnchangeableDifferences(options_.config, *next)) {
    Log(LogLevel::kWarning, "a changed setting was not taken over", {{"setting", difference}});
  }
  options_.config.log_level = next->log_level;
  options_.config.shutdown_budget_ms = next->shutdown_budget_ms;
  ConfigureLog(options_.config.log_level, options_.config.log_format);
  Log(LogLevel::kInfo, "reloaded: log.level and shutdown.budget are in force",
      {{"level", next->log_level}, {"budget_ms", next->shutdown_budget_ms}});
}

void Daemon::BeginStop(int exit_code) {
  if (stopping_.exchange(true)) return;
  exit_code_ = exit_code;
  NotifyStopping("draining");
  NotifyExtendTimeout(options_.config.shutdown_budget_ms + kStopGraceMs, "draining");
  core_->StopServing();
  {
    std::lock_guard lock(serving_mu_);
    for (const auto& listener : listeners_) listener->SetServing(false);
  }
  startup_->Stop();
  if (!startup_over_) {
    // Nothing is lost by leaving in the middle of a start; waiting for a tier that takes long to open helps nobody.
    loop_.After(kStopWhileStartingMs, [this] {
      if (startup_over_) return;
      Log(LogLevel::kWarning, "leaving while starting");
      std::_Exit(exit_code_);
    });
  }
  // Whatever hangs, the daemon is gone before the supervisor loses patience; the cold log is made for it.
  loop_.After(options_.config.shutdown_budget_ms + kStopGraceMs, [this] {
    Log(LogLevel::kError, "stopping took too long; leaving as it is");
    std::_Exit(kExitOsError);
  });
  stop_thread_ = std::thread([this] {
    StopServing();
    CloseStore();
    loop_.Stop();
  });
}

// Streams that are idle end by themselves (core.Sweep); what is under way gets a part of the budget. Then the servers
// close: they would wait for every client to take leave, and one that is busy with something else does not.
void Daemon::StopServing() {
  WaitUntil(options_.config.shutdown_budget_ms / 4, [this] { return core_->live_calls() == 0; });
  for (auto& listener : listeners_) listener->Shutdown(kFarewellMs);
  WaitUntil(kStragglersMs, [this] { return core_->live_calls() == 0; });
}

void Daemon::CloseStore() {
  while (!startup_over_) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  Store* store = store_.get();  // Nobody sets it any more.
  if (store == nullptr) return;
  auto wait = [](auto start) {
    std::mutex mu;
    std::condition_variable changed;
    std::optional<absl::Status> result;
    start([&](absl::Status status) {
      std::lock_guard lock(mu);
      result = std::move(status);
      changed.notify_one();
    });
    std::unique_lock lock(mu);
    changed.wait(lock, [&] { return result.has_value(); });
    return *result;
  };
  absl::Status drained =
      wait([&](auto done) { store->Shutdown(options_.config.shutdown_budget_ms * 3 / 4, std::move(done)); });
  StoreStats stats = store->Stats();
  {
    std::lock_guard lock(store_mu_);
    store_closing_ = true;
  }
  absl::Status closed = absl::OkStatus();
  for (ColdTier* cold : startup_->cold_tiers()) {
    cold->SetEvents(nullptr);
    closed.Update(wait([&](auto done) { cold->Close(std::move(done)); }));
  }
  for (GpuTier* gpu : startup_->gpu_tiers()) gpu->Shutdown();
  listeners_.clear();
  bool clean = drained.ok() && closed.ok();
  Log(clean ? LogLevel::kInfo : LogLevel::kWarning, "stopped",
      {{"dropped_blocks", stats.shutdown_dropped}, {"drain", drained.ToString()}, {"close", closed.ToString()}});
  // What gRPC still holds of blocks, a callback that never came, or a task that is still to run must not find the store
  // gone. All is on the medium.
  auto over = [&] {
    StoreStats left = store->Stats();
    return left.readers == 0 && left.moves_in_flight == 0 && left.heals_in_flight == 0 && core_->live_calls() == 0;
  };
  if (!WaitUntil(kStragglersMs, over)) {
    Log(LogLevel::kWarning, "leaving with calls that did not end",
        {{"calls", core_->live_calls()}, {"readers", store->Stats().readers}});
    std::_Exit(exit_code_);
  }
  demotion_executor_->Drain();
  executor_->Drain();
  std::unique_ptr<Store> gone;
  {
    std::lock_guard lock(store_mu_);
    gone = std::move(store_);
  }
  gone.reset();  // Outside the lock: a tier waits for the executor, whose tasks may wait for the lock.
}

HttpAnswer Daemon::AnswerHttp(const std::string& path) {
  if (path == "/metrics") return {200, "text/plain; version=0.0.4; charset=utf-8", Metrics()};
  if (path == "/readyz") {
    if (core_->state() == ServiceCore::State::kServing) return {200, "text/plain; charset=utf-8", "ready\n"};
    bool starting = core_->state() == ServiceCore::State::kStarting;
    return {503, "text/plain; charset=utf-8", starting ? "starting: " + core_->progress() + "\n" : "stopping\n"};
  }
  if (path == "/healthz") {
    LookAtMedia();
    return {200, "text/plain; charset=utf-8", health_.Text(clock_->NowNs())};
  }
  return {404, "text/plain; charset=utf-8", "known: /metrics /healthz /readyz\n"};
}

std::string Daemon::Metrics() {
  MetricsInput input;
  input.core = &*core_;
  input.config = &options_.config;
  input.started_unix_s = started_unix_s_;
  LookAtMedia();
  for (const auto& trouble : health_.Troubles(clock_->NowNs())) input.unhealthy.push_back(trouble.tier);
  StoreStats stats = ZeroStats(options_.config);
  WithStore([&](Store* store) {
    stats = store->Stats();
    size_t cold = 0;
    for (const TierSettings& tier : options_.config.tiers) {
      bool file = tier.medium == Medium::kNvme;
      input.io_backends.emplace_back(file ? startup_->cold_tiers()[cold++]->device().backend() : std::string_view());
    }
  });
  WithStore([&](Store*) {
    for (GpuTier* gpu : startup_->gpu_tiers()) input.gpus.emplace_back(gpu->name(), gpu->LinkStats());
  });
  input.stats = &stats;
  return MetricsText(input);
}

}  // namespace

int RunDaemon(DaemonOptions options) {
  ConfigureLog(options.config.log_level, options.config.log_format);
  PrepareProcess();
  Daemon daemon(std::move(options));
  return daemon.Run();
}

}  // namespace firn
