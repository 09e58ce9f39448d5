// A directory device over io_uring: one ring, owned by one long-lived thread, at a fixed depth.
//
// No more transfers are in flight than the completion queue has room for, so that it never overflows. Memory and files
// are registered with the ring where the kernel allows it (RLIMIT_MEMLOCK); where not, that is said once and plain
// transfers are used. If the ring itself breaks, what was in flight and what follows goes through pread and pwrite on
// the ring's thread. Threads: callers only queue; the ring's thread submits, reaps and runs the callbacks. Errors of
// Open: what io_uring_setup answered, with its errno, the likely cause and the cure; OpenDevice then falls back.
#pragma once

#include <memory>
#include <string_view>

#include "tiers/cold/device/directory_device.h"

namespace firn {

class UringRing;

class UringDevice final : public DirectoryDevice {
 public:
  static absl::StatusOr<std::unique_ptr<UringDevice>> Open(const DirectoryOptions& options);
  ~UringDevice() override;
  std::string_view backend() const override;
  // What the ring could register; for tests and metrics.
  bool buffers_registered() const;
  bool files_registered() const;

 protected:
  FilePtr MakeFile(std::string name, int fd) override;
  void SubmitImpl(RawIo io) override;
  void RegisterBufferImpl(MutableByteSpan memory) override;

 private:
  explicit UringDevice(const DirectoryOptions& options);

  std::shared_ptr<UringRing> ring_;
};

}  // namespace firn
