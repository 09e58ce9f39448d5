// Whole files to and from the daemon, in batches that keep memory and progress in bounds. Threads: one.
#pragma once

#include <memory>
#include <vector>

#include "client/cli/support/selection.h"

namespace firn::cli {

struct PutSummary {
  uint64_t blocks = 0, stored = 0, existing = 0, failed = 0;
  uint64_t bytes = 0;  // Of the blocks sent or found there.
  double seconds = 0;
  std::vector<std::string> failures;  // The first few, one line each.
};
absl::StatusOr<PutSummary> PutFile(firnkv::Client* client, const firnkv::Namespace& ns, const KvFile& file,
                                   const std::vector<FileBlock>& blocks, const firnkv::PutOptions& options,
                                   bool progress);

// One block that came back.
struct FetchedBlock {
  firnkv::GetResult result;                           // `payload` is moved to `values` where floats were asked for.
  double relative_error_k = 0, relative_error_v = 0;  // ||x - x^|| / ||x|| against the file; where it was compared.
  double squared_error[2] = {0, 0}, squared_norm[2] = {0, 0};
};
struct GetSummary {
  std::vector<FetchedBlock> blocks;
  uint64_t found = 0, missed = 0, failed = 0;
  uint64_t payload_bytes = 0;
  double seconds = 0;
  // Over all blocks found; 0 where nothing was compared.
  double RelativeError(int part) const;
};
// Fetches blocks; compares them with `file`, whose blocks they are, where it is given.
absl::StatusOr<GetSummary> GetBlocks(firnkv::Client* client, const firnkv::Namespace& ns,
                                     const std::vector<firnkv::BlockKey>& keys, const firnkv::GetOptions& options,
                                     const KvFile* file, const std::vector<FileBlock>* file_blocks, bool progress);

}  // namespace firn::cli
