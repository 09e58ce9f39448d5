#include "tiers/cold/device/uring_device.h"

#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status.h"

namespace firn {
namespace {

constexpr uint32_t kDepthMax = 1024;
constexpr uint32_t kFileSlots = 4096;
constexpr uint32_t kBufferSlots = 16;
constexpr uint64_t kRegisteredBytesMax = uint64_t{1} << 30;  // The kernel's limit for one buffer.
constexpr uint64_t kWakeData = ~uint64_t{0};

std::string SetupCure(int error) {
  switch (error) {
    case EPERM:
    case EACCES:
      return "a container's seccomp profile or kernel.io_uring_disabled forbids it; allow io_uring_setup, "
             "io_uring_enter and "
             "io_uring_register, or set kernel.io_uring_disabled=0";
    case ENOSYS:
      return "the kernel or the sandbox has no io_uring; use Linux 5.15 or later";
    case ENOMEM:
      return "the locked-memory limit is too low; raise LimitMEMLOCK";
    case EMFILE:
    case ENFILE:
      return "too many open files; raise LimitNOFILE";
    default:
      return "see io_uring_setup(2)";
  }
}

}  // namespace

// Shared by the device and its files, so that a file closed late still finds where to say so.
class UringRing {
 public:
  UringRing(uint32_t depth, std::function<void(const std::string&, const std::string&)> notice)
      : depth_(std::clamp<uint32_t>(depth, 1, kDepthMax)), notice_(std::move(notice)) {}
  ~UringRing() {
    if (wake_fd_ >= 0) close(wake_fd_);
  }

  // Starts the thread; the errno of io_uring_setup, negative, or 0.
  int Start();
  void Stop();
  void Push(RawIo io);
  void ForgetFile(int slot);
  void RegisterBuffer(MutableByteSpan memory);
  bool broken() const { return broken_.load(); }
  bool buffers_registered() const { return buffers_registered_.load(); }
  bool files_registered() const { return files_registered_.load(); }

 private:
  struct Slot {
    RawIo io;
    bool busy = false;
  };

  void Run();
  int Setup();
  bool TakeWork();  // False when it is time to end.
  void Prepare(uint32_t slot);
  void Reap();
  void Complete(uint32_t slot, int64_t result);
  void ArmWake();
  void BreakRing(int error);
  int FileSlot(const RawIo& io);
  int BufferSlot(const RawIo& io) const;
  void RegisterBufferNow(MutableByteSpan memory);
  void WakeLocked();

  const uint32_t depth_;
  const std::function<void(const std::string&, const std::string&)> notice_;

  // Of the ring's thread alone.
  io_uring ring_{};
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_slots_;
  std::vector<int> free_file_slots_;
  std::vector<MutableByteSpan> buffers_;
  uint32_t in_flight_ = 0;
  uint64_t wake_value_ = 0;
  bool wake_armed_ = false;
  bool sparse_buffers_ = false;

  std::atomic<bool> broken_{false}, buffers_registered_{false}, files_registered_{false};
  std::thread thread_;
  int wake_fd_ = -1;

  std::mutex mu_;
  std::condition_variable changed_;
  std::deque<RawIo> queue_;  // Guarded by mu_, as all below.
  std::vector<int> forgotten_files_;
  std::vector<MutableByteSpan> to_register_;
  std::optional<int> setup_result_;
  bool sleeping_ = false;
  bool stopping_ = false;
};

namespace {

class UringFile final : public DirectoryFile {
 public:
  UringFile(std::string name, int fd, std::shared_ptr<UringRing> ring)
      : DirectoryFile(std::move(name), fd), ring_(std::move(ring)) {}
  ~UringFile() override {
    if (slot >= 0) ring_->ForgetFile(slot);
  }
  int slot = -1;  // In the ring's file table; of the ring's thread until the last transfer is done.

