#include "tiers/hot/child/cpu_device.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "base/status.h"
#include "codecs/block_codec.h"
#include "tiers/hot/child/child.h"
#include "tiers/hot/protocol/unique_fd.h"

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
  absl::StatusOr<std::vector<uint8_t>> Work(const ImportJob& job);
  absl::StatusOr<std::vector<uint8_t>> Work(const ExportJob& job);
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
    uint64_t number = ++jobs_;
    if (!InjectFault(number, job)) continue;
    auto payload = std::visit([this](const auto& work) { return Work(work); }, job.work);
    JobDone done{job.id, absl::OkStatus(), {}};
    if (payload.ok()) {
      done.payload = *std::move(payload);
      if (number == faults_.lie_at_job) {
        auto header = ParseHeader(done.payload, nullptr);
        FIRN_CHECK(header.ok());
        ++header->first_token;
        done.payload = SerializeHeader(*header);
      }
    } else {
      done.status = std::move(payload).status();  // Shared with nobody: another thread lets go of it.
    }
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

// A worker's memory, by the name of its shared memory.
class NamedMemory {
 public:
  static absl::StatusOr<NamedMemory> Open(const DeviceHandle& handle, uint64_t bytes) {
    if (handle.back() != 0 || handle[0] != '/') return InvalidArgument("no name of shared memory");
    const char* name = reinterpret_cast<const char*>(handle.data());
    UniqueFd fd(::shm_open(name, O_RDWR | O_CLOEXEC, 0));
    if (!fd.valid()) return ErrnoStatus(errno, fmt::format("open shared memory {}", name));
    struct stat status {};
    if (::fstat(fd.get(), &status) != 0) return ErrnoStatus(errno, "look at shared memory");
    if (static_cast<uint64_t>(status.st_size) < std::max<uint64_t>(bytes, 4)) {
      return InvalidArgument("rows up to byte {} of memory that has {}", bytes, status.st_size);
    }
    auto size = static_cast<size_t>(status.st_size);
    void* base = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (base == MAP_FAILED) return ErrnoStatus(errno, "map shared memory");
    return NamedMemory(static_cast<uint8_t*>(base), size);
  }
  NamedMemory(NamedMemory&& other) noexcept : base_(std::exchange(other.base_, nullptr)), bytes_(other.bytes_) {}
  NamedMemory& operator=(NamedMemory&&) = delete;
  ~NamedMemory() {
    if (base_ != nullptr) ::munmap(base_, bytes_);
  }
  uint8_t* base() const { return base_; }

 private:
  NamedMemory(uint8_t* base, size_t bytes) : base_(base), bytes_(bytes) {}
  uint8_t* base_;
  size_t bytes_;
};

absl::StatusOr<std::vector<NamedMemory>> OpenAll(const DeviceRows& rows, const std::vector<uint64_t>& ends) {
  std::vector<NamedMemory> memory;
  for (size_t i = 0; i < rows.memory.size(); ++i) {
    FIRN_ASSIGN_OR_RETURN(auto opened, NamedMemory::Open(rows.memory[i], ends[i]));
    memory.push_back(std::move(opened));
  }
  return memory;
}

