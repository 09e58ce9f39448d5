// Where a command's artifact goes: a file, the daemon, or both. Threads: one.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "client/cli/support/context.h"
#include "codecs/artifact.h"

namespace firn::cli {

// Writes it to `path` unless that is empty, and hands it to the daemon where `to_daemon`. Internal where the daemon
// gives it another name.
absl::Status DeliverArtifact(Context* context, const Artifact& artifact, const std::string& path, bool to_daemon);

}  // namespace firn::cli
