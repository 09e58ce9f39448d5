#include "daemon/gpu/cuda_mover.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/clock.h"
#include "base/status.h"
#include "codecs/block/part_geometry.h"
#include "daemon/gpu/cuda_check.h"
#include "daemon/gpu/part_kernels.h"
#include "kernels/checksum.h"
#include "kernels/finite.h"

namespace firn::gpu {
namespace {

int64_t NowMs() { return Clock::Real()->NowNs() / 1'000'000; }

}  // namespace

// Arrays for kernels, written here and copied over in one go.
class CudaMover::Parameters {
 public:
  explicit Parameters(const ScratchSlot& slot) : slot_(slot) {}
  template <typename T>
  const T* Add(const std::vector<T>& values) {
    uint64_t at = used_;
    used_ = ScratchAligned(used_ + values.size() * sizeof(T));
    if (used_ > ScratchSlot::kSideBytes) return nullptr;
    std::memcpy(slot_.host_parameters() + at, values.data(), values.size() * sizeof(T));
    return reinterpret_cast<const T*>(slot_.parameters() + at);
  }
  // Room among the results.
  uint64_t* AddResults(uint64_t count) {
    uint64_t at = results_;
    results_ = ScratchAligned(results_ + count * 8);
    return results_ > ScratchSlot::kSideBytes ? nullptr : reinterpret_cast<uint64_t*>(slot_.results() + at);
  }
  uint64_t used() const { return used_; }
  uint64_t results() const { return results_; }
  absl::Status Check() const {
    if (used_ <= ScratchSlot::kSideBytes && results_ <= ScratchSlot::kSideBytes) return absl::OkStatus();
    return Unimplemented("parameters of {} bytes; at most {}", std::max(used_, results_), ScratchSlot::kSideBytes);
  }

