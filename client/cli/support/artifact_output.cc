#include "client/cli/support/artifact_output.h"

#include "base/status.h"
#include "client/cpp/tensor/output_file.h"

namespace firn::cli {

absl::Status DeliverArtifact(Context* context, const Artifact& artifact, const std::string& path, bool to_daemon) {
  ByteSpan serialized = artifact.serialized();
  if (!path.empty()) FIRN_RETURN_IF_ERROR(WriteOutputFile(path, {serialized}));
  if (!to_daemon) return absl::OkStatus();
  FIRN_ASSIGN_OR_RETURN(firnkv::Client * client, context->Connect());
  FIRN_ASSIGN_OR_RETURN(firnkv::Digest registered, client->PutArtifact(AsText(serialized)));
  if (registered.Hex() == artifact.digest().Hex()) return absl::OkStatus();
  return InternalError("the daemon named the artifact {}; {} expected", registered.Hex(), artifact.digest().Hex());
}

}  // namespace firn::cli