 private:
  const std::shared_ptr<UringRing> ring_;
};

}  // namespace

int UringRing::Start() {
  wake_fd_ = eventfd(0, EFD_CLOEXEC);
  if (wake_fd_ < 0) return -errno;
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error& error) {
    return -error.code().value();
  }
  std::unique_lock lock(mu_);
  changed_.wait(lock, [this] { return setup_result_.has_value(); });
  int result = *setup_result_;
  lock.unlock();
  if (result < 0) thread_.join();
  return result;
}

void UringRing::Stop() {
  {
    std::lock_guard lock(mu_);
    stopping_ = true;
    WakeLocked();
  }
  if (thread_.joinable()) thread_.join();
}

void UringRing::WakeLocked() {
  if (!sleeping_) return;
  sleeping_ = false;
  uint64_t one = 1;
  // An eventfd takes this unless its counter is at its end, which one write a sleep cannot reach.
  FIRN_CHECK(write(wake_fd_, &one, sizeof(one)) == sizeof(one));
}

void UringRing::Push(RawIo io) {
  std::lock_guard lock(mu_);
  queue_.push_back(std::move(io));
  WakeLocked();
}

void UringRing::ForgetFile(int slot) {
  std::lock_guard lock(mu_);
  forgotten_files_.push_back(slot);
  WakeLocked();
}

void UringRing::RegisterBuffer(MutableByteSpan memory) {
  std::unique_lock lock(mu_);
  to_register_.push_back(memory);
  WakeLocked();
  changed_.wait(lock, [this] { return to_register_.empty(); });
}

int UringRing::Setup() {
  // The single issuer is this thread, and completions are worked off only where it waits for them.
  const uint32_t flag_sets[] = {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, IORING_SETUP_COOP_TASKRUN, 0};
  uint32_t entries = depth_ + 1;  // One for the wake-up.
  int result = -EINVAL;
  for (uint32_t flags : flag_sets) {
    result = io_uring_queue_init(entries, &ring_, flags);
    if (result != -EINVAL) break;
  }
  if (result < 0) return result;
  FIRN_CHECK(*ring_.cq.kring_entries >= entries);
  slots_.resize(depth_);
  for (uint32_t i = depth_; i > 0; --i) free_slots_.push_back(i - 1);
  int files = io_uring_register_files_sparse(&ring_, kFileSlots);
  files_registered_ = files >= 0;
  if (files >= 0) {
    for (uint32_t i = kFileSlots; i > 0; --i) free_file_slots_.push_back(static_cast<int>(i - 1));
  } else {
    notice_("files", fmt::format("io_uring: files are not registered (errno {}: {}); raise LimitNOFILE", -files,
                                 strerror(-files)));
  }
  int buffers = io_uring_register_buffers_sparse(&ring_, kBufferSlots);
  sparse_buffers_ = buffers >= 0;
  if (buffers < 0) {
    notice_("buffers",
            fmt::format("io_uring: buffers are not registered (errno {}: {})", -buffers, strerror(-buffers)));
  }
  return 0;
}

void UringRing::RegisterBufferNow(MutableByteSpan memory) {
  if (!sparse_buffers_ || broken()) return;
  for (uint64_t at = 0; at < memory.size(); at += kRegisteredBytesMax) {
    MutableByteSpan piece = memory.subspan(at, std::min<uint64_t>(kRegisteredBytesMax, memory.size() - at));
    if (buffers_.size() == kBufferSlots) return;
    iovec vector{piece.data(), piece.size()};
    __u64 tag = 0;
    int result = io_uring_register_buffers_update_tag(&ring_, static_cast<unsigned>(buffers_.size()), &vector, &tag, 1);
    if (result < 0) {
      notice_("buffers",
              fmt::format("io_uring: {} bytes of buffers are not registered (errno {}: {}); raise LimitMEMLOCK above "
                          "that size. Plain buffers are used",
                          piece.size(), -result, strerror(-result)));
      return;
    }
    buffers_.push_back(piece);
    buffers_registered_ = true;
  }
}

