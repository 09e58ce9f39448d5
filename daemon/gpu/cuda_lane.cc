#include "daemon/gpu/cuda_lane.h"

#include <utility>

#include "base/status.h"
#include "daemon/gpu/cuda_check.h"
#include "kernels/checksum.h"

namespace firn::gpu {

absl::StatusOr<std::unique_ptr<CudaLane>> CudaLane::Create(LaneOptions options) {
  std::unique_ptr<CudaLane> lane(new CudaLane(std::move(options)));
  for (cudaStream_t* stream : {&lane->work_, &lane->out_}) {
    FIRN_RETURN_IF_ERROR(CudaStatus(
        cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, lane->options_.priority), "make a stream"));
  }
  for (size_t i = 0; i < kSlots && lane->options_.slot_bytes > 0; ++i) {
    FIRN_ASSIGN_OR_RETURN(auto slot, ScratchSlot::Create(lane->options_.slot_bytes));
    lane->free_slots_.push_back(slot.get());
    lane->slots_.push_back(std::move(slot));
  }
  for (size_t i = 0; i < kCopiesInFlightMax; ++i) {
    cudaEvent_t event = nullptr;
    FIRN_RETURN_IF_ERROR(
        CudaStatus(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync), "make an event"));
    lane->free_events_.push_back(event);
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
  changed_.notify_all();
  if (issuer_.joinable()) issuer_.join();
  if (answerer_.joinable()) answerer_.join();
  for (cudaEvent_t event : free_events_) cudaEventDestroy(event);
  if (work_ != nullptr) cudaStreamDestroy(work_);
  if (out_ != nullptr) cudaStreamDestroy(out_);
}

void CudaLane::Add(Job job) {
  {
    std::lock_guard lock(mu_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
}

bool CudaLane::Lost(cudaError_t error, const char* what) {
  if (!IsSticky(error)) return false;
  bool first = false;
  {
    std::lock_guard lock(mu_);
    first = !std::exchange(lost_, true);
  }
  changed_.notify_all();
  if (first) options_.events.on_fatal({static_cast<int32_t>(error), firn::Message(CudaStatus(error, what))});
  return true;
}

void CudaLane::IssueLoop() {
  cudaSetDevice(options_.device);
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mu_);
      changed_.wait(lock, [this] { return stopping_ || lost_ || !jobs_.empty(); });
      if (stopping_ || lost_) {
        issued_all_ = true;
        changed_.notify_all();
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
      IssueCopy(job);
    } else {
      IssueRecodes(std::move(job));
    }
  }
}

void CudaLane::Fly(Flight flight) {
  {
    std::lock_guard lock(mu_);
    flights_.push_back(std::move(flight));
  }
  changed_.notify_all();
}

cudaEvent_t CudaLane::TakeEvent() {
  std::unique_lock lock(mu_);
  changed_.wait(lock, [this] { return lost_ || !free_events_.empty(); });
  if (lost_) return nullptr;
  cudaEvent_t event = free_events_.back();
  free_events_.pop_back();
  return event;
}

