// What a test sees of a daemon from outside: its descriptors, the disk that it takes, its metrics; and waiting for it.
//
// Threads: any. Errors: what cannot be observed is 0, empty or NaN.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace firn {

// Resident memory that a daemon built with AddressSanitizer, as this test is then too, has on top: what was freed is
// kept.
#ifdef __SANITIZE_ADDRESS__
inline constexpr uint64_t kSanitizerBytes = uint64_t{1} << 30;
#else
inline constexpr uint64_t kSanitizerBytes = 0;
#endif

// Open descriptors of a process, those of files below `except` aside; 0 when it is gone.
uint64_t OpenDescriptors(pid_t pid, const std::filesystem::path& except = {});

// Bytes of disk that a folder and all below it take, as `du` counts them. What vanishes meanwhile counts as 0.
uint64_t DiskBytes(const std::filesystem::path& folder);

// True as soon as `holds` does; false after `limit_ms`.
bool Eventually(const std::function<bool()>& holds, int64_t limit_ms = 30'000);

// The body of http://127.0.0.1:PORT/PATH; empty when nobody answers.
std::string HttpGet(uint16_t port, const std::string& path);

// The value of a line of /metrics, named with its labels as it is written there; NaN when there is none.
double MetricValue(const std::string& metrics, const std::string& series);

}  // namespace firn
