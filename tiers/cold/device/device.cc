#include "tiers/cold/device/device.h"

#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace firn {
namespace {

absl::Status CheckName(const std::string& name) {
  if (name.empty() || name.size() > 200 || name[0] == '.' || name.find('/') != std::string::npos) {
    return InvalidArgument("\"{}\" is not a device file's name", name);
  }
  return absl::OkStatus();
}

const char* KindName(IoKind kind) {
  switch (kind) {
    case IoKind::kRead:
      return "read";
    case IoKind::kWrite:
      return "write";
    case IoKind::kSync:
      return "fdatasync";
  }
  return "";
}

// Waits for one completion.
class Waiter {
 public:
  IoDone Done() {
    return [this](IoResult result) {
      std::lock_guard lock(mu_);
      result_ = std::move(result);
      ready_.notify_one();
    };
  }
  IoResult Wait() {
    std::unique_lock lock(mu_);
    ready_.wait(lock, [this] { return result_.has_value(); });
    return *std::move(result_);
  }

 private:
  std::mutex mu_;
  std::condition_variable ready_;
  std::optional<IoResult> result_;  // Guarded by mu_.
};

}  // namespace

// One public call; its pieces finish in any order, on any thread.
struct BlockDevice::Transfer {
  IoKind kind;
  FilePtr file;
  IoDone done;
  Outstanding::Ticket ticket;
  std::mutex mu;
  uint32_t pieces_left = 0;    // Guarded by mu, as all below.
  uint64_t gapless_bytes = 0;  // Everything before this offset of the transfer has been moved, unless a piece fails.
  absl::Status status;
};

struct BlockDevice::Piece {
  std::shared_ptr<Transfer> transfer;
  uint64_t start = 0;   // In the transfer.
  uint64_t offset = 0;  // In the file, of `start`.
  uint8_t* data = nullptr;
  uint64_t length = 0;
  uint64_t moved = 0;  // Always aligned until the piece ends.
  int stalls = 0;

  RawIo Rest() const {
    RawIo io;
    io.kind = transfer->kind;
    io.file = transfer->file;
    io.offset = offset + moved;
    io.data = data == nullptr ? nullptr : data + moved;
    io.length = static_cast<uint32_t>(length - moved);
    return io;
  }
};

absl::StatusOr<FilePtr> BlockDevice::Create(const std::string& name, uint64_t bytes) {
  FIRN_RETURN_IF_ERROR(CheckName(name));
  if (bytes == 0 || bytes % kIoAlignment != 0) {
    return InvalidArgument("create {}: {} bytes is not a positive multiple of {}", name, bytes, kIoAlignment);
  }
  auto ticket = outstanding_.Begin("creation of a file");
  return CreateImpl(name, bytes);
}

absl::StatusOr<FilePtr> BlockDevice::Open(const std::string& name) {
  FIRN_RETURN_IF_ERROR(CheckName(name));
  auto ticket = outstanding_.Begin("opening of a file");
  return OpenImpl(name);
}

absl::Status BlockDevice::Remove(const std::string& name) {
  FIRN_RETURN_IF_ERROR(CheckName(name));
  auto ticket = outstanding_.Begin("removal of a file");
  return RemoveImpl(name);
}

absl::Status BlockDevice::Truncate(const FilePtr& file, uint64_t bytes) {
  FIRN_CHECK(file != nullptr);
  if (bytes % kIoAlignment != 0 || bytes > file->size()) {
    return InvalidArgument("truncate {} of {} bytes to {}: not a multiple of {} within it", file->name(), file->size(),
                           bytes, kIoAlignment);
  }
  auto ticket = outstanding_.Begin("truncation of a file");
  return TruncateImpl(file, bytes);
}

absl::StatusOr<std::vector<FileEntry>> BlockDevice::List() {
  auto ticket = outstanding_.Begin("list of the files");
  return ListImpl();
}

void BlockDevice::Read(FilePtr file, uint64_t offset, MutableByteSpan target, IoDone done) {
  counters_.reads.fetch_add(1, std::memory_order_relaxed);
  Start(IoKind::kRead, std::move(file), offset, target.data(), target.size(), std::move(done));
}

