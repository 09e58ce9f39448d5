#include "daemon/gpu/cuda_lane.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "daemon/gpu/cuda_check.h"
#include "kernels/checksum.h"

namespace firn::gpu {

absl::StatusOr<std::unique_ptr<CudaLane>> CudaLane::Create(LaneOptions options) {
  std::unique_ptr<CudaLane> lane(new CudaLane(std::move(options)));
  FIRN_RETURN_IF_ERROR(CudaStatus(
      cudaStreamCreateWithPriority(&lane->out_, cudaStreamNonBlocking, lane->options_.priority), "make a stream"));
  for (size_t i = 0; i < kSlots && lane->options_.slot_bytes > 0; ++i) {
    FIRN_ASSIGN_OR_RETURN(auto slot, ScratchSlot::Create(lane->options_.slot_bytes, lane->options_.priority));
    lane->free_slots_.push_back(slot.get());
    lane->slots_.push_back(std::move(slot));
  }
  for (size_t i = 0; i < kAnswerSlots && lane->options_.slot_bytes > 0; ++i) {
    FIRN_ASSIGN_OR_RETURN(auto answer, AnswerSlot::Create());
    lane->free_answers_.push_back(answer.get());
    lane->answers_.push_back(std::move(answer));
  }
  for (size_t i = 0; i < kCopiesInFlightMax; ++i) {
    cudaEvent_t event = nullptr;
    FIRN_RETURN_IF_ERROR(
        CudaStatus(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync), "make an event"));
    lane->free_events_.push_back(event);
  }
  if (lane->options_.slot_bytes > 0) {
    lane->finishers_ = std::make_unique<ThreadPoolExecutor>(lane->options_.finishers);
  }
  lane->issuer_ = std::thread([l = lane.get()] { l->IssueLoop(); });
  lane->answerer_ = std::thread([l = lane.get()] { l->AnswerLoop(); });
  return lane;
}

CudaLane::~CudaLane() {
  {
    std::lock_guard lock(mu_);
    stopping_ = true;
  }
  jobs_changed_.notify_one();
  if (issuer_.joinable()) issuer_.join();
  if (answerer_.joinable()) answerer_.join();
  finishers_.reset();  // Runs what was posted.
  for (cudaEvent_t event : free_events_) cudaEventDestroy(event);
  if (out_ != nullptr) cudaStreamDestroy(out_);
}

void CudaLane::Add(Job job) {
  {
    std::lock_guard lock(mu_);
    jobs_.push_back(std::move(job));
  }
  jobs_changed_.notify_one();
}

bool CudaLane::Lost(cudaError_t error, const char* what) {
  if (!IsSticky(error)) return false;
  bool first = false;
  {
    std::lock_guard lock(mu_);
    first = !std::exchange(lost_, true);
  }
  for (auto* changed : {&jobs_changed_, &room_changed_, &flights_changed_}) changed->notify_one();
  if (first) options_.events.on_fatal({static_cast<int32_t>(error), firn::Message(CudaStatus(error, what))});
  return true;
}

void CudaLane::IssueLoop() {
  cudaSetDevice(options_.device);
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mu_);
      jobs_changed_.wait(lock, [this] { return stopping_ || lost_ || !jobs_.empty(); });
      if (stopping_ || lost_) {
        issued_all_ = true;
        flights_changed_.notify_one();
        return;
      }
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    if (options_.faulty()) {
      // A stray pointer in a kernel's parameters is how these happen.
      uint8_t* nowhere = reinterpret_cast<uint8_t*>(uint64_t{0xDEAD} << 32);
      kernels::ChecksumJob stray;
      stray.blocks = 1;
      stray.run_bytes = stray.check_bytes = 4096;
      stray.run.base = nowhere;
      stray.seeds = reinterpret_cast<const uint64_t*>(nowhere);
      stray.checks = reinterpret_cast<uint64_t*>(nowhere);
      (void)kernels::ChecksumRuns(stray, out_);
    }
    if (std::holds_alternative<CopyJob>(job.work)) {
      IssueCopies(std::move(job));
    } else {
      IssueRecodes(std::move(job));
    }
  }
}

