#include "tiers/cold/layout_table.h"

#include "base/check.h"

namespace firn {

struct LayoutRef::Entry {
  ColdLayout layout;
  uint64_t references = 0;  // Guarded by the state's mutex.
  std::shared_ptr<State> state;
};

struct LayoutRef::State {
  struct Hash {
    using is_transparent = void;
    size_t operator()(const ColdLayout& layout) const { return absl::Hash<ColdLayout>()(layout); }
    size_t operator()(const Entry* entry) const { return absl::Hash<ColdLayout>()(entry->layout); }
  };
  struct Equal {
    using is_transparent = void;
    bool operator()(const Entry* a, const Entry* b) const { return a->layout == b->layout; }
    bool operator()(const Entry* a, const ColdLayout& b) const { return a->layout == b; }
    bool operator()(const ColdLayout& a, const Entry* b) const { return a == b->layout; }
  };
  std::atomic<int64_t> held_bytes{0};
  std::mutex mu;
  absl::flat_hash_set<Entry*, Hash, Equal> entries;  // Guarded by mu.
};

LayoutRef::~LayoutRef() {
  if (entry_ == nullptr) return;
  std::shared_ptr<State> state = entry_->state;
  std::lock_guard lock(state->mu);
  if (--entry_->references > 0) return;
  state->entries.erase(entry_);
  delete entry_;
}

const ColdLayout& LayoutRef::operator*() const {
  FIRN_CHECK(entry_ != nullptr);
  return entry_->layout;
}

void LayoutRef::AddHeldBytes(int64_t bytes) const {
  if (entry_ != nullptr) entry_->state->held_bytes += bytes;
}

uint64_t LayoutTable::held_bytes() const { return static_cast<uint64_t>(state_->held_bytes.load()); }

LayoutTable::LayoutTable() : state_(std::make_shared<LayoutRef::State>()) {}
LayoutTable::~LayoutTable() = default;

LayoutRef LayoutTable::Intern(const ColdLayout& layout) {
  std::lock_guard lock(state_->mu);
  auto found = state_->entries.find(layout);
  LayoutRef::Entry* entry = nullptr;
  if (found != state_->entries.end()) {
    entry = *found;
  } else {
    entry = new LayoutRef::Entry{layout, 0, state_};
    state_->entries.insert(entry);
  }
  ++entry->references;
  return LayoutRef(entry);
}

size_t LayoutTable::size() const {
  std::lock_guard lock(state_->mu);
  return state_->entries.size();
}

}  // namespace firn
