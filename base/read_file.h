// Reads a small file whole: configuration, certificates, keys.
//
// Threads: any. Never waits for a writer and never grows without bound: only regular files are read, at most
// `bytes_max`, also where the file grows meanwhile. Errors name path and limit: the open's errno, InvalidArgument for a
// directory, device, FIFO or socket, and for a file that is too large.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace firn {

// What a path is, for messages: "a directory".
const char* FileKindName(mode_t mode);

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, uint64_t bytes_max);

}  // namespace firn
