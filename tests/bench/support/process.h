// Child processes and temporary folders of benchmarks. Threads: one. Ownership: a child ends, and a folder goes, with
// its object.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace firn::bench {

class Child {
 public:
  // Output goes to `log_path`.
  static absl::StatusOr<std::unique_ptr<Child>> Start(const std::vector<std::string>& command,
                                                      const std::string& log_path);
  ~Child();
  bool running();
  // Of all its threads so far, in user and kernel mode.
  double CpuSeconds() const;

 private:
  explicit Child(pid_t pid) : pid_(pid) {}
  const pid_t pid_;
  bool reaped_ = false;
};

// As Child::CpuSeconds, of this process.
double OwnCpuSeconds();

class TempFolder {
 public:
  explicit TempFolder(const std::string& parent);  // Empty: $TMPDIR or /tmp.
  ~TempFolder();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Keeps the optimizer from dropping a result.
template <typename T>
void Keep(const T& value) {
  asm volatile("" : : "r,m"(value) : "memory");
}

}  // namespace firn::bench
