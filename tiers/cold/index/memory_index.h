// The index in memory: for tests, and for a cold tier over a memory device. It can lose power and fail like a full
// disk.
#pragma once

#include <map>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "tiers/cold/index/key_value_index.h"

namespace firn {

class MemoryIndex final : public KeyValueIndex {
 public:
  absl::Status Apply(const IndexBatch& batch) override;
  absl::Status Sync() override;
  absl::StatusOr<std::optional<std::string>> Get(const std::string& key) override;
  absl::Status Visit(const std::string& first, const std::string& last, const Visitor& visit) override;
  absl::StatusOr<uint64_t> FileBytes() override;
  absl::Status Reopen() override;

  // Loses a random number of the batches applied since the last Sync, the newest ones.
  void CutPower(std::mt19937_64* random);
  // From now on Apply and Sync fail until SetFailing(OK) and Reopen.
  void SetFailing(absl::Status status);
  void Clear();

 private:
  static void ApplyTo(const IndexBatch& batch, std::map<std::string, std::string>* rows);

  std::mutex mu_;
  std::map<std::string, std::string> rows_;  // Guarded by mu_, as all below.
  std::map<std::string, std::string> durable_;
  std::vector<IndexBatch> unsynced_;
  absl::Status failing_;
  bool broken_ = false;
};

}  // namespace firn
