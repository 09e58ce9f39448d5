// A small ext4 of a test's own, in a file below TMPDIR: to fill it up, or to have its disk fail.
//
// Threads: one thread drives it. Needs root and loop devices, the failing one FUSE too: WhyNot() says what is not to be
// had, and the test skips. Unmounted and removed with the object, whoever still has files open in it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace firn {

class LoopFileSystem {
 public:
  // kFailing: what ext4 lies on answers with EIO whenever the test says so.
  enum class Disk { kSound, kFailing };

  explicit LoopFileSystem(uint64_t bytes, Disk disk = Disk::kSound);
  ~LoopFileSystem();
  LoopFileSystem(const LoopFileSystem&) = delete;
  LoopFileSystem& operator=(const LoopFileSystem&) = delete;

  // Empty when it is there.
  std::string WhyNot() const;
  // What the commands that made it have said.
  std::string Said() const;
  std::filesystem::path path() const { return folder_ / "mount"; }
  // Takes all the room there is, to the last byte; false if that could not be begun.
  bool Fill() const;
  void Free() const;
  // Every read, write and flush of the disk fails from now on, or works again. ext4 takes no writes after that until it
  // is mounted anew.
  void FailDisk() const;
  void MendDisk() const;
  // Unmounts, checks and mounts it again; false if one of them failed. Nobody may have files open in it.
  bool Remount() const;

 private:
  bool Run(const std::string& command) const;
  std::string Quoted(const char* name) const { return "'" + (folder_ / name).string() + "'"; }
  bool Mount() const;
  bool ServeFailing() const;

  const Disk disk_;
  std::filesystem::path folder_;
  bool mounted_ = false;
};

}  // namespace firn
