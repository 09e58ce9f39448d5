// A region over a DAX device, or over a file for tests and for persistent-memory file systems.
//
// Both are locked (flock) against a second daemon. What an earlier run left in them is never read: it is zeroed before
// reuse. A file begins with a marker of ours, so that somebody else's data is never taken for room. Errors: NotFound
// where the path is not there, FailedPrecondition where it is something else, somebody else's or in use,
// InvalidArgument where it is smaller than asked for, ResourceExhausted where the file system is full; errno kept.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tiers/warm/memory/memory_region.h"

namespace firn {

// `bytes` 0 takes the whole device.
absl::StatusOr<std::unique_ptr<MemoryRegion>> OpenDaxRegion(const std::string& device, uint64_t bytes);

// The file is created, or emptied where it is ours or empty, and grows with Populate.
absl::StatusOr<std::unique_ptr<MemoryRegion>> OpenFileRegion(const std::string& path, uint64_t bytes);

// What opening would say of the path (not whether it is in use). Nothing is created or changed.
absl::Status CheckDaxRegion(const std::string& device, uint64_t bytes);
absl::Status CheckFileRegion(const std::string& path);

}  // namespace firn