absl::Status AwaitEvent(const DeviceHandle& event) {
  constexpr int kPatienceMs = 20'000;
  FIRN_ASSIGN_OR_RETURN(auto word, NamedMemory::Open(event, 4));
  for (int waited_ms = 0; waited_ms < kPatienceMs; ++waited_ms) {
    if (reinterpret_cast<std::atomic<uint32_t>*>(word.base())->load(std::memory_order_acquire) != 0) {
      return absl::OkStatus();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return absl::DeadlineExceededError(fmt::format("the event of the producer has not come in {} ms", kPatienceMs));
}

// visit(a worker's row, where it lies in the canonical part, bytes)
template <typename Visit>
void VisitRows(const DeviceRows& rows, const std::vector<NamedMemory>& memory, const BlockShape& shape, Part part,
               uint32_t value_bytes, Visit visit) {
  const DevicePart& device = rows.parts[static_cast<size_t>(part)];
  const PartShape of = shape.part(part);
  const uint64_t row_bytes = uint64_t{of.width} * value_bytes;
  if (of.width == 0) return;
  uint64_t canonical = 0;
  for (uint32_t layer = 0; layer < of.layers; ++layer) {
    uint8_t* base = memory[device.layers[layer].memory].base() + device.layers[layer].offset;
    for (uint32_t head = 0; head < of.heads; ++head) {
      for (uint32_t token = 0; token < of.tokens; ++token, canonical += row_bytes) {
        visit(base + device.pages[token / device.page_tokens] * device.page_stride +
                  token % device.page_tokens * device.token_stride + head * device.head_stride,
              canonical, row_bytes);
      }
    }
  }
}

absl::StatusOr<std::vector<uint8_t>> CpuDevice::Work(const ImportJob& job) {
  FIRN_ASSIGN_OR_RETURN(Moving moving, ParseMoving(job.header, job.from, job.target));
  FIRN_RETURN_IF_ERROR(CheckImport(moving.header));
  if (moving.present != moving.header.encoded) return InvalidArgument("runs of the record have no place");
  FIRN_ASSIGN_OR_RETURN(auto memory, OpenAll(job.from, moving.ends));
  FIRN_RETURN_IF_ERROR(AwaitEvent(job.from.event));
  std::array<RunBytes, kRunIds> runs;
  for (uint32_t i = 0; i < kRunIds; ++i) runs[i] = Bytes<const uint8_t>(job.target[i]);
  for (Part part : kParts) {
    auto target = Bytes<uint8_t>(job.target[RunIndex(RunKind::kWhole, part)]);
    VisitRows(job.from, memory, moving.header.shape, part, DTypeBytes(moving.header.dtype),
              [&target](const uint8_t* row, uint64_t at, uint64_t bytes) {
                CopyScattered(RunBytes(ByteSpan(row, bytes)), target.Slice(at, bytes));
              });
  }
  SealSource(&moving.header, runs);
  return SerializeHeader(moving.header);
}

absl::StatusOr<std::vector<uint8_t>> CpuDevice::Work(const ExportJob& job) {
  FIRN_ASSIGN_OR_RETURN(Moving moving, ParseMoving(job.header, job.to, job.source));
  FIRN_ASSIGN_OR_RETURN(auto memory, OpenAll(job.to, moving.ends));
  EncodedBlock block;
  block.present = moving.present;
  for (uint32_t i = 0; i < kRunIds; ++i) block.runs[i] = Bytes<const uint8_t>(job.source[i]);
  const BlockShape shape = moving.header.shape;
  const uint32_t value_bytes = DTypeBytes(moving.header.dtype);
  std::array<std::vector<uint8_t>, 2> values;
  for (Part part : kParts) values[static_cast<size_t>(part)].resize(shape.part(part).values() * value_bytes);
  DecodeRequest request;
  request.out = moving.header.dtype;
  block.header = std::make_shared<const RecordHeader>(std::move(moving.header));
  RunMask intact = IntactRuns(block);
  if (!intact.Contains(block.present)) {
    return DataLoss("runs {:#x} are damaged", (block.present - intact).bits());
  }
  FIRN_RETURN_IF_ERROR(Decode(block, *artifacts_, request, values[0], values[1]));
  for (Part part : kParts) {
    VisitRows(job.to, memory, shape, part, value_bytes, [&](uint8_t* row, uint64_t at, uint64_t bytes) {
      std::memcpy(row, values[static_cast<size_t>(part)].data() + at, bytes);
    });
  }
  return std::vector<uint8_t>();
}

}  // namespace

std::unique_ptr<Device> MakeCpuDevice(const CpuFaults& faults) { return std::make_unique<CpuDevice>(faults); }

}  // namespace firn::gpu