void CudaLane::Fly(std::shared_ptr<Flight> flight) {
  {
    std::lock_guard lock(mu_);
    if (flight->slot != nullptr) flying_blocks_ += flight->ids.size();
    flights_.push_back(std::move(flight));
  }
  flights_changed_.notify_one();
}

cudaEvent_t CudaLane::TakeEvent() {
  std::unique_lock lock(mu_);
  room_changed_.wait(lock, [this] { return lost_ || !free_events_.empty(); });
  if (lost_) return nullptr;
  cudaEvent_t event = free_events_.back();
  free_events_.pop_back();
  return event;
}

bool CudaLane::TakeSlots(Flight* flight) {
  std::unique_lock lock(mu_);
  room_changed_.wait(lock, [this] { return lost_ || (!free_slots_.empty() && !free_answers_.empty()); });
  if (lost_) return false;
  flight->slot = free_slots_.back();
  free_slots_.pop_back();
  flight->answer = free_answers_.back();
  free_answers_.pop_back();
  return true;
}

void CudaLane::IssueCopies(Job first) {
  auto flight = std::make_shared<Flight>();
  flight->done = TakeEvent();
  if (flight->done == nullptr) return;
  CopyList list(options_.pool, options_.regions);
  uint64_t bytes = 0;
  for (Job job = std::move(first);;) {
    const auto& copy = std::get<CopyJob>(job.work);
    flight->ids.push_back(job.id);
    list.Add(copy.source, copy.target);
    bytes += TotalBytes(copy.source);
    std::lock_guard lock(mu_);
    if (bytes >= kTogetherBytesMax || jobs_.empty() || !std::holds_alternative<CopyJob>(jobs_.front().work)) break;
    job = std::move(jobs_.front());
    jobs_.pop_front();
  }
  flight->refused = list.Enqueue(out_);
  // What was enqueued before an error must be over before the job's memory is used for something else.
  cudaError_t recorded = cudaEventRecord(flight->done, out_);
  if (flight->refused.ok()) flight->refused = CudaStatus(recorded, "record an event");
  Fly(std::move(flight));
}

std::vector<RecodeTask> CudaLane::TakeAlike(RecodeTask first, size_t limit) {
  std::vector<RecodeTask> tasks;
  tasks.push_back(std::move(first));
  while (tasks.size() < limit) {
    Job* waiting = nullptr;
    {
      std::lock_guard lock(mu_);
      if (jobs_.empty() || !std::holds_alternative<RecodeJob>(jobs_.front().work)) break;
      waiting = &jobs_.front();  // It stays where it is until this thread takes it.
    }
    RecodeTask next;
    next.id = waiting->id;
    auto recoding = ParseRecoding(std::get<RecodeJob>(waiting->work));
    if (!recoding.ok()) break;  // Answered when its turn comes.
    next.recoding = *std::move(recoding);
    if (!RecodeBatch::Alike(tasks[0], next)) break;
    next.job = std::move(std::get<RecodeJob>(waiting->work));
    tasks.push_back(std::move(next));
    std::lock_guard lock(mu_);
    jobs_.pop_front();
  }
  return tasks;
}