ScratchSlot* CudaLane::TakeSlot() {
  std::unique_lock lock(mu_);
  changed_.wait(lock, [this] { return lost_ || !free_slots_.empty(); });
  if (lost_) return nullptr;
  ScratchSlot* slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

absl::Status CudaLane::EnqueueCopy(const CopyJob& job) {
  size_t from = 0, to = 0;
  uint64_t from_done = 0, to_done = 0;
  auto address = [this](const Place& place, uint64_t done) {
    uint8_t* base = place.space == kPoolSpace ? options_.pool : options_.regions->base(place.space);
    return base + place.offset + done;
  };
  auto split = [](const Place& place, uint64_t done) {
    uint64_t left = place.bytes - done;
    return place.space == kPoolSpace ? left : RegisteredRegions::Split(place.offset + done, left);
  };
  while (from < job.source.size() && to < job.target.size()) {
    const Place &source = job.source[from], &target = job.target[to];
    uint64_t bytes = std::min(split(source, from_done), split(target, to_done));
    if (bytes > 0) {
      FIRN_RETURN_IF_ERROR(CudaStatus(
          cudaMemcpyAsync(address(target, to_done), address(source, from_done), bytes, cudaMemcpyDefault, out_),
          "copy"));
    }
    from_done += bytes;
    to_done += bytes;
    if (from_done == source.bytes) ++from, from_done = 0;
    if (to_done == target.bytes) ++to, to_done = 0;
  }
  return absl::OkStatus();
}

void CudaLane::IssueCopy(const Job& job) {
  Flight flight;
  flight.ids = {job.id};
  flight.done = TakeEvent();
  if (flight.done == nullptr) return;
  flight.refused = EnqueueCopy(std::get<CopyJob>(job.work));
  // What was enqueued before an error must be over before the job's memory is used for something else.
  cudaError_t recorded = cudaEventRecord(flight.done, out_);
  if (flight.refused.ok()) flight.refused = CudaStatus(recorded, "record an event");
  Fly(std::move(flight));
}

std::vector<RecodeTask> CudaLane::TakeAlike(RecodeTask first, size_t limit) {
  std::vector<RecodeTask> tasks;
  tasks.push_back(std::move(first));
  while (tasks.size() < limit) {
    RecodeTask next;
    {
      std::lock_guard lock(mu_);
      if (jobs_.empty() || !std::holds_alternative<RecodeJob>(jobs_.front().work)) break;
      next.id = jobs_.front().id;
      auto recoding = ParseRecoding(std::get<RecodeJob>(jobs_.front().work));
      if (!recoding.ok()) break;  // Answered when its turn comes.
      next.recoding = *std::move(recoding);
      if (!RecodeBatch::Alike(tasks[0], next)) break;
      next.job = std::move(std::get<RecodeJob>(jobs_.front().work));
      jobs_.pop_front();
    }
    tasks.push_back(std::move(next));
  }
  return tasks;
}

void CudaLane::IssueRecodes(Job first) {
  RecodeTask task{first.id, std::move(std::get<RecodeJob>(first.work)), {}};
  Flight flight;
  flight.ids = {task.id};
  auto recoding = ParseRecoding(task.job);
  if (!recoding.ok() || options_.slot_bytes == 0) {
    flight.refused = recoding.ok() ? Unimplemented("this lane only copies") : recoding.status();
    return Fly(std::move(flight));
  }
  task.recoding = *std::move(recoding);
  absl::Status why;
  size_t fit = RecodeBatch::BlocksThatFit(task, *slots_[0], &why);
  if (fit == 0) {
    flight.refused = why;
    return Fly(std::move(flight));
  }
  flight.slot = TakeSlot();
  if (flight.slot == nullptr) return;
  std::vector<RecodeTask> tasks = TakeAlike(std::move(task), fit);
  flight.ids.clear();
  for (const RecodeTask& t : tasks) flight.ids.push_back(t.id);
  flight.batch = std::make_unique<RecodeBatch>(options_.pool, options_.regions, options_.artifacts);
  flight.done = flight.slot->done();
  flight.refused = flight.batch->Enqueue(std::move(tasks), flight.slot, &transforms_, work_, out_);
  if (!flight.refused.ok()) {
    cudaEventRecord(flight.slot->coded(), work_);
    cudaStreamWaitEvent(out_, flight.slot->coded(), 0);
    cudaEventRecord(flight.done, out_);
  }
  Fly(std::move(flight));
}

void CudaLane::AnswerLoop() {
  cudaSetDevice(options_.device);
  for (;;) {
    Flight flight;
    {
      std::unique_lock lock(mu_);
      changed_.wait(lock, [this] { return lost_ || !flights_.empty() || issued_all_; });
      if (lost_ || flights_.empty()) return;
      flight = std::move(flights_.front());
      flights_.pop_front();
    }
    if (flight.done != nullptr) {
      cudaError_t error = cudaEventSynchronize(flight.done);
      if (error == cudaSuccess) error = cudaPeekAtLastError();
      if (Lost(error, "a job")) return;
    }
    if (flight.refused.ok() && flight.batch != nullptr) {
      for (JobDone& done : flight.batch->Finish()) options_.events.on_done(std::move(done));
    } else {
      for (uint64_t id : flight.ids) options_.events.on_done({id, flight.refused, {}});
    }
    {
      std::lock_guard lock(mu_);
      if (flight.slot != nullptr) {
        free_slots_.push_back(flight.slot);
      } else if (flight.done != nullptr) {
        free_events_.push_back(flight.done);
      }
    }
    changed_.notify_all();
  }
}

}  // namespace firn::gpu
