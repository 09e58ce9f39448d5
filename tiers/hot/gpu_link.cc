#include "tiers/hot/gpu_link.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/status.h"
#include "tiers/hot/protocol/channel.h"

namespace firn {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;
constexpr int kPollMs = 50;
// A child that served so long starts over with the first back-off.
constexpr int64_t kLastedMs = 10'000;

int64_t NowMs() { return Clock::Real()->NowNs() / kNsPerMs; }

}  // namespace

struct GpuLink::State {
  explicit State(Options o) : options(std::move(o)) {}

  struct Waiting {
    Done done;
    int64_t since_ms = 0;
  };
  struct Outgoing {
    gpu::Job job;
    std::vector<std::shared_ptr<const Artifact>> artifacts;
  };

  const Options options;
  UniqueFd wake;
  std::thread thread;

  mutable std::mutex mu;
  std::condition_variable stopping_changed;
  // Guarded by mu.
  bool stopping = false;
  Stats stats;
  uint64_t last_job = 0;
  std::vector<Outgoing> outgoing;
  absl::flat_hash_map<uint64_t, Waiting> waiting;

  // Of the link's thread.
  std::set<Digest> sent_artifacts;
  std::vector<uint64_t> told_usable;
  int64_t patience_checked_ms = 0;

  void Wake() const {
    uint64_t one = 1;
    [[maybe_unused]] ssize_t ignored = ::write(wake.get(), &one, sizeof(one));
  }
  void Notice(const std::string& text) const {
    if (options.notice) options.notice(text);
  }
  void Loop();
  // One child from start to end; why it ended.
  absl::Status Serve();
  absl::StatusOr<gpu::Ready> GetReady(gpu::Channel* channel);
  absl::Status SendRegions(gpu::Channel* channel);
  absl::Status SendUsable(gpu::Channel* channel);
  absl::Status SendJobs(gpu::Channel* channel);
  absl::Status Hear(gpu::Channel* channel);
  absl::Status CheckPatience();
  bool Stopping() const {
    std::lock_guard lock(mu);
    return stopping;
  }
  // Waits for either end to have something to do.
  void Poll(const gpu::Channel& channel) const;
  // What the job's end is to be told to, whose turn it is now; null where no such job waits.
  Done Take(uint64_t id, bool failed);
  void FailAll(const absl::Status& why);
  void PauseMs(int64_t pause_ms);
};

GpuLink::GpuLink(Options options) : state_(std::make_unique<State>(std::move(options))) {
  FIRN_CHECK(state_->options.regions.size() < gpu::kRegionsMax);
  state_->wake = UniqueFd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  FIRN_CHECK(state_->wake.valid());
}

GpuLink::~GpuLink() { Stop(); }

void GpuLink::Start() {
  FIRN_CHECK(!state_->thread.joinable());
  state_->thread = std::thread([state = state_.get()] { state->Loop(); });
}

void GpuLink::Stop() {
  {
    std::lock_guard lock(state_->mu);
    state_->stopping = true;
  }
  state_->stopping_changed.notify_all();
  state_->Wake();
  if (state_->thread.joinable()) state_->thread.join();
}

bool GpuLink::Locate(const uint8_t* data, uint64_t bytes, std::vector<gpu::Place>* places) const {
  const auto& regions = state_->options.regions;
  for (size_t i = 0; i < regions.size(); ++i) {
    const GpuRegion& region = regions[i];
    if (data < region.base || bytes > region.bytes || data > region.base + (region.bytes - bytes)) continue;
    places->push_back({static_cast<uint32_t>(i + 1), static_cast<uint64_t>(data - region.base), bytes});
    return true;
  }
  return false;
}

void GpuLink::Run(uint64_t epoch, gpu::Lane lane, decltype(gpu::Job::work) work,
                  std::vector<std::shared_ptr<const Artifact>> artifacts, Done done) {
  bool told = false;  // The link's thread has been woken for those before and takes this one with them.
  {
    std::lock_guard lock(state_->mu);
    ++state_->stats.jobs;
    if (state_->stats.up && state_->stats.epoch == epoch && !state_->stopping) {
      uint64_t id = ++state_->last_job;
      state_->waiting.emplace(id, State::Waiting{std::move(done), NowMs()});
      told = !state_->outgoing.empty();
      state_->outgoing.push_back({{id, lane, std::move(work)}, std::move(artifacts)});
      state_->stats.jobs_waiting = state_->waiting.size();
      done = nullptr;
    } else {
      ++state_->stats.jobs_failed;
    }
  }
  if (done != nullptr) return done(Unavailable("{}: the GPU child that this was for is gone", state_->options.name));
  if (!told) state_->Wake();
}

GpuLink::Stats GpuLink::GetStats() const {
  std::lock_guard lock(state_->mu);
  return state_->stats;
}

