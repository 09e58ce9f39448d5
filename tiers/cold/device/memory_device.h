// A block device in memory that can lose power: for tests, and for what a power cut leaves behind.
//
// What was written and not yet synced is remembered write by write; CutPower keeps a random part of it, in random
// order, torn at 512 bytes or 4 KiB, and forgets the rest. Files are created, truncated and removed durably, as
// directory devices do. Threads: any. Transfers complete inside the call.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "tiers/cold/device/device.h"

namespace firn {

class MemoryDevice final : public BlockDevice {
 public:
  // ENOSPC above `capacity_bytes`.
  explicit MemoryDevice(uint64_t capacity_bytes) : BlockDevice(uint64_t{512} << 10), capacity_(capacity_bytes) {}
  std::string_view backend() const override { return "memory"; }

  // Call with nothing in flight. Files opened before stay valid and see what is left.
  void CutPower(std::mt19937_64* random);
  // Damages stored bytes, as a medium does.
  void Poke(const std::string& name, uint64_t offset, ByteSpan bytes);
  std::vector<uint8_t> Peek(const std::string& name);
  // The file ends at `bytes`, behind the back of whoever has it open.
  void Shorten(const std::string& name, uint64_t bytes);
  void SetCapacity(uint64_t bytes);
  uint64_t UsedBytes();

 protected:
  absl::StatusOr<FilePtr> CreateImpl(const std::string& name, uint64_t bytes) override;
  absl::StatusOr<FilePtr> OpenImpl(const std::string& name) override;
  absl::Status RemoveImpl(const std::string& name) override;
  absl::Status TruncateImpl(const FilePtr& file, uint64_t bytes) override;
  absl::StatusOr<std::vector<FileEntry>> ListImpl() override;
  void SubmitImpl(RawIo io) override;
  int64_t BlockingImpl(const RawIo& io) override;

 private:
  struct Unsynced {
    uint64_t offset = 0;
    std::vector<uint8_t> before;  // What was there, so that the write can be undone.
    std::vector<uint8_t> after;
  };
  struct Contents {
    std::vector<uint8_t> bytes;
    std::vector<Unsynced> unsynced;  // Oldest first.
  };
  class MemoryFile;

  uint64_t UsedLocked() const;

  std::mutex mu_;
  uint64_t capacity_;                                       // Guarded by mu_.
  std::map<std::string, std::shared_ptr<Contents>> files_;  // Guarded by mu_, contents too.
};

}  // namespace firn
