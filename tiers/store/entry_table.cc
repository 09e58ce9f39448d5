#include "tiers/store/entry_table.h"

#include <utility>

namespace firn {
namespace {

// Shards of a block share a digest, so the shard is mixed in; the digest itself is already uniform.
size_t HashName(uint32_t ns, uint16_t shard, const Digest& key) {
  uint64_t h = key.Prefix() ^ ((uint64_t{ns} << 16 | shard) * 0x9E3779B97F4A7C15ull);
  return static_cast<size_t>(h ^ (h >> 29));
}

}  // namespace

size_t EntryTable::Hash::operator()(EntryId id) const {
  const Entry& e = table->entries_[id];
  return HashName(e.ns, e.shard, e.key);
}
size_t EntryTable::Hash::operator()(const EntryName& name) const { return HashName(name.ns, name.shard, name.key); }

bool EntryTable::Equal::operator()(EntryId a, const EntryName& b) const {
  const Entry& e = table->entries_[a];
  return e.ns == b.ns && e.shard == b.shard && e.key == b.key;
}

EntryTable::EntryTable() : by_name_(0, Hash{this}, Equal{this}) {}

EntryId EntryTable::Find(const EntryName& name) const {
  auto it = by_name_.find(name);
  return it == by_name_.end() ? kNoEntry : *it;
}

EntryId EntryTable::Insert(const EntryName& name) {
  FIRN_CHECK(Find(name) == kNoEntry);
  EntryId id = entries_.Allocate();
  Entry& e = entries_[id];
  e.ns = name.ns;
  e.shard = name.shard;
  e.key = name.key;
  e.flags = Entry::kUsed;
  by_name_.insert(id);
  return id;
}

void EntryTable::Erase(EntryId id) {
  Entry& e = entries_[id];
  FIRN_CHECK((e.flags & Entry::kUsed) && e.first_copy == kNoNode);
  Unlink(id);
  for (EntryId child = e.first_child; child != kNoEntry;) {
    Entry& c = entries_[child];
    EntryId next = c.next_sibling;
    c.parent = c.next_sibling = c.previous_sibling = kNoEntry;
    child = next;
  }
  by_name_.erase(id);
  SetRanks(id, nullptr);
  entries_.Free(id);
}

void EntryTable::Unlink(EntryId child) {
  Entry& c = entries_[child];
  if (c.parent == kNoEntry) return;
  if (c.previous_sibling != kNoEntry) {
    entries_[c.previous_sibling].next_sibling = c.next_sibling;
  } else {
    entries_[c.parent].first_child = c.next_sibling;
  }
  if (c.next_sibling != kNoEntry) entries_[c.next_sibling].previous_sibling = c.previous_sibling;
  c.parent = c.next_sibling = c.previous_sibling = kNoEntry;
}

void EntryTable::LinkParent(EntryId child, EntryId parent) {
  FIRN_CHECK(child != parent);
  Unlink(child);
  Entry& c = entries_[child];
  Entry& p = entries_[parent];
  c.parent = parent;
  c.next_sibling = p.first_child;
  if (p.first_child != kNoEntry) entries_[p.first_child].previous_sibling = child;
  p.first_child = child;
}

NodeId EntryTable::AddCopy(EntryId id, uint8_t tier, CopyPtr copy, ClassPair served) {
  FIRN_CHECK(copy != nullptr && FindCopy(id, tier) == nullptr);
  NodeId node = copies_.Allocate();
  HeldCopy& held = copies_[node];
  held.copy = std::move(copy);
  held.entry = id;
  held.tier = tier;
  held.served = served;
  held.used = true;
  NodeId* link = &entries_[id].first_copy;
  while (*link != kNoNode && copies_[*link].tier < tier) link = &copies_[*link].next;
  held.next = *link;
  *link = node;
  return node;
}

CopyPtr EntryTable::RemoveCopy(EntryId id, uint8_t tier) {
  NodeId* link = &entries_[id].first_copy;
  while (*link != kNoNode && copies_[*link].tier != tier) link = &copies_[*link].next;
  FIRN_CHECK(*link != kNoNode);
  NodeId node = *link;
  *link = copies_[node].next;
  CopyPtr copy = std::move(copies_[node].copy);
  copies_.Free(node);
  return copy;
}

NodeId EntryTable::FindCopyNode(EntryId id, uint8_t tier) const {
  for (NodeId node = entries_[id].first_copy; node != kNoNode; node = copies_[node].next) {
    if (copies_[node].tier == tier) return node;
  }
  return kNoNode;
}

HeldCopy* EntryTable::FindCopy(EntryId id, uint8_t tier) {
  NodeId node = FindCopyNode(id, tier);
  return node == kNoNode ? nullptr : &copies_[node];
}
const HeldCopy* EntryTable::FindCopy(EntryId id, uint8_t tier) const {
  NodeId node = FindCopyNode(id, tier);
  return node == kNoNode ? nullptr : &copies_[node];
}

uint8_t EntryTable::HottestTier(EntryId id) const {
  NodeId node = entries_[id].first_copy;
  return node == kNoNode ? static_cast<uint8_t>(kTiersMax) : copies_[node].tier;
}

uint64_t EntryTable::MemoryBytes() const {
  return entries_.MemoryBytes() + copies_.MemoryBytes() + by_name_.capacity() * (sizeof(EntryId) + 1) +
         ranks_.capacity() * (sizeof(std::pair<EntryId, TokenRanks>) + 1) + rank_bytes_;
}

TokenRanks EntryTable::RanksOf(EntryId id) const {
  auto it = ranks_.find(id);
  return it == ranks_.end() ? nullptr : it->second;
}

void EntryTable::SetRanks(EntryId id, TokenRanks ranks) {
  // The vector with its reference counts, and its bytes.
  auto bytes_of = [](const TokenRanks& r) { return sizeof(std::vector<uint8_t>) + 16 + r->capacity(); };
  auto it = ranks_.find(id);
  if (it != ranks_.end()) rank_bytes_ -= bytes_of(it->second);
  if (ranks == nullptr) {
    if (it != ranks_.end()) ranks_.erase(it);
    return;
  }
  rank_bytes_ += bytes_of(ranks);
  ranks_[id] = std::move(ranks);
}

}  // namespace firn
