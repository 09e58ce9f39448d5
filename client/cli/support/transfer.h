// Whole files to and from the daemon, in batches that keep memory and progress in bounds. Threads: one.
#pragma once

#include <memory>
#include <optional>
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

// What came back of one part of a block against the file. NaN and infinities have no distance: they are counted.
struct PartComparison {
  double squared_error = 0, squared_norm = 0;
  uint64_t not_finite_in_file = 0, not_finite_came_back = 0;  // Values; the latter where the file's is finite.
  bool finite() const { return not_finite_in_file + not_finite_came_back == 0; }
  // ||x - x^|| / ||x||; none where a value is not finite.
  std::optional<double> RelativeError() const;
};

// One block that came back.
struct FetchedBlock {
  firnkv::GetResult result;
  std::optional<PartComparison> parts[2];  // K and V, where they were compared.
};
struct GetSummary {
  std::vector<FetchedBlock> blocks;
  uint64_t found = 0, missed = 0, failed = 0;
  uint64_t payload_bytes = 0;
  double seconds = 0;
  // Over the blocks that were compared and are finite; none where there is no such block.
  std::optional<double> RelativeError(int part) const;
  // Blocks with values that are not finite, which the error leaves out.
  uint64_t NotFinite(int part) const;
};
// Fetches blocks; compares them with `file`, whose blocks they are, where it is given.
absl::StatusOr<GetSummary> GetBlocks(firnkv::Client* client, const firnkv::Namespace& ns,
                                     const std::vector<firnkv::BlockKey>& keys, const firnkv::GetOptions& options,
                                     const KvFile* file, const std::vector<FileBlock>* file_blocks, bool progress);

}  // namespace firn::cli