 private:
  const ScratchSlot& slot_;
  uint64_t used_ = 0, results_ = kScratchAlignment;  // The first results are flags.
};

absl::StatusOr<std::unique_ptr<CudaMover>> CudaMover::Create(MoverOptions options) {
  std::unique_ptr<CudaMover> mover(new CudaMover(std::move(options)));
  FIRN_RETURN_IF_ERROR(CudaStatus(
      cudaStreamCreateWithPriority(&mover->stream_, cudaStreamNonBlocking, mover->options_.priority), "make a stream"));
  FIRN_RETURN_IF_ERROR(CudaStatus(cudaEventCreateWithFlags(&mover->done_, cudaEventDisableTiming), "make an event"));
  FIRN_ASSIGN_OR_RETURN(
      mover->slot_,
      ScratchSlot::Create(std::max<uint64_t>(mover->options_.slot_bytes, kScratchAlignment), mover->options_.priority));
  FIRN_ASSIGN_OR_RETURN(mover->answers_, AnswerSlot::Create());
  mover->thread_ = std::thread([m = mover.get()] { m->Run(); });
  return mover;
}

CudaMover::~CudaMover() {
  {
    std::lock_guard lock(mu_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (done_ != nullptr) cudaEventDestroy(done_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

void CudaMover::Add(Job job) {
  {
    std::lock_guard lock(mu_);
    waiting_.push_back({std::move(job), nullptr, NowMs() + kPatienceMs});
  }
  changed_.notify_all();
}

void CudaMover::Run() {
  cudaSetDevice(options_.device);
  size_t not_yet = 0;  // In a row.
  for (;;) {
    Waiting waiting;
    {
      std::unique_lock lock(mu_);
      changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      if (stopping_) return;
      if (not_yet >= waiting_.size()) {
        changed_.wait_for(lock, std::chrono::microseconds(20));
        not_yet = 0;
        if (waiting_.empty()) continue;
      }
      waiting = std::move(waiting_.front());
      waiting_.pop_front();
    }
    std::optional<JobDone> done = Do(&waiting);
    if (IsSticky(sticky_)) {
      options_.events.on_fatal({static_cast<int32_t>(sticky_), firn::Message(CudaStatus(sticky_, "a move"))});
      return;
    }
    if (!done.has_value()) {
      ++not_yet;
      std::lock_guard lock(mu_);
      waiting_.push_back(std::move(waiting));
      continue;
    }
    not_yet = 0;
    if (waiting.event != nullptr) cudaEventDestroy(waiting.event);
    options_.events.on_done(*std::move(done));
  }
}

std::optional<JobDone> CudaMover::Do(Waiting* waiting) {
  JobDone done{waiting->job.id, absl::OkStatus(), {}};
  if (const auto* exported = std::get_if<ExportJob>(&waiting->job.work)) {
    done.status = Export(*exported);
  } else {
    auto come = EventHasCome(waiting);
    if (come.ok() && !*come) return std::nullopt;
    done.status = come.status();
    if (!done.status.ok()) return done;
    auto header = Import(std::get<ImportJob>(waiting->job.work));
    done.status = header.status();
    if (header.ok()) done.payload = *std::move(header);
  }
  // What a job that fails half-way has enqueued must be over before anybody uses its memory for something else.
  if (!done.status.ok()) (void)Wait();
  return done;
}

absl::StatusOr<bool> CudaMover::EventHasCome(Waiting* waiting) {
  if (waiting->event == nullptr) {
    cudaIpcEventHandle_t handle;
    std::memcpy(&handle, std::get<ImportJob>(waiting->job.work).from.event.data(), sizeof(handle));
    cudaError_t error = cudaIpcOpenEventHandle(&waiting->event, handle);
    if (error != cudaSuccess) {
      (void)cudaGetLastError();
      waiting->event = nullptr;
      return InvalidArgument("a handle of an event that opens nothing: {} (CUDA {})", cudaGetErrorString(error),
                             static_cast<int>(error));
    }
  }
  cudaError_t error = cudaEventQuery(waiting->event);
  if (error == cudaSuccess) return true;
  (void)cudaGetLastError();
  if (error != cudaErrorNotReady) {
    sticky_ = error;
    return CudaStatus(error, "ask for an event");
  }
  if (NowMs() < waiting->until_ms) return false;
  return absl::DeadlineExceededError(fmt::format("the event of the producer has not come in {} ms", kPatienceMs));
}

kernels::RowsView CudaMover::RowsOf(const DeviceRows& rows, Part part, const RecordHeader& header,
                                    const std::vector<std::shared_ptr<const OpenedMemory>>& memory,
                                    Parameters* parameters) {
  const DevicePart& device = rows.parts[static_cast<size_t>(part)];
  const uint32_t value_bytes = DTypeBytes(header.dtype);
  std::vector<void*> bases;
  for (const DeviceLayer& layer : device.layers) bases.push_back(memory[layer.memory]->base + layer.offset);
  kernels::RowsView view;
  view.base = bases[0];
  view.layer_bases = const_cast<void* const*>(parameters->Add(bases));
  view.pages = parameters->Add(device.pages);
  view.page_tokens = device.page_tokens;
  view.pages_per_block = static_cast<uint32_t>(device.pages.size());
  view.page_stride = static_cast<int64_t>(device.page_stride / value_bytes);
  view.token_stride = static_cast<int64_t>(device.token_stride / value_bytes);
  view.head_stride = static_cast<int64_t>(device.head_stride / value_bytes);
  // Kernels take the alignment of what device arrays hold from `base`: it gets the one that all layers have.
  uintptr_t low_bits = 0;
  for (void* base : bases) low_bits |= reinterpret_cast<uintptr_t>(base) & 15;
  view.base = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(bases[0]) & ~uintptr_t{15}) | low_bits);
  return view;
}

std::vector<kernels::ChecksumJob> CudaMover::PlanSums(const RecordHeader& header, RunMask present,
                                                      const std::array<uint8_t*, kRunIds>& runs, Parameters* parameters,
                                                      std::array<uint64_t*, kRunIds>* results) {
  ChecksumSeeds seeds(header.identity);
  std::vector<kernels::ChecksumJob> jobs;
  for (uint32_t i = 0; i < kRunIds; ++i) {
    const RunInfo& run = header.runs[i];
    if (!present.Has(i) || run.bytes == 0) continue;
    std::vector<uint64_t> of_run;
    for (size_t c = 0; c < run.checks.size(); ++c) {
      of_run.push_back(seeds.Of(i, static_cast<uint32_t>(c) * run.layers_per_check));
    }
    kernels::ChecksumJob job;
    job.blocks = 1;
    job.run_bytes = run.bytes;
    job.check_bytes = run.bytes / header.shape.layers * run.layers_per_check;
    job.run.base = runs[i];
    job.run.block_stride = run.bytes;
    job.seeds = parameters->Add(of_run);
    job.checks = (*results)[i] = parameters->AddResults(of_run.size());
    jobs.push_back(job);
  }
  return jobs;
}

absl::Status CudaMover::Upload(const Parameters& parameters) {
  FIRN_RETURN_IF_ERROR(parameters.Check());
  return CudaStatus(cudaMemcpyAsync(slot_->parameters(), slot_->host_parameters(), parameters.used(),
                                    cudaMemcpyHostToDevice, stream_),
                    "copy parameters");
}

absl::Status CudaMover::Await(const Parameters& parameters) {
  cudaError_t error =
      cudaMemcpyAsync(answers_->results(), slot_->results(), parameters.results(), cudaMemcpyDeviceToHost, stream_);
  FIRN_RETURN_IF_ERROR(CudaStatus(error, "bring results"));
  return Wait();
}

absl::Status CudaMover::Wait() {
  cudaError_t error = cudaEventRecord(done_, stream_);
  if (error == cudaSuccess) error = cudaEventSynchronize(done_);
  if (error != cudaSuccess) sticky_ = error;
  return CudaStatus(error, "wait for a move");
}

absl::StatusOr<std::vector<uint8_t>> CudaMover::Import(const ImportJob& job) {
  FIRN_ASSIGN_OR_RETURN(Moving moving, ParseMoving(job.header, job.from, job.target));
  FIRN_RETURN_IF_ERROR(CheckImport(moving.header));
  if (moving.present != moving.header.encoded) return InvalidArgument("runs of the record have no place");
  FIRN_ASSIGN_OR_RETURN(auto memory, options_.memory->Open(job.from.memory, moving.ends));
  Parameters parameters(*slot_);
  const BlockShape& shape = moving.header.shape;
  std::array<uint8_t*, kRunIds> runs{};
  auto* flags = reinterpret_cast<uint32_t*>(slot_->results());
  std::vector<kernels::GatherJob> gathers;
  for (Part part : kParts) {
    const PartShape of = shape.part(part);
    if (of.width == 0) continue;
    uint32_t run = RunIndex(RunKind::kWhole, part);
    if (job.target[run].size() != 1 || job.target[run][0].space != kPoolSpace) {
      return InvalidArgument("a run that is not one extent of the pool");
    }
    runs[run] = options_.pool + job.target[run][0].offset;
    kernels::RowsView rows = RowsOf(job.from, part, moving.header, memory, &parameters);
    gathers.push_back(GatherJobOf(moving.header, part, 1, of.tokens, rows));
    gathers.back().run.base = runs[run];
    gathers.back().run.block_stride = job.target[run][0].bytes;
  }
  std::array<uint64_t*, kRunIds> results{};
  auto sums = PlanSums(moving.header, moving.present, runs, &parameters, &results);
  FIRN_RETURN_IF_ERROR(Upload(parameters));
  FIRN_RETURN_IF_ERROR(CudaStatus(cudaMemsetAsync(flags, 0, kScratchAlignment, stream_), "clear flags"));
  for (const kernels::GatherJob& gather : gathers) {
    FIRN_RETURN_IF_ERROR(kernels::GatherRows(gather, stream_));
    kernels::FiniteJob finite;
    finite.values = gather.run.base;
    finite.count = uint64_t{gather.layers} * gather.heads * gather.tokens * gather.width;
    finite.type = moving.header.dtype;
    finite.found = flags;
    FIRN_RETURN_IF_ERROR(kernels::FindNonFinite(finite, stream_));
  }
  for (const kernels::ChecksumJob& sum : sums) FIRN_RETURN_IF_ERROR(kernels::ChecksumRuns(sum, stream_));
  FIRN_RETURN_IF_ERROR(Await(parameters));
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (results[i] == nullptr) continue;
    uint64_t at = static_cast<uint64_t>(reinterpret_cast<uint8_t*>(results[i]) - slot_->results());
    const auto* found = reinterpret_cast<const uint64_t*>(answers_->results() + at);
    std::copy_n(found, moving.header.runs[i].checks.size(), moving.header.runs[i].checks.begin());
  }
  if (*reinterpret_cast<const uint32_t*>(answers_->results()) != 0) {
    moving.header.flags |= RecordHeader::kNonFinite;
  }
  return SerializeHeader(moving.header);
}

absl::StatusOr<std::array<uint8_t*, kRunIds>> CudaMover::GatherRuns(const ExportJob& job, uint64_t* used) {
  std::array<uint8_t*, kRunIds> runs{};
  *used = 0;
  for (uint32_t i = 0; i < kRunIds; ++i) {
    const auto& places = job.source[i];
    if (places.size() == 1 && places[0].space == kPoolSpace) {
      runs[i] = options_.pool + places[0].offset;
      continue;
    }
    uint64_t bytes = TotalBytes(places);
    if (bytes == 0) continue;
    if (*used + bytes > slot_->codes_bytes()) {
      return Unimplemented("a block of more than {} bytes of scratch", slot_->codes_bytes());
    }
    runs[i] = slot_->codes() + *used;
    for (const Place& place : places) {
      if (place.space == kPoolSpace) return InvalidArgument("a run in several extents of the pool");
      for (uint64_t done = 0; done < place.bytes;) {
        uint64_t part = RegisteredRegions::Split(place.offset + done, place.bytes - done);
        const uint8_t* from = options_.regions->base(place.space) + place.offset + done;
        FIRN_RETURN_IF_ERROR(CudaStatus(
            cudaMemcpyAsync(slot_->codes() + *used, from, part, cudaMemcpyHostToDevice, stream_), "copy codes in"));
        *used += part;
        done += part;
      }
    }
    *used = ScratchAligned(*used);
  }
  return runs;
}

absl::Status CudaMover::PlanDecoding(const Moving& moving, uint64_t used, std::array<PartWork, 2>* work,
                                     Parameters* parameters) {
  const RecordHeader& header = moving.header;
  bool positions = false;
  uint64_t bytes = 0;
  for (Part part : kParts) {
    if (header.shape.part(part).width == 0) continue;
    FIRN_RETURN_IF_ERROR(CheckDecoding(header, part));
    positions = positions || PartTakesPositions(header, part);
    bytes = std::max(bytes, PartScratchBytes(header, part));
  }
  if (used + bytes > slot_->codes_bytes()) {
    return Unimplemented("a block takes {} bytes of scratch; there are {}", used + bytes, slot_->codes_bytes());
  }
  const uint32_t* at = positions ? parameters->Add(CodedPositions(header)) : nullptr;
  for (PartWork& of : *work) {
    of.blocks = 1;
    of.scratch = slot_->codes() + used;  // Of both parts in turn.
    of.positions = at;
  }
  return absl::OkStatus();
}

absl::Status CudaMover::VerifyRuns(const Moving& moving, const std::array<uint8_t*, kRunIds>& runs,
                                   Parameters* parameters) {
  std::array<uint64_t*, kRunIds> results{};
  auto sums = PlanSums(moving.header, moving.present, runs, parameters, &results);
  FIRN_RETURN_IF_ERROR(Upload(*parameters));
  for (const kernels::ChecksumJob& sum : sums) FIRN_RETURN_IF_ERROR(kernels::ChecksumRuns(sum, stream_));
  FIRN_RETURN_IF_ERROR(Await(*parameters));
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (results[i] == nullptr) continue;
    uint64_t at = static_cast<uint64_t>(reinterpret_cast<uint8_t*>(results[i]) - slot_->results());
    const auto& checks = moving.header.runs[i].checks;
    if (!std::equal(checks.begin(), checks.end(), reinterpret_cast<const uint64_t*>(answers_->results() + at))) {
      return DataLoss("run {} is damaged", i);
    }
  }
  return absl::OkStatus();
}

absl::Status CudaMover::Export(const ExportJob& job) {
  FIRN_ASSIGN_OR_RETURN(Moving moving, ParseMoving(job.header, job.to, job.source));
  // Kernels go by what the coding says of the runs.
  FIRN_RETURN_IF_ERROR(CheckRunLengths(moving.header));
  FIRN_ASSIGN_OR_RETURN(auto memory, options_.memory->Open(job.to.memory, moving.ends));
  uint64_t used = 0;
  FIRN_ASSIGN_OR_RETURN(auto runs, GatherRuns(job, &used));
  Parameters parameters(*slot_);
  std::array<PartWork, 2> work;
  FIRN_RETURN_IF_ERROR(PlanDecoding(moving, used, &work, &parameters));
  for (Part part : kParts) {
    if (moving.header.shape.part(part).width == 0) continue;
    PartWork& of = work[static_cast<size_t>(part)];
    of.rows = RowsOf(job.to, part, moving.header, memory, &parameters);
    of.run = [&moving, &runs, part](RunKind kind) {
      kernels::RunView run;
      uint32_t index = RunIndex(kind, part);
      run.base = moving.present.Has(index) ? runs[index] : nullptr;
      run.block_stride = ScratchAligned(moving.header.runs[index].bytes);  // Of one block, for its alignment alone.
      return run;
    };
  }
  FIRN_RETURN_IF_ERROR(VerifyRuns(moving, runs, &parameters));
  for (Part part : kParts) {
    if (moving.header.shape.part(part).width == 0) continue;
    FIRN_RETURN_IF_ERROR(Decode(moving.header, part, &work[static_cast<size_t>(part)]));
  }
  return Wait();
}

absl::Status CudaMover::Decode(const RecordHeader& header, Part part, PartWork* work) {
  FIRN_ASSIGN_OR_RETURN(auto transform, transforms_.Get(header.CodingOf(part), header.shape.part(part),
                                                        header.identity.shard, *options_.artifacts));
  work->transform = transform.get();  // The cache has it until the stream has passed: it keeps the last two.
  return DecodePart(header, part, *work, stream_);
}

}  // namespace firn::gpu
