// An index's files on a disk that fails: a wrapper around the system's file system, for tests of what becomes of it.
//
// The model. So many calls of the chosen kinds go well, and all after them fail with the one error until Mend; a call
// that fails changes nothing. On a full disk new files can still be made: that takes no data block. On one that can
// only be read nothing can be made, renamed or removed either. Threads: any. Ownership: files and environment refer to
// the faults, which outlive them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace rocksdb {
class Env;
}

namespace firn {

enum class FileFault : uint8_t { kNoSpace, kIoError, kReadOnly };

class FileFaults {
 public:
  // Calls that write or sync, after `calls` more of them; with kIoError and `reads` those that read, too.
  void FailAfter(uint64_t calls, FileFault fault, bool reads = false);
  void Mend();
  uint64_t refused() const { return refused_; }

  // What the file system asks.
  enum class Call : uint8_t { kRead, kWrite, kMake };  // kMake: making, renaming, removing.
  bool Fails(Call call);
  FileFault fault() const { return fault_; }
  bool full() const { return left_ == 0 && fault_ == FileFault::kNoSpace; }

 private:
  std::atomic<uint64_t> left_{~uint64_t{0}};
  std::atomic<FileFault> fault_{FileFault::kNoSpace};
  std::atomic<bool> reads_{false};
  std::atomic<uint64_t> refused_{0};
};

// For RocksDbOptions::env.
std::unique_ptr<rocksdb::Env> NewFaultyEnv(FileFaults* faults);

}  // namespace firn