void BlockDevice::Write(FilePtr file, uint64_t offset, ByteSpan source, IoDone done) {
  counters_.writes.fetch_add(1, std::memory_order_relaxed);
  Start(IoKind::kWrite, std::move(file), offset, const_cast<uint8_t*>(source.data()), source.size(), std::move(done));
}

void BlockDevice::Sync(FilePtr file, IoDone done) {
  FIRN_CHECK(file != nullptr);
  counters_.syncs.fetch_add(1, std::memory_order_relaxed);
  auto transfer = std::make_shared<Transfer>();
  transfer->kind = IoKind::kSync;
  transfer->file = std::move(file);
  transfer->done = std::move(done);
  transfer->ticket = outstanding_.Begin(KindName(IoKind::kSync));
  transfer->pieces_left = 1;
  auto piece = std::make_unique<Piece>();
  piece->transfer = std::move(transfer);
  SubmitPiece(std::move(piece));
}

void BlockDevice::Start(IoKind kind, FilePtr file, uint64_t offset, uint8_t* data, uint64_t length, IoDone done) {
  FIRN_CHECK(file != nullptr);
  uint64_t address = reinterpret_cast<uintptr_t>(data);
  if (offset % kIoAlignment != 0 || length % kIoAlignment != 0 || address % kIoAlignment != 0 || length == 0) {
    done({InvalidArgument("{} {}: offset {}, length {} and address {:#x} must be multiples of {}", KindName(kind),
                          file->name(), offset, length, address, kIoAlignment),
          0});
    return;
  }
  if (offset > file->size() || length > AlignUp(file->size(), kIoAlignment) - offset) {
    done({InvalidArgument("{} {}: {} bytes at {} pass its {} bytes", KindName(kind), file->name(), length, offset,
                          file->size()),
          0});
    return;
  }
  auto transfer = std::make_shared<Transfer>();
  transfer->kind = kind;
  transfer->file = std::move(file);
  transfer->done = std::move(done);
  transfer->ticket = outstanding_.Begin(KindName(kind));
  transfer->gapless_bytes = length;
  transfer->pieces_left = static_cast<uint32_t>((length + transfer_bytes_max_ - 1) / transfer_bytes_max_);
  for (uint64_t start = 0; start < length; start += transfer_bytes_max_) {
    auto piece = std::make_unique<Piece>();
    piece->transfer = transfer;
    piece->start = start;
    piece->offset = offset + start;
    piece->data = data + start;
    piece->length = std::min(transfer_bytes_max_, length - start);
    SubmitPiece(std::move(piece));
  }
}

void BlockDevice::SubmitPiece(std::unique_ptr<Piece> piece) {
  RawIo io = piece->Rest();
  io.done = [this, piece = std::move(piece)](int64_t result) mutable { OnPiece(std::move(piece), result); };
  SubmitImpl(std::move(io));
}

void BlockDevice::OnPiece(std::unique_ptr<Piece> piece, int64_t result) {
  if (piece->transfer->kind == IoKind::kSync) {
    // Never retried: a second fdatasync after an error reports success for pages that are gone. EINTR means it did not
    // run.
    if (result == -EINTR && ++piece->stalls <= kStallsMax) return SubmitPiece(std::move(piece));
    return FinishPiece(*piece, result < 0 ? result : 0);
  }
  if (result < 0 && result != -EINTR && result != -EAGAIN) return FinishPiece(*piece, result);
  uint64_t moved = piece->moved + static_cast<uint64_t>(std::max<int64_t>(result, 0));
  FIRN_CHECK(moved <= piece->length);
  if (moved == piece->length || (result == 0 && piece->transfer->kind == IoKind::kRead)) {
    piece->moved = moved;
    return FinishPiece(*piece, 0);
  }
  counters_.resumed.fetch_add(1, std::memory_order_relaxed);
  uint64_t aligned = AlignDown(moved, kIoAlignment);
  piece->stalls = aligned > piece->moved ? 0 : piece->stalls + 1;
  piece->moved = aligned;
  if (piece->stalls > kStallsMax) return LastResort(std::move(piece));
  SubmitPiece(std::move(piece));
}

