// Where the cold tier's bytes lie: a flat set of preallocated files, read and written at aligned offsets.
//
// The seam under the segment log. Public calls are not virtual: they check alignment and bounds, split large transfers,
// resume short ones from an aligned point, bound every retry and count, once for every device; devices implement the
// *Impl calls, and a fault injector overrides those. Raw results are as system calls give them: bytes moved, or a
// negative errno. Threads: all calls are safe from any thread. Read, Write and Sync complete on a thread of the device,
// or inside the call; their callbacks must only post. The file calls (Create, Open, Remove, Truncate, List) block and
// are durable when they return. Ownership: memory given to Read and Write must live until the callback; a FilePtr keeps
// its file open, also once removed, and must not outlive the device. Destroy the device only when nothing is in flight.
// Units: offsets, lengths and addresses of Read and Write are multiples of kIoAlignment.
// Errors: InvalidArgument for misalignment and bounds; otherwise the errno's status (StatusErrno). The end of a file
// inside a read is not an error: `bytes` is short.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "tiers/cold/device/outstanding.h"

namespace firn {

inline constexpr uint64_t kIoAlignment = 4096;

constexpr uint64_t AlignUp(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}
constexpr uint64_t AlignDown(uint64_t value, uint64_t alignment) { return value / alignment * alignment; }

struct IoResult {
  absl::Status status;
  uint64_t bytes = 0;  // From the start of the transfer, without gaps.
};
using IoDone = absl::AnyInvocable<void(IoResult)>;

// Called with what an operator should read once: a fall-back taken, its errno and its cure.
using NoticeSink = std::function<void(std::string_view)>;

class DeviceFile {
 public:
  virtual ~DeviceFile() = default;
  const std::string& name() const { return name_; }
  uint64_t size() const { return size_.load(std::memory_order_relaxed); }
  // What the file takes of its medium, as `du` counts it.
  uint64_t allocated_bytes() const { return allocated_.load(std::memory_order_relaxed); }

 protected:
  explicit DeviceFile(std::string name) : name_(std::move(name)) {}
  friend class BlockDevice;
  void SetSizes(uint64_t size, uint64_t allocated) {
    size_.store(size, std::memory_order_relaxed);
    allocated_.store(allocated, std::memory_order_relaxed);
  }

 private:
  const std::string name_;
  std::atomic<uint64_t> size_{0}, allocated_{0};
};
using FilePtr = std::shared_ptr<DeviceFile>;

struct FileEntry {
  std::string name;
  uint64_t size_bytes = 0;
  uint64_t allocated_bytes = 0;
};

struct DeviceCounters {
  uint64_t reads = 0, read_bytes = 0, writes = 0, written_bytes = 0, syncs = 0;
  uint64_t resumed = 0;      // Transfers continued after a short result, EINTR or EAGAIN.
  uint64_t last_resort = 0;  // Of these, given to pread or pwrite at last.
  uint64_t errors = 0;
};

enum class IoKind : uint8_t { kRead, kWrite, kSync };

// One system call's worth of work.
struct RawIo {
  IoKind kind = IoKind::kRead;
  FilePtr file;
  uint64_t offset = 0;
  uint8_t* data = nullptr;  // Only read from by writes.
  uint32_t length = 0;
  absl::AnyInvocable<void(int64_t)> done;
};

class BlockDevice {
 public:
  // How many results without progress (EINTR, EAGAIN, too few bytes) are retried before pread or pwrite has a last try.
  static constexpr int kStallsMax = 16;

  virtual ~BlockDevice() = default;
  BlockDevice(const BlockDevice&) = delete;
  BlockDevice& operator=(const BlockDevice&) = delete;

  // A new file of exactly `bytes`, a multiple of kIoAlignment, whose space is taken at once. It appears whole or not at
  // all.
  absl::StatusOr<FilePtr> Create(const std::string& name, uint64_t bytes);
  absl::StatusOr<FilePtr> Open(const std::string& name);
  // OK also when there is no such file: what is gone is gone.
  absl::Status Remove(const std::string& name);
  // Shortens a file and gives the space back.
  absl::Status Truncate(const FilePtr& file, uint64_t bytes);
  // Every complete file; leftovers of interrupted creations are removed.
  absl::StatusOr<std::vector<FileEntry>> List();

  void Read(FilePtr file, uint64_t offset, MutableByteSpan target, IoDone done);
  void Write(FilePtr file, uint64_t offset, ByteSpan source, IoDone done);
  // Completes when everything whose Write completed before this call is durable.
  void Sync(FilePtr file, IoDone done);

  // Waits; for start-up and tools, not for threads that complete I/O.
  absl::StatusOr<uint64_t> ReadBlocking(const FilePtr& file, uint64_t offset, MutableByteSpan target);
  absl::Status WriteBlocking(const FilePtr& file, uint64_t offset, ByteSpan source);
  absl::Status SyncBlocking(const FilePtr& file);

  // Tells the device of memory that many transfers will use. A device that cannot make use of it says so once and goes
  // on. The memory must outlive the device.
  void RegisterBuffer(MutableByteSpan memory) { RegisterBufferImpl(memory); }

  // "io_uring", "pread", "memory": exported as a metric.
  virtual std::string_view backend() const = 0;
  DeviceCounters Counters() const;
  // Transfers, syncs and file calls under way.
  Outstanding& outstanding() { return outstanding_; }

 protected:
  explicit BlockDevice(uint64_t transfer_bytes_max) : transfer_bytes_max_(transfer_bytes_max) {}

  virtual absl::StatusOr<FilePtr> CreateImpl(const std::string& name, uint64_t bytes) = 0;
  virtual absl::StatusOr<FilePtr> OpenImpl(const std::string& name) = 0;
  virtual absl::Status RemoveImpl(const std::string& name) = 0;
  virtual absl::Status TruncateImpl(const FilePtr& file, uint64_t bytes) = 0;
  virtual absl::StatusOr<std::vector<FileEntry>> ListImpl() = 0;
  // Calls io.done exactly once, from any thread.
  virtual void SubmitImpl(RawIo io) = 0;
  // pread or pwrite, waiting: the last resort for one transfer. io.done is not called.
  virtual int64_t BlockingImpl(const RawIo& io) = 0;
  virtual void RegisterBufferImpl(MutableByteSpan) {}

  // For wrappers.
  static void Submit(BlockDevice* device, RawIo io) { device->SubmitImpl(std::move(io)); }
  static int64_t Blocking(BlockDevice* device, const RawIo& io) { return device->BlockingImpl(io); }
  static void SetSizes(DeviceFile* file, uint64_t size, uint64_t allocated) { file->SetSizes(size, allocated); }

 private:
  struct Transfer;
  struct Piece;

  void Start(IoKind kind, FilePtr file, uint64_t offset, uint8_t* data, uint64_t length, IoDone done);
  void SubmitPiece(std::unique_ptr<Piece> piece);
  void OnPiece(std::unique_ptr<Piece> piece, int64_t result);
  void LastResort(std::unique_ptr<Piece> piece);
  void FinishPiece(const Piece& piece, int64_t error);

  const uint64_t transfer_bytes_max_;
  struct AtomicCounters {
    std::atomic<uint64_t> reads{0}, read_bytes{0}, writes{0}, written_bytes{0}, syncs{0}, resumed{0}, last_resort{0},
        errors{0};
  };
  AtomicCounters counters_;
  Outstanding outstanding_;
};

}  // namespace firn
