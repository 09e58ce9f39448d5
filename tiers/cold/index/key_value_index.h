// An ordered map on the medium, as a seam: RocksDB in the daemon, memory in tests.
//
// Threads: all calls are safe from any thread. Batches apply atomically and in order; after a crash a prefix of them is
// left. Errors: after an error of Apply or Sync the index may be unusable until Reopen succeeds.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace firn {

class IndexBatch {
 public:
  enum class OpKind : uint8_t { kPut, kDelete, kDeletePrefix };
  struct Op {
    OpKind kind;
    std::string key;
    std::string value;
  };

  void Put(std::string key, std::string value) { Add({OpKind::kPut, std::move(key), std::move(value)}); }
  void Delete(std::string key) { Add({OpKind::kDelete, std::move(key), {}}); }
  void DeletePrefix(std::string prefix) { Add({OpKind::kDeletePrefix, std::move(prefix), {}}); }
  void Append(IndexBatch other) {
    for (Op& op : other.ops_) Add(std::move(op));
  }
  const std::vector<Op>& ops() const { return ops_; }
  bool empty() const { return ops_.empty(); }
  uint64_t bytes() const { return bytes_; }

 private:
  void Add(Op op) {
    bytes_ += op.key.size() + op.value.size();
    ops_.push_back(std::move(op));
  }
  std::vector<Op> ops_;
  uint64_t bytes_ = 0;
};

class KeyValueIndex {
 public:
  // Returns false to stop.
  using Visitor = std::function<bool(std::string_view key, std::string_view value)>;

  virtual ~KeyValueIndex() = default;
  // Not durable against power loss until Sync; durable against the end of the process.
  virtual absl::Status Apply(const IndexBatch& batch) = 0;
  virtual absl::Status Sync() = 0;
  virtual absl::StatusOr<std::optional<std::string>> Get(const std::string& key) = 0;
  // Keys in [first, last), in order.
  virtual absl::Status Visit(const std::string& first, const std::string& last, const Visitor& visit) = 0;
  // What its files take of the medium.
  virtual absl::StatusOr<uint64_t> FileBytes() = 0;
  // Closes and opens again after an error.
  virtual absl::Status Reopen() = 0;
};

// The first key behind all keys that start with `prefix`.
std::string PrefixEnd(std::string prefix);

}  // namespace firn
