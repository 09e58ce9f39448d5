// A directory device over pread, pwrite and fdatasync, in a pool of threads: where io_uring is not to be had.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tiers/cold/device/directory_device.h"

namespace firn {

class PosixDevice final : public DirectoryDevice {
 public:
  static absl::StatusOr<std::unique_ptr<PosixDevice>> Open(const DirectoryOptions& options);
  ~PosixDevice() override;
  std::string_view backend() const override { return "pread"; }

 protected:
  void SubmitImpl(RawIo io) override;

 private:
  static constexpr uint32_t kThreadsMax = 32;

  explicit PosixDevice(const DirectoryOptions& options) : DirectoryDevice(options) {}
  void Run();

  std::mutex mu_;
  std::condition_variable wake_;
  std::deque<RawIo> queue_;  // Guarded by mu_. Bounded by the memory its callers may stage.
  bool stopping_ = false;    // Guarded by mu_.
  std::vector<std::thread> threads_;
};

}  // namespace firn
