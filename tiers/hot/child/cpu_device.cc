#include "tiers/hot/child/cpu_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "base/status.h"
#include "codecs/block_codec.h"
#include "tiers/hot/child/child.h"

namespace firn::gpu {
namespace {

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const CpuFaults& faults) : faults_(faults) {}
  ~CpuDevice() override {
    Stop();
    if (pool_bytes_ > 0) ::munmap(bases_[kPoolSpace], pool_bytes_);
  }

  absl::StatusOr<Ready> Open(const Hello& hello, const ArtifactSource* artifacts, Events events) override;
  void AddRegion(uint32_t region, uint8_t* base, uint64_t /*bytes*/) override { bases_[region] = base; }
  void SetUsable(uint32_t /*region*/, uint64_t /*bytes*/) override {}
  void Submit(Job job) override;
  void Stop() override;

 private:
  struct LaneState {
    std::mutex mu;
    std::condition_variable changed;
    std::deque<Job> jobs;   // Guarded by mu.
    bool stopping = false;  // Guarded by mu.
    std::thread thread;
  };
  void RunLane(LaneState* lane);
  // False where the fault takes the job's answer.
  bool InjectFault(uint64_t number, const Job& job);
  absl::StatusOr<std::vector<uint8_t>> Work(const CopyJob& job);
  absl::StatusOr<std::vector<uint8_t>> Work(const RecodeJob& job);
  template <typename Byte>
  Scattered<Byte> Bytes(const std::vector<Place>& places) const {
    Scattered<Byte> out;
    for (const Place& place : places) out.Append({bases_[place.space] + place.offset, place.bytes});
    return out;
  }

  const CpuFaults faults_;
  const ArtifactSource* artifacts_ = nullptr;
  Events events_;
  // Written before the first job that names the region.
  std::array<uint8_t*, kRegionsMax> bases_{};
  uint64_t pool_bytes_ = 0;
  std::array<LaneState, kLanes> lanes_;
  std::atomic<uint64_t> jobs_{0};
};

void CpuDevice::Stop() {
  for (LaneState& lane : lanes_) {
    {
      std::lock_guard lock(lane.mu);
      lane.stopping = true;
    }
    lane.changed.notify_all();
    if (lane.thread.joinable()) lane.thread.join();
  }
}

absl::StatusOr<Ready> CpuDevice::Open(const Hello& hello, const ArtifactSource* artifacts, Events events) {
  artifacts_ = artifacts;
  events_ = std::move(events);
  Ready ready;
  ready.device = "cpu";
  ready.pool_bytes = std::min(hello.pool_bytes, faults_.pool_bytes_max);
  ready.device_bytes = ready.pool_bytes;
  if (ready.pool_bytes > 0) {
    void* pool = ::mmap(nullptr, ready.pool_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pool == MAP_FAILED) return ErrnoStatus(errno, "map a pool");
    bases_[kPoolSpace] = static_cast<uint8_t*>(pool);
    pool_bytes_ = ready.pool_bytes;
  }
  for (LaneState& lane : lanes_) lane.thread = std::thread([this, &lane] { RunLane(&lane); });
  return ready;
}

void CpuDevice::Submit(Job job) {
  LaneState& lane = lanes_[static_cast<size_t>(job.lane)];
  {
    std::lock_guard lock(lane.mu);
    lane.jobs.push_back(std::move(job));
  }
  lane.changed.notify_one();
}

bool CpuDevice::InjectFault(uint64_t number, const Job& job) {
  if (faults_.job_delay_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(faults_.job_delay_us));
  if (number == faults_.exit_at_job) ::_exit(9);
  if (number == faults_.fatal_at_job) {
    events_.on_fatal({faults_.fatal_code, "an injected fault"});
    return false;
  }
  if (faults_.hang_at_job != 0 && number >= faults_.hang_at_job) return false;
  if (number == faults_.fail_at_job) {
    events_.on_done({job.id, ResourceExhausted("an injected lack of memory"), {}});
    return false;
  }
  return true;
}

void CpuDevice::RunLane(LaneState* lane) {
  for (;;) {
    Job job;
    {
      std::unique_lock lock(lane->mu);
      lane->changed.wait(lock, [lane] { return lane->stopping || !lane->jobs.empty(); });
      if (lane->stopping) return;
      job = std::move(lane->jobs.front());
      lane->jobs.pop_front();
    }
    if (!InjectFault(++jobs_, job)) continue;
    auto payload = std::visit([this](const auto& work) { return Work(work); }, job.work);
    JobDone done{job.id, payload.status(), {}};
    if (payload.ok()) done.payload = *std::move(payload);
    events_.on_done(std::move(done));
  }
}

absl::StatusOr<std::vector<uint8_t>> CpuDevice::Work(const CopyJob& job) {
  // Neither side's pieces need fit the other's.
  auto source = Bytes<const uint8_t>(job.source);
  uint64_t offset = 0;
  for (const Place& place : job.target) {
    CopyScattered(source.Slice(offset, place.bytes), Bytes<uint8_t>({place}));
    offset += place.bytes;
  }
  return std::vector<uint8_t>();
}

absl::StatusOr<std::vector<uint8_t>> CpuDevice::Work(const RecodeJob& job) {
  FIRN_ASSIGN_OR_RETURN(Recoding recoding, ParseRecoding(job));
  EncodedBlock source;
  source.header = std::make_shared<const RecordHeader>(std::move(recoding.source));
  source.present = recoding.present;
  MutableRuns target;
  for (uint32_t i = 0; i < kRunIds; ++i) {
    source.runs[i] = Bytes<const uint8_t>(job.source[i]);
    target[i] = Bytes<uint8_t>(job.target[i]);
  }
  RunMask intact = IntactRuns(source);
  if (!intact.Contains(source.present)) {
    return DataLoss("runs {:#x} of the source are damaged", (source.present - intact).bits());
  }
  EncodePlan plan;
  plan.header = std::move(recoding.target);
  plan.layout = LayoutOf(plan.header);
  plan.surveyed = false;
  FIRN_ASSIGN_OR_RETURN(auto header, Encode(source, EncodeSpec{}, *artifacts_, plan, target));
  return SerializeHeader(*header);
}

}  // namespace

std::unique_ptr<Device> MakeCpuDevice(const CpuFaults& faults) { return std::make_unique<CpuDevice>(faults); }

}  // namespace firn::gpu
