#include "tiers/cold/index/memory_index.h"

#include "base/status.h"

namespace firn {

std::string PrefixEnd(std::string prefix) {
  while (!prefix.empty()) {
    auto& last = reinterpret_cast<unsigned char&>(prefix.back());
    if (last != 0xff) {
      ++last;
      return prefix;
    }
    prefix.pop_back();
  }
  return std::string(64, '\xff');
}

void MemoryIndex::ApplyTo(const IndexBatch& batch, std::map<std::string, std::string>* rows) {
  for (const IndexBatch::Op& op : batch.ops()) {
    switch (op.kind) {
      case IndexBatch::OpKind::kPut:
        (*rows)[op.key] = op.value;
        break;
      case IndexBatch::OpKind::kDelete:
        rows->erase(op.key);
        break;
      case IndexBatch::OpKind::kDeletePrefix:
        rows->erase(rows->lower_bound(op.key), rows->lower_bound(PrefixEnd(op.key)));
        break;
    }
  }
}

absl::Status MemoryIndex::Apply(const IndexBatch& batch) {
  std::lock_guard lock(mu_);
  if (!failing_.ok()) broken_ = true;
  if (broken_) return failing_.ok() ? FailedPrecondition("the index must be reopened") : failing_;
  ApplyTo(batch, &rows_);
  unsynced_.push_back(batch);
  return absl::OkStatus();
}

absl::Status MemoryIndex::Sync() {
  std::lock_guard lock(mu_);
  if (!failing_.ok()) broken_ = true;
  if (broken_) return failing_.ok() ? FailedPrecondition("the index must be reopened") : failing_;
  for (const IndexBatch& batch : unsynced_) ApplyTo(batch, &durable_);
  unsynced_.clear();
  return absl::OkStatus();
}

absl::StatusOr<std::optional<std::string>> MemoryIndex::Get(const std::string& key) {
  std::lock_guard lock(mu_);
  auto found = rows_.find(key);
  if (found == rows_.end()) return std::optional<std::string>();
  return std::optional<std::string>(found->second);
}

absl::Status MemoryIndex::Visit(const std::string& first, const std::string& last, const Visitor& visit) {
  std::lock_guard lock(mu_);
  for (auto row = rows_.lower_bound(first); row != rows_.end() && row->first < last; ++row) {
    if (!visit(row->first, row->second)) break;
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> MemoryIndex::FileBytes() {
  std::lock_guard lock(mu_);
  return rows_.size() * 256;
}

absl::Status MemoryIndex::Reopen() {
  std::lock_guard lock(mu_);
  if (!failing_.ok()) return failing_;
  broken_ = false;
  return absl::OkStatus();
}

void MemoryIndex::CutPower(std::mt19937_64* random) {
  std::lock_guard lock(mu_);
  size_t kept = (*random)() % (unsynced_.size() + 1);
  for (size_t i = 0; i < kept; ++i) ApplyTo(unsynced_[i], &durable_);
  unsynced_.clear();
  rows_ = durable_;
}

void MemoryIndex::SetFailing(absl::Status status) {
  std::lock_guard lock(mu_);
  failing_ = std::move(status);
}

void MemoryIndex::Clear() {
  std::lock_guard lock(mu_);
  rows_.clear();
  durable_.clear();
  unsynced_.clear();
}

}  // namespace firn