void UringRing::Run() {
  int result = Setup();
  {
    std::lock_guard lock(mu_);
    setup_result_ = result;
    changed_.notify_all();
  }
  if (result < 0) return;
  while (TakeWork()) {
    if (broken()) {
      // The ring is gone: one transfer at a time, on this thread.
      std::unique_lock lock(mu_);
      while (!queue_.empty()) {
        RawIo io = std::move(queue_.front());
        queue_.pop_front();
        lock.unlock();
        io.done(TransferOnce(io));
        io = RawIo();
        lock.lock();
      }
      continue;
    }
    ArmWake();
    int submitted = io_uring_submit_and_wait(&ring_, 1);
    if (submitted < 0 && submitted != -EINTR && submitted != -EAGAIN && submitted != -EBUSY) BreakRing(submitted);
    if (!broken()) Reap();
  }
  if (!broken()) io_uring_queue_exit(&ring_);
}

bool UringRing::TakeWork() {
  std::vector<uint32_t> prepared;
  std::vector<int> forgotten;
  std::vector<MutableByteSpan> to_register;
  {
    std::unique_lock lock(mu_);
    if (broken()) {
      while (queue_.empty() && !stopping_ && to_register_.empty()) {
        // No ring to wait in: wait on the eventfd itself.
        sleeping_ = true;
        lock.unlock();
        uint64_t value = 0;
        [[maybe_unused]] ssize_t got = read(wake_fd_, &value, sizeof(value));
        lock.lock();
        sleeping_ = false;
      }
      to_register_.clear();
      forgotten_files_.clear();
      changed_.notify_all();
      return !(stopping_ && queue_.empty());
    }
    sleeping_ = false;
    forgotten.swap(forgotten_files_);
    to_register = to_register_;
    while (!queue_.empty() && !free_slots_.empty()) {
      uint32_t slot = free_slots_.back();
      free_slots_.pop_back();
      slots_[slot].io = std::move(queue_.front());
      slots_[slot].busy = true;
      queue_.pop_front();
      ++in_flight_;
      prepared.push_back(slot);
    }
    if (stopping_ && in_flight_ == 0 && queue_.empty()) return false;
    sleeping_ = to_register.empty();
  }
  for (int slot : forgotten) {
    int none = -1;
    io_uring_register_files_update(&ring_, static_cast<unsigned>(slot), &none, 1);
    free_file_slots_.push_back(slot);
  }
  if (!to_register.empty()) {
    for (MutableByteSpan memory : to_register) RegisterBufferNow(memory);
    std::lock_guard lock(mu_);
    to_register_.erase(to_register_.begin(), to_register_.begin() + static_cast<ptrdiff_t>(to_register.size()));
    changed_.notify_all();
    // Anything queued meanwhile had nobody to wake.
    uint64_t one = 1;
    FIRN_CHECK(write(wake_fd_, &one, sizeof(one)) == sizeof(one));
  }
  for (uint32_t slot : prepared) Prepare(slot);
  return true;
}

void UringRing::ArmWake() {
  if (wake_armed_) return;
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  FIRN_CHECK(sqe != nullptr);
  io_uring_prep_read(sqe, wake_fd_, &wake_value_, sizeof(wake_value_), 0);
  io_uring_sqe_set_data64(sqe, kWakeData);
  wake_armed_ = true;
}

int UringRing::FileSlot(const RawIo& io) {
  auto& file = static_cast<UringFile&>(*io.file);
  if (file.slot >= 0) return file.slot;
  if (free_file_slots_.empty()) return -1;
  int slot = free_file_slots_.back();
  int fd = file.fd();
  if (io_uring_register_files_update(&ring_, static_cast<unsigned>(slot), &fd, 1) < 0) return -1;
  free_file_slots_.pop_back();
  file.slot = slot;
  return slot;
}

int UringRing::BufferSlot(const RawIo& io) const {
  for (size_t i = 0; i < buffers_.size(); ++i) {
    const uint8_t* begin = buffers_[i].data();
    if (io.data >= begin && io.data + io.length <= begin + buffers_[i].size()) return static_cast<int>(i);
  }
  return -1;
}