void GpuLink::State::Loop() {
  int64_t backoff_ms = options.backoff_first_ms;
  while (!Stopping()) {
    int64_t since_ms = NowMs();
    absl::Status why = Serve();
    if (Stopping()) break;
    {
      std::lock_guard lock(mu);
      ++stats.deaths;
      stats.last_failure = Message(why);
    }
    if (NowMs() - since_ms >= kLastedMs) backoff_ms = options.backoff_first_ms;
    Notice(fmt::format("the GPU child ended: {}; the next starts in {} ms", Message(why), backoff_ms));
    PauseMs(backoff_ms);
    backoff_ms = std::min(backoff_ms * 2, options.backoff_max_ms);
  }
  FailAll(Unavailable("{}: stopped", options.name));
}

absl::Status GpuLink::State::Serve() {
  {
    std::lock_guard lock(mu);
    ++stats.starts;
  }
  FIRN_ASSIGN_OR_RETURN(std::unique_ptr<GpuChild> child, options.start());
  gpu::Channel channel(child->TakeSocket());
  sent_artifacts.clear();
  told_usable.assign(options.regions.size(), 0);
  FIRN_ASSIGN_OR_RETURN(gpu::Ready ready, GetReady(&channel));
  FIRN_RETURN_IF_ERROR(SendRegions(&channel));
  uint64_t epoch = 0;
  {
    std::lock_guard lock(mu);
    epoch = ++stats.epoch;
    stats.up = true;
    stats.pid = child->pid();
    stats.device = ready.device;
  }
  Notice(fmt::format("a GPU child serves: {}, a pool of {} bytes", ready.device, ready.pool_bytes));
  if (options.on_up) options.on_up(epoch, ready);
  absl::Status why;
  while (why.ok() && !Stopping()) {
    Poll(channel);
    why = SendUsable(&channel);
    if (why.ok()) why = SendJobs(&channel);
    if (why.ok()) why = Hear(&channel);
    if (why.ok()) why = CheckPatience();
  }
  if (why.ok()) why = Unavailable("{}: stopped", options.name);
  {
    std::lock_guard lock(mu);
    stats.up = false;
    stats.pid = 0;
    if (!stopping) stats.last_failure = Message(why);  // Known to whoever hears of the death by a job's end.
  }
  // Its copies are gone whatever happens; a process that a driver holds may take long to die. Jobs end after it: until
  // then it may write where they said.
  if (options.on_down) options.on_down(epoch, why);
  child.reset();
  FailAll(Unavailable("{}: the GPU child died: {}", options.name, Message(why)));
  return why;
}

void GpuLink::State::Poll(const gpu::Channel& channel) const {
  pollfd polled[] = {{channel.fd(), static_cast<short>(POLLIN | (channel.unsent() ? POLLOUT : 0)), 0},
                     {wake.get(), POLLIN, 0}};
  ::poll(polled, 2, kPollMs);
  if (polled[1].revents != 0) {
    uint64_t count = 0;
    [[maybe_unused]] ssize_t ignored = ::read(wake.get(), &count, sizeof(count));
  }
}

absl::StatusOr<gpu::Ready> GpuLink::State::GetReady(gpu::Channel* channel) {
  gpu::Hello hello;
  hello.device = options.device;
  hello.pool_bytes = options.pool_bytes;
  hello.scratch_bytes = options.scratch_bytes;
  FIRN_RETURN_IF_ERROR(channel->Queue(hello));
  int64_t since_ms = NowMs();
  while (!Stopping()) {
    FIRN_RETURN_IF_ERROR(channel->Flush());
    FIRN_ASSIGN_OR_RETURN(bool open, channel->Receive());
    FIRN_ASSIGN_OR_RETURN(auto received, channel->Next());
    if (received.has_value()) {
      if (const auto* fatal = std::get_if<gpu::Fatal>(&received->message)) {
        return Unavailable("no GPU to be had: {} (CUDA {})", fatal->message, fatal->code);
      }
      const auto* ready = std::get_if<gpu::Ready>(&received->message);
      if (ready == nullptr) return InternalError("a first message of type {}", received->message.index() + 1);
      if (ready->version != gpu::kProtocolVersion) {
        return FailedPrecondition("the GPU child speaks version {}, this is version {}", ready->version,
                                  gpu::kProtocolVersion);
      }
      if (ready->pool_bytes > options.pool_bytes) {
        return InternalError("a pool of {} bytes, {} asked for", ready->pool_bytes, options.pool_bytes);
      }
      return *ready;
    }
    if (!open) return Unavailable("it ended before it was ready");
    if (NowMs() - since_ms > options.ready_timeout_ms) {
      return absl::DeadlineExceededError(fmt::format("it was not ready after {} ms", options.ready_timeout_ms));
    }
    Poll(*channel);
  }
  return Unavailable("stopped");
}