void CudaLane::IssueRecodes(Job first) {
  RecodeTask task{first.id, std::move(std::get<RecodeJob>(first.work)), {}};
  auto flight = std::make_shared<Flight>();
  flight->ids = {task.id};
  auto recoding = ParseRecoding(task.job);
  if (!recoding.ok() || options_.slot_bytes == 0) {
    flight->refused = recoding.ok() ? Unimplemented("this lane only copies") : recoding.status();
    return Fly(std::move(flight));
  }
  task.recoding = *std::move(recoding);
  absl::Status why;
  size_t fit = RecodeBatch::BlocksThatFit(task, *slots_[0], &why);
  if (fit == 0) {
    flight->refused = why;
    return Fly(std::move(flight));
  }
  if (!TakeSlots(flight.get())) return;
  {
    // A fair share of what is under way, so that the slots overlap instead of taking turns.
    std::lock_guard lock(mu_);
    size_t share = (flying_blocks_ + jobs_.size() + 1 + kSlots - 1) / kSlots;
    fit = std::min(fit, std::max(share, RecodeBatch::BlocksWorthwhile(task)));
  }
  std::vector<RecodeTask> tasks = TakeAlike(std::move(task), fit);
  flight->ids.clear();
  for (const RecodeTask& t : tasks) flight->ids.push_back(t.id);
  flight->batch = std::make_unique<RecodeBatch>(options_.pool, options_.regions, options_.artifacts);
  flight->done = flight->slot->done();
  flight->refused = flight->batch->Enqueue(std::move(tasks), flight->slot, flight->answer, &transforms_, out_);
  if (!flight->refused.ok()) {
    (void)flight->slot->Join(out_);
    cudaEventRecord(flight->done, out_);
  }
  Fly(std::move(flight));
}

void CudaLane::Land(const Flight& flight) {
  {
    std::lock_guard lock(mu_);
    if (flight.slot != nullptr) {
      free_slots_.push_back(flight.slot);
    } else if (flight.done != nullptr) {
      free_events_.push_back(flight.done);
    }
  }
  room_changed_.notify_one();
}

void CudaLane::FreeAnswer(const Flight& flight) {
  if (flight.answer == nullptr) return;
  {
    std::lock_guard lock(mu_);
    free_answers_.push_back(flight.answer);
    flying_blocks_ -= flight.ids.size();
  }
  room_changed_.notify_one();
}

void CudaLane::Finish(const std::shared_ptr<Flight>& flight) {
  const size_t each = flight->batch->measures_per_block(), blocks = flight->ids.size();
  flight->unmeasured = std::vector<std::atomic<size_t>>(blocks);
  for (auto& unmeasured : flight->unmeasured) unmeasured = each;
  flight->unfinished = blocks;
  for (size_t i = 0; i < std::min(options_.finishers, each * blocks); ++i) {
    finishers_->Post([this, flight] { FinishUnits(flight.get()); });
  }
}

void CudaLane::FinishUnits(Flight* flight) {
  const size_t each = flight->batch->measures_per_block(), units = each * flight->ids.size();
  for (size_t unit = flight->next_unit++; unit < units; unit = flight->next_unit++) {
    flight->batch->Measure(unit);
    if (--flight->unmeasured[unit / each] > 0) continue;
    options_.events.on_done(flight->batch->Finish(unit / each));
    if (--flight->unfinished == 0) FreeAnswer(*flight);
  }
}

void CudaLane::AnswerLoop() {
  cudaSetDevice(options_.device);
  for (;;) {
    std::shared_ptr<Flight> flight;
    {
      std::unique_lock lock(mu_);
      flights_changed_.wait(lock, [this] { return lost_ || !flights_.empty() || issued_all_; });
      if (lost_ || flights_.empty()) return;
      flight = std::move(flights_.front());
      flights_.pop_front();
    }
    if (flight->done != nullptr) {
      cudaError_t error = cudaEventSynchronize(flight->done);
      if (error == cudaSuccess) error = cudaPeekAtLastError();
      if (Lost(error, "a job")) return;
      if (flight->refused.ok()) flight->refused = CudaStatus(error, "a job");
    }
    Land(*flight);
    if (flight->refused.ok() && flight->batch != nullptr) {
      Finish(flight);
      continue;
    }
    for (uint64_t id : flight->ids) options_.events.on_done({id, flight->refused, {}});
    FreeAnswer(*flight);
  }
}

}  // namespace firn::gpu
