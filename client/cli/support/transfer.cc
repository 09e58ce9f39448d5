#include "client/cli/support/transfer.h"

#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "client/cli/support/output.h"

namespace firn::cli {
namespace {

constexpr uint64_t kBatchBytesMax = 64 << 20;
constexpr size_t kBatchBlocksMax = 256;
constexpr size_t kFailuresShown = 5;

size_t BatchBlocks(uint64_t block_bytes) {
  return std::clamp<uint64_t>(kBatchBytesMax / std::max<uint64_t>(block_bytes, 1), 1, kBatchBlocksMax);
}

void CountPut(const firnkv::PutResult& result, const FileBlock& block, uint64_t bytes, PutSummary* summary) {
  ++summary->blocks;
  if (!result.status.ok()) {
    ++summary->failed;
    if (summary->failures.size() < kFailuresShown) {
      summary->failures.push_back(
          fmt::format("tokens {} to {}: {}", block.first, block.first + block.count - 1, Message(result.status)));
    }
    return;
  }
  ++(result.stored ? summary->stored : summary->existing);
  summary->bytes += bytes;
}

// Compares FP32 values that came back with the file's.
absl::Status Compare(const KvFile& file, const FileBlock& block, uint64_t k_values, FetchedBlock* fetched) {
  FIRN_ASSIGN_OR_RETURN(std::vector<float> expected, file.Values(block.first, block.count));
  const std::vector<uint8_t>& payload = fetched->result.payload;
  if (payload.size() != expected.size() * sizeof(float)) {
    return DataLoss("a block of {} bytes came back; the file's block has {} values", payload.size(), expected.size());
  }
  if (k_values > 0) fetched->parts[0].emplace();
  if (k_values < expected.size()) fetched->parts[1].emplace();
  for (size_t i = 0; i < expected.size(); ++i) {
    double was = expected[i], is = LoadLe<float>(payload.data() + i * sizeof(float));
    PartComparison& part = *fetched->parts[i < k_values ? 0 : 1];
    if (!std::isfinite(was)) {
      ++part.not_finite_in_file;
    } else if (!std::isfinite(is)) {
      ++part.not_finite_came_back;
    } else {
      part.squared_error += (is - was) * (is - was);
      part.squared_norm += was * was;
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PutSummary> PutFile(firnkv::Client* client, const firnkv::Namespace& ns, const KvFile& file,
                                   const std::vector<FileBlock>& blocks, const firnkv::PutOptions& options,
                                   bool progress) {
  PutSummary summary;
  Progress bar("put", blocks.size(), progress);
  size_t batch = BatchBlocks(ns.block_bytes);
  for (size_t at = 0; at < blocks.size(); at += batch) {
    size_t end = std::min(blocks.size(), at + batch);
    std::vector<firnkv::PutItem> items;
    for (size_t i = at; i < end; ++i) {
      firnkv::PutItem item{
          .key = blocks[i].key, .parent = blocks[i].parent, .first_token = blocks[i].first, .tokens = blocks[i].count};
      item.parts = file.Parts(blocks[i].first, blocks[i].count);
      item.layout = file.LayoutOf(blocks[i].count);
      item.token_importance = blocks[i].importance;
      items.push_back(std::move(item));
    }
    FIRN_ASSIGN_OR_RETURN(std::vector<firnkv::PutResult> results, client->Put(ns, items, options));
    uint64_t before = summary.bytes;
    for (size_t i = at; i < end; ++i) CountPut(results[i - at], blocks[i], items[i - at].parts.bytes(), &summary);
    bar.Add(end - at, summary.bytes - before);
  }
  summary.seconds = bar.seconds();
  return summary;
}

std::optional<double> PartComparison::RelativeError() const {
  if (!finite()) return std::nullopt;
  return std::sqrt(squared_error / std::max(squared_norm, 1e-30));
}

std::optional<double> GetSummary::RelativeError(int part) const {
  std::optional<PartComparison> sum;
  for (const FetchedBlock& block : blocks) {
    const std::optional<PartComparison>& one = block.parts[part];
    if (!one.has_value() || !one->finite()) continue;
    if (!sum.has_value()) sum.emplace();
    sum->squared_error += one->squared_error;
    sum->squared_norm += one->squared_norm;
  }
  return sum.has_value() ? sum->RelativeError() : std::nullopt;
}

uint64_t GetSummary::NotFinite(int part) const {
  return static_cast<uint64_t>(std::count_if(blocks.begin(), blocks.end(), [part](const FetchedBlock& block) {
    return block.parts[part].has_value() && !block.parts[part]->finite();
  }));
}

absl::StatusOr<GetSummary> GetBlocks(firnkv::Client* client, const firnkv::Namespace& ns,
                                     const std::vector<firnkv::BlockKey>& keys, const firnkv::GetOptions& options,
                                     const KvFile* file, const std::vector<FileBlock>* file_blocks, bool progress) {
  GetSummary summary;
  Progress bar("get", keys.size(), progress);
  size_t batch = BatchBlocks(ns.block_bytes);
  for (size_t at = 0; at < keys.size(); at += batch) {
    size_t end = std::min(keys.size(), at + batch);
    std::vector<firnkv::GetItem> items;
    for (size_t i = at; i < end; ++i) items.push_back({.key = keys[i], .allocate = true});
    FIRN_ASSIGN_OR_RETURN(std::vector<firnkv::GetResult> results, client->Get(ns, items, options));
    uint64_t bytes = 0;
    for (size_t i = at; i < end; ++i) {
      FetchedBlock& block = summary.blocks.emplace_back();
      block.result = std::move(results[i - at]);
      const absl::Status& status = block.result.status;
      ++(status.ok() ? summary.found : absl::IsNotFound(status) ? summary.missed : summary.failed);
      bytes += block.result.payload.size();
      if (file == nullptr || !status.ok()) continue;
      FIRN_RETURN_IF_ERROR(Compare(*file, (*file_blocks)[i], block.result.k_bytes / sizeof(float), &block));
      block.result.payload = {};  // Compared: files may be larger than memory.
    }
    summary.payload_bytes += bytes;
    bar.Add(end - at, bytes);
  }
  summary.seconds = bar.seconds();
  return summary;
}

}  // namespace firn::cli