absl::Status GpuLink::State::SendRegions(gpu::Channel* channel) {
  for (size_t i = 0; i < options.regions.size(); ++i) {
    const GpuRegion& region = options.regions[i];
    told_usable[i] = region.usable_bytes();
    gpu::MapRegion message{static_cast<uint32_t>(i + 1), region.bytes, told_usable[i]};
    FIRN_RETURN_IF_ERROR(channel->Queue(message, region.fd));
  }
  return channel->Flush();
}

absl::Status GpuLink::State::SendUsable(gpu::Channel* channel) {
  for (size_t i = 0; i < options.regions.size(); ++i) {
    uint64_t usable = options.regions[i].usable_bytes();
    if (usable == told_usable[i]) continue;
    told_usable[i] = usable;
    FIRN_RETURN_IF_ERROR(channel->Queue(gpu::RegionUsable{static_cast<uint32_t>(i + 1), usable}));
  }
  return channel->Flush();
}

absl::Status GpuLink::State::SendJobs(gpu::Channel* channel) {
  std::vector<Outgoing> jobs;
  {
    std::lock_guard lock(mu);
    jobs = std::exchange(outgoing, {});
  }
  if (jobs.empty()) return channel->Flush();
  // What these jobs name was usable when they were made: the child hears of it first.
  FIRN_RETURN_IF_ERROR(SendUsable(channel));
  for (Outgoing& out : jobs) {
    for (const auto& artifact : out.artifacts) {
      if (artifact == nullptr || !sent_artifacts.insert(artifact->digest()).second) continue;
      FIRN_RETURN_IF_ERROR(channel->Queue(gpu::ArtifactData{artifact->serialized()}));
    }
    uint64_t id = out.job.id;
    absl::Status queued = channel->Queue(std::move(out.job));
    // Too much waits to be sent: that is this job's misfortune, not the child's.
    if (!queued.ok()) {
      if (Done done = Take(id, /*failed=*/true)) done(queued);
    }
    FIRN_RETURN_IF_ERROR(channel->Flush());
  }
  return channel->Flush();
}

GpuLink::Done GpuLink::State::Take(uint64_t id, bool failed) {
  std::lock_guard lock(mu);
  auto it = waiting.find(id);
  if (it == waiting.end()) return nullptr;
  Done done = std::move(it->second.done);
  waiting.erase(it);
  stats.jobs_waiting = waiting.size();
  stats.jobs_failed += failed ? 1 : 0;
  return done;
}

absl::Status GpuLink::State::Hear(gpu::Channel* channel) {
  FIRN_ASSIGN_OR_RETURN(bool open, channel->Receive());
  for (;;) {
    FIRN_ASSIGN_OR_RETURN(auto received, channel->Next());
    if (!received.has_value()) break;
    if (const auto* fatal = std::get_if<gpu::Fatal>(&received->message)) {
      return Unavailable("{} (CUDA {})", fatal->message, fatal->code);
    }
    auto* answer = std::get_if<gpu::JobDone>(&received->message);
    if (answer == nullptr) return InternalError("a message of type {}", received->message.index() + 1);
    Done done = Take(answer->id, !answer->status.ok());
    if (done == nullptr) return InternalError("an answer to job {}, which nobody asked for", answer->id);
    if (answer->status.ok()) {
      done(std::move(answer->payload));
    } else {
      // Nobody else keeps it: its users count themselves in code that race detectors do not see.
      done(std::move(answer->status));
    }
  }
  return open ? absl::OkStatus() : Unavailable("the process ended");
}

// All jobs that wait are looked at: once a poll, not after each message.
absl::Status GpuLink::State::CheckPatience() {
  int64_t now_ms = NowMs();
  if (now_ms - patience_checked_ms < kPollMs) return absl::OkStatus();
  patience_checked_ms = now_ms;
  std::lock_guard lock(mu);
  for (const auto& [id, job] : waiting) {
    if (now_ms - job.since_ms > options.job_timeout_ms) {
      return absl::DeadlineExceededError(fmt::format("job {} has had no answer for {} ms", id, now_ms - job.since_ms));
    }
  }
  return absl::OkStatus();
}

void GpuLink::State::FailAll(const absl::Status& why) {
  absl::flat_hash_map<uint64_t, Waiting> failed;
  {
    std::lock_guard lock(mu);
    failed = std::exchange(waiting, {});
    outgoing.clear();
    stats.jobs_failed += failed.size();
    stats.jobs_waiting = 0;
  }
  for (auto& [id, job] : failed) job.done(why);
}

void GpuLink::State::PauseMs(int64_t pause_ms) {
  std::unique_lock lock(mu);
  stopping_changed.wait_for(lock, std::chrono::milliseconds(pause_ms), [this] { return stopping; });
}

}  // namespace firn