void BlockDevice::LastResort(std::unique_ptr<Piece> piece) {
  counters_.last_resort.fetch_add(1, std::memory_order_relaxed);
  for (int stalls = 0;;) {
    int64_t result = BlockingImpl(piece->Rest());
    if (result < 0 && result != -EINTR && result != -EAGAIN) return FinishPiece(*piece, result);
    uint64_t moved = piece->moved + static_cast<uint64_t>(std::max<int64_t>(result, 0));
    uint64_t aligned = AlignDown(moved, kIoAlignment);
    stalls = aligned > piece->moved ? 0 : stalls + 1;
    if (moved == piece->length || stalls > kStallsMax) {
      // A file that ends inside a block gives the same few bytes for ever: that is its end, and for a write a failure.
      piece->moved = moved;
      bool lost = moved < piece->length && (piece->transfer->kind == IoKind::kWrite || result < 0);
      return FinishPiece(*piece, lost ? (result < 0 ? result : -EIO) : 0);
    }
    piece->moved = aligned;
  }
}

void BlockDevice::FinishPiece(const Piece& piece, int64_t error) {
  Transfer& transfer = *piece.transfer;
  IoResult result;
  {
    std::lock_guard lock(transfer.mu);
    if (error < 0) {
      counters_.errors.fetch_add(1, std::memory_order_relaxed);
      if (transfer.status.ok()) {
        transfer.status =
            ErrnoStatus(static_cast<int>(-error),
                        fmt::format("{} {} at {}, {} bytes", KindName(transfer.kind), transfer.file->name(),
                                    piece.offset + piece.moved, piece.length - piece.moved));
      }
    }
    if (piece.moved < piece.length)
      transfer.gapless_bytes = std::min(transfer.gapless_bytes, piece.start + piece.moved);
    if (--transfer.pieces_left > 0) return;
    result = {transfer.status, transfer.gapless_bytes};
  }
  if (transfer.kind == IoKind::kRead) counters_.read_bytes.fetch_add(result.bytes, std::memory_order_relaxed);
  if (transfer.kind == IoKind::kWrite) counters_.written_bytes.fetch_add(result.bytes, std::memory_order_relaxed);
  transfer.ticket = {};
  IoDone done = std::move(transfer.done);
  done(std::move(result));
}

absl::StatusOr<uint64_t> BlockDevice::ReadBlocking(const FilePtr& file, uint64_t offset, MutableByteSpan target) {
  Waiter waiter;
  Read(file, offset, target, waiter.Done());
  IoResult result = waiter.Wait();
  FIRN_RETURN_IF_ERROR(result.status);
  return result.bytes;
}

absl::Status BlockDevice::WriteBlocking(const FilePtr& file, uint64_t offset, ByteSpan source) {
  Waiter waiter;
  Write(file, offset, source, waiter.Done());
  return waiter.Wait().status;
}

absl::Status BlockDevice::SyncBlocking(const FilePtr& file) {
  Waiter waiter;
  Sync(file, waiter.Done());
  return waiter.Wait().status;
}

DeviceCounters BlockDevice::Counters() const {
  DeviceCounters out;
  out.reads = counters_.reads.load(std::memory_order_relaxed);
  out.read_bytes = counters_.read_bytes.load(std::memory_order_relaxed);
  out.writes = counters_.writes.load(std::memory_order_relaxed);
  out.written_bytes = counters_.written_bytes.load(std::memory_order_relaxed);
  out.syncs = counters_.syncs.load(std::memory_order_relaxed);
  out.resumed = counters_.resumed.load(std::memory_order_relaxed);
  out.last_resort = counters_.last_resort.load(std::memory_order_relaxed);
  out.errors = counters_.errors.load(std::memory_order_relaxed);
  return out;
}

}  // namespace firn
