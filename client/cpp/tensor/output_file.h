// Writes a file that a reader never sees half: beside its path first, then renamed over it.
//
// What is at the path must be a regular file or nothing. A symbolic link, a directory, a device or a FIFO is refused
// and left as it is: a rename would replace it, whatever it stands for. Threads: any. Errors: InvalidArgument for such
// a path; the errno's status otherwise.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/bytes.h"

namespace firn {

// Whether `path` could be written, for callers with much to do before they write.
absl::Status CheckOutputPath(const std::string& path);

// The pieces, one after the other.
absl::Status WriteOutputFile(const std::string& path, const std::vector<ByteSpan>& pieces);

}  // namespace firn