void UringRing::Prepare(uint32_t slot) {
  const RawIo& io = slots_[slot].io;
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  FIRN_CHECK(sqe != nullptr);
  int file_slot = FileSlot(io);
  int target = file_slot >= 0 ? file_slot : static_cast<const DirectoryFile&>(*io.file).fd();
  int buffer = io.kind == IoKind::kSync ? -1 : BufferSlot(io);
  switch (io.kind) {
    case IoKind::kRead:
      if (buffer >= 0) {
        io_uring_prep_read_fixed(sqe, target, io.data, io.length, io.offset, buffer);
      } else {
        io_uring_prep_read(sqe, target, io.data, io.length, io.offset);
      }
      break;
    case IoKind::kWrite:
      if (buffer >= 0) {
        io_uring_prep_write_fixed(sqe, target, io.data, io.length, io.offset, buffer);
      } else {
        io_uring_prep_write(sqe, target, io.data, io.length, io.offset);
      }
      break;
    case IoKind::kSync:
      io_uring_prep_fsync(sqe, target, IORING_FSYNC_DATASYNC);
      break;
  }
  if (file_slot >= 0) sqe->flags |= IOSQE_FIXED_FILE;
  io_uring_sqe_set_data64(sqe, slot);
}

void UringRing::Reap() {
  io_uring_cqe* cqe = nullptr;
  while (!broken() && io_uring_peek_cqe(&ring_, &cqe) == 0 && cqe != nullptr) {
    uint64_t data = io_uring_cqe_get_data64(cqe);
    int result = cqe->res;
    io_uring_cqe_seen(&ring_, cqe);
    if (data == kWakeData) {
      wake_armed_ = false;
    } else {
      Complete(static_cast<uint32_t>(data), result);
    }
  }
}

void UringRing::Complete(uint32_t slot, int64_t result) {
  FIRN_CHECK(slot < slots_.size() && slots_[slot].busy);
  auto done = std::move(slots_[slot].io.done);
  slots_[slot].io = RawIo();
  slots_[slot].busy = false;
  free_slots_.push_back(slot);
  --in_flight_;
  done(result);
}

void UringRing::BreakRing(int error) {
  notice_("broken", fmt::format("io_uring: the ring failed (errno {}: {}); going on with pread and pwrite", -error,
                                strerror(-error)));
  io_uring_queue_exit(&ring_);
  broken_ = true;
  // What was in flight may or may not have happened; all of it can be done again.
  for (uint32_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot].busy) Complete(slot, TransferOnce(slots_[slot].io));
  }
}

UringDevice::UringDevice(const DirectoryOptions& options)
    : DirectoryDevice(options),
      ring_(std::make_shared<UringRing>(
          options.depth, [this](const std::string& about, const std::string& text) { NoticeOnce(about, text); })) {}

absl::StatusOr<std::unique_ptr<UringDevice>> UringDevice::Open(const DirectoryOptions& options) {
  std::unique_ptr<UringDevice> device(new UringDevice(options));
  FIRN_RETURN_IF_ERROR(device->OpenDirectory());
  int result = device->ring_->Start();
  if (result < 0) {
    absl::Status status = ErrnoStatus(-result, "io_uring_setup");
    return absl::Status(status.code(), fmt::format("{}: {}", Message(status), SetupCure(-result)));
  }
  return device;
}

UringDevice::~UringDevice() { ring_->Stop(); }

std::string_view UringDevice::backend() const { return ring_->broken() ? "pread" : "io_uring"; }
bool UringDevice::buffers_registered() const { return ring_->buffers_registered(); }
bool UringDevice::files_registered() const { return ring_->files_registered(); }

FilePtr UringDevice::MakeFile(std::string name, int fd) {
  return std::make_shared<UringFile>(std::move(name), fd, ring_);
}

void UringDevice::SubmitImpl(RawIo io) { ring_->Push(std::move(io)); }

void UringDevice::RegisterBufferImpl(MutableByteSpan memory) { ring_->RegisterBuffer(memory); }

}  // namespace firn
