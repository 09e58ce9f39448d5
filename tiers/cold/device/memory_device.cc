#include "tiers/cold/device/memory_device.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace firn {

class MemoryDevice::MemoryFile final : public DeviceFile {
 public:
  MemoryFile(std::string name, std::shared_ptr<Contents> its) : DeviceFile(std::move(name)), contents(std::move(its)) {}
  const std::shared_ptr<Contents> contents;
};

uint64_t MemoryDevice::UsedLocked() const {
  uint64_t used = 0;
  for (const auto& [name, contents] : files_) used += contents->bytes.size();
  return used;
}

uint64_t MemoryDevice::UsedBytes() {
  std::lock_guard lock(mu_);
  return UsedLocked();
}

void MemoryDevice::SetCapacity(uint64_t bytes) {
  std::lock_guard lock(mu_);
  capacity_ = bytes;
}

absl::StatusOr<FilePtr> MemoryDevice::CreateImpl(const std::string& name, uint64_t bytes) {
  std::lock_guard lock(mu_);
  if (files_.contains(name)) return ErrnoStatus(EEXIST, "create " + name);
  if (UsedLocked() + bytes > capacity_)
    return ErrnoStatus(ENOSPC, fmt::format("preallocate {} bytes for {}", bytes, name));
  auto contents = std::make_shared<Contents>();
  contents->bytes.resize(bytes);
  files_[name] = contents;
  FilePtr file = std::make_shared<MemoryFile>(name, contents);
  SetSizes(file.get(), bytes, bytes);
  return file;
}

absl::StatusOr<FilePtr> MemoryDevice::OpenImpl(const std::string& name) {
  std::lock_guard lock(mu_);
  auto found = files_.find(name);
  if (found == files_.end()) return ErrnoStatus(ENOENT, "open " + name);
  FilePtr file = std::make_shared<MemoryFile>(name, found->second);
  SetSizes(file.get(), found->second->bytes.size(), found->second->bytes.size());
  return file;
}

absl::Status MemoryDevice::RemoveImpl(const std::string& name) {
  std::lock_guard lock(mu_);
  files_.erase(name);
  return absl::OkStatus();
}

absl::Status MemoryDevice::TruncateImpl(const FilePtr& file, uint64_t bytes) {
  std::lock_guard lock(mu_);
  Contents& contents = *static_cast<MemoryFile&>(*file).contents;
  if (bytes < contents.bytes.size()) contents.bytes.resize(bytes);
  SetSizes(file.get(), bytes, bytes);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<FileEntry>> MemoryDevice::ListImpl() {
  std::lock_guard lock(mu_);
  std::vector<FileEntry> out;
  for (const auto& [name, contents] : files_) out.push_back({name, contents->bytes.size(), contents->bytes.size()});
  return out;
}

int64_t MemoryDevice::BlockingImpl(const RawIo& io) {
  std::lock_guard lock(mu_);
  Contents& contents = *static_cast<MemoryFile&>(*io.file).contents;
  if (io.kind == IoKind::kSync) {
    contents.unsynced.clear();
    return 0;
  }
  uint64_t size = contents.bytes.size();
  uint64_t count = io.offset >= size ? 0 : std::min<uint64_t>(io.length, size - io.offset);
  if (io.kind == IoKind::kRead) {
    std::copy_n(contents.bytes.data() + io.offset, count, io.data);
    return static_cast<int64_t>(count);
  }
  auto at = contents.bytes.begin() + static_cast<ptrdiff_t>(io.offset);
  contents.unsynced.push_back({io.offset, {at, at + static_cast<ptrdiff_t>(count)}, {io.data, io.data + count}});
  std::copy_n(io.data, count, at);
  return static_cast<int64_t>(count);
}

void MemoryDevice::SubmitImpl(RawIo io) {
  int64_t result = BlockingImpl(io);
  auto done = std::move(io.done);
  io = RawIo();
  done(result);
}

void MemoryDevice::CutPower(std::mt19937_64* random) {
  std::lock_guard lock(mu_);
  for (auto& [name, contents] : files_) {
    std::vector<Unsynced> lost = std::move(contents->unsynced);
    contents->unsynced.clear();
    for (auto write = lost.rbegin(); write != lost.rend(); ++write) {
      uint64_t room = contents->bytes.size() > write->offset ? contents->bytes.size() - write->offset : 0;
      std::copy_n(
          write->before.begin(), std::min<uint64_t>(room, write->before.size()),
          contents->bytes.begin() + static_cast<ptrdiff_t>(std::min<uint64_t>(write->offset, contents->bytes.size())));
    }
    std::shuffle(lost.begin(), lost.end(), *random);
    for (const Unsynced& write : lost) {
      uint64_t kind = (*random)() % 4;
      if (kind == 0) continue;  // Dropped whole.
      uint64_t sector = kind == 1 ? 512 : 4096;
      for (uint64_t at = 0; at < write.after.size(); at += sector) {
        if (kind != 3 && (*random)() % 2 == 0) continue;  // Torn: this sector did not make it.
        uint64_t end = std::min<uint64_t>(at + sector, write.after.size());
        if (write.offset + end > contents->bytes.size()) break;
        std::copy(write.after.begin() + static_cast<ptrdiff_t>(at), write.after.begin() + static_cast<ptrdiff_t>(end),
                  contents->bytes.begin() + static_cast<ptrdiff_t>(write.offset + at));
      }
    }
  }
}

void MemoryDevice::Poke(const std::string& name, uint64_t offset, ByteSpan bytes) {
  std::lock_guard lock(mu_);
  auto found = files_.find(name);
  FIRN_CHECK(found != files_.end() && offset + bytes.size() <= found->second->bytes.size());
  std::copy(bytes.begin(), bytes.end(), found->second->bytes.begin() + static_cast<ptrdiff_t>(offset));
}

std::vector<uint8_t> MemoryDevice::Peek(const std::string& name) {
  std::lock_guard lock(mu_);
  auto found = files_.find(name);
  FIRN_CHECK(found != files_.end());
  return found->second->bytes;
}

void MemoryDevice::Shorten(const std::string& name, uint64_t bytes) {
  std::lock_guard lock(mu_);
  auto found = files_.find(name);
  FIRN_CHECK(found != files_.end() && bytes <= found->second->bytes.size());
  found->second->bytes.resize(bytes);
}

}  // namespace firn
