// An index that says what it has been asked and not answered yet: its files lie on the medium that may hang.
//
// Threads and errors: as the index it wraps. Ownership: owns that; borrows `outstanding`, which outlives it.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "tiers/cold/device/outstanding.h"
#include "tiers/cold/index/key_value_index.h"

namespace firn {

class WatchedIndex final : public KeyValueIndex {
 public:
  WatchedIndex(std::unique_ptr<KeyValueIndex> index, Outstanding* outstanding)
      : index_(std::move(index)), outstanding_(outstanding) {}

  absl::Status Apply(const IndexBatch& batch) override {
    auto ticket = outstanding_->Begin("write of the index");
    return index_->Apply(batch);
  }
  absl::Status Sync() override {
    auto ticket = outstanding_->Begin("sync of the index");
    return index_->Sync();
  }
  absl::StatusOr<std::optional<std::string>> Get(const std::string& key) override {
    auto ticket = outstanding_->Begin("read of the index");
    return index_->Get(key);
  }
  // Long where much is visited, and the visitor's time with it: not a call that the medium is late with.
  absl::Status Visit(const std::string& first, const std::string& last, const Visitor& visit) override {
    return index_->Visit(first, last, visit);
  }
  absl::StatusOr<uint64_t> FileBytes() override {
    auto ticket = outstanding_->Begin("look at the index");
    return index_->FileBytes();
  }
  absl::Status Reopen() override {
    auto ticket = outstanding_->Begin("opening of the index");
    return index_->Reopen();
  }

 private:
  const std::unique_ptr<KeyValueIndex> index_;
  Outstanding* const outstanding_;
};

}  // namespace firn
