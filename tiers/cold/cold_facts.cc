// Facts, tombstones and forgotten namespaces: the small things that must survive with the records, in a stream of their
// own.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/checksum.h"
#include "base/status.h"
#include "base/units.h"
#include "tiers/cold/cold_items.h"

namespace firn {
namespace {

constexpr uint64_t kFactBytesMax = 16 * kMiB;
constexpr uint64_t kFactNameBytesMax = 4 * kKiB;
constexpr size_t kTombstonesABatch = 512;
constexpr size_t kTombstonesAnExtent = 2048;

}  // namespace

void ColdTier::AppendItem(std::unique_ptr<Item> item) { writer_->Append(std::move(item)); }

LogExtent ColdTier::MakeFactExtent(ExtentKind kind, ByteSpan payload, uint64_t sequence) const {
  LogExtent extent;
  extent.header.kind = kind;
  extent.header.stream = Stream::kFacts;
  extent.header.sequence = sequence;
  extent.header.payload_bytes = payload.size();
  extent.header.payload_crc = Crc64(payload, sequence);
  extent.memory = ChunkPool::Lease::OnHeap(extent.header.extent_bytes());
  if (!payload.empty()) {
    std::memcpy(extent.memory->pieces()[0].data() + extent.header.header_bytes(), payload.data(), payload.size());
  }
  return extent;
}

std::unique_ptr<ColdTier::Item> ColdTier::MakeFactItem(ExtentKind kind, const FactPayload& fact, uint64_t sequence,
                                                       bool rewritten, FlushDone done) {
  auto item = std::make_unique<FactItem>();
  item->rewritten = rewritten;
  item->kind = kind;
  item->fact = fact;
  item->sequence = sequence;
  item->done = std::move(done);
  item->privileged = true;
  item->extents.push_back(MakeFactExtent(kind, SerializeFact(fact), sequence));
  return item;
}

void ColdTier::PutFact(RecoveredFact fact, FlushDone done) {
  if (fact.kind.empty() || fact.kind.find('\0') != std::string::npos || fact.kind.size() > kFactNameBytesMax ||
      fact.name.size() > kFactNameBytesMax || fact.value.size() > kFactBytesMax) {
    return done(InvalidArgument(
        "fact of kind \"{}\": kind {} and name {} bytes of at most {}, value {} bytes of at most {}", fact.kind,
        fact.kind.size(), fact.name.size(), kFactNameBytesMax, fact.value.size(), kFactBytesMax));
  }
  if (closing_) return done(FailedPrecondition("cold tier {} is closed", name()));
  Post([this, payload = FactPayload{std::move(fact.kind), std::move(fact.name), std::move(fact.value)},
        done = std::move(done)]() mutable {
    AppendItem(MakeFactItem(ExtentKind::kFact, payload, next_sequence_++, false, std::move(done)));
  });
}

void ColdTier::DeleteFact(const std::string& kind, const std::string& name_of_fact, FlushDone done) {
  if (closing_) return done(FailedPrecondition("cold tier {} is closed", name()));
  Post([this, payload = FactPayload{kind, name_of_fact, {}}, done = std::move(done)]() mutable {
    AppendItem(MakeFactItem(ExtentKind::kFactRemoved, payload, next_sequence_++, false, std::move(done)));
  });
}

void ColdTier::FactItem::Settled(ColdTier* tier, SettleContext* context) {
  std::string key = FactKey(fact.kind, fact.name);
  auto known = tier->facts_.find(key);
  bool newest = known == tier->facts_.end() ? !rewritten : known->second.sequence <= sequence;
  if (status.ok() && newest && !rewritten && known != tier->facts_.end()) {
    tier->dead_fact_bytes_ += extents[0].header.extent_bytes();
    tier->removals_ += tier->dead_fact_bytes_ / tier->options_.segment_bytes;
    tier->dead_fact_bytes_ %= tier->options_.segment_bytes;
  }
  if (status.ok() && newest) {
    if (kind == ExtentKind::kFact) {
      ExtentPlace place = extents[0].header.place;
      tier->facts_[key] = {sequence, place};
      context->batch.Put(key, FactValue({fact, sequence, place}));
    } else {
      if (known != tier->facts_.end()) tier->facts_.erase(known);
      context->batch.Delete(key);
    }
  }
  if (done) context->after.push_back([done = std::move(done), result = status]() mutable { done(result); });
}

void ColdTier::ForgetNamespace(const Digest& namespace_fingerprint, FlushDone done) {
  Post([this, namespace_fingerprint, done = std::move(done)]() mutable {
    auto item = std::make_unique<NamespaceItem>();
    item->row = {next_sequence_++, namespace_fingerprint, segments_->next_id()};
    item->done = std::move(done);
    item->privileged = true;
    std::string payload = NamespaceValue(item->row);
    item->extents.push_back(MakeFactExtent(ExtentKind::kNamespaceForgotten, AsBytes(payload), item->row.sequence));
    AppendItem(std::move(item));
  });
}

void ColdTier::NamespaceItem::Settled(ColdTier* tier, SettleContext* context) {
  if (status.ok()) {
    context->batch.Put(NamespaceKey(row.sequence), NamespaceValue(row));
    // Locations do not say whose they are in memory; the index does.
    std::vector<uint64_t> sequences;
    absl::Status visited =
        tier->index_->Visit("L", RecordKey(row.sequence), [&](std::string_view key, std::string_view value) {
          auto record = ParseRecordRow(key, value);
          if (record.ok() && record->note.identity.namespace_fingerprint == row.namespace_fingerprint)
            sequences.push_back(record->sequence);
          return true;
        });
    absl::flat_hash_map<uint64_t, ColdCopyPtr> live;
    std::lock_guard lock(tier->mu_);
    for (const SegmentPtr& segment : tier->segments_->All()) {
      for (const ColdCopyPtr& copy : segment->slots) {
        if (copy != nullptr) live[copy->sequence] = copy;
      }
    }
    for (uint64_t sequence : sequences) {
      context->batch.Delete(RecordKey(sequence));
      auto found = live.find(sequence);
      if (found != live.end()) tier->ForgetLocked(found->second, false);
    }
    if (!visited.ok()) status = visited;
  }
  context->after.push_back([done = std::move(done), result = status]() mutable { done(result); });
}

// Tells the index what was forgotten, which outlives the process. The log, which outlives a power cut and the index, is
// told in batches: a tombstone alone would take a block of its own.
void ColdTier::DrainForgotten() {
  std::vector<Tombstone> tombstones;
  bool urgent = index_broken_;
  {
    std::lock_guard lock(mu_);
    tombstones.swap(forgotten_);
    draining_ = false;
    urgent |= std::exchange(forgotten_urgent_, false);
  }
  // What could not be logged before waits for Tick or for company, so that a failing medium is not asked again at once.
  if (tombstones.empty()) return;
  IndexBatch batch;
  for (const Tombstone& tombstone : tombstones) {
    batch.Delete(RecordKey(tombstone.sequence));
    bool on_medium = false;
    for (uint32_t segment : tombstone.segments) {
      if (segment == 0 || !segments_->Exists(segment)) continue;
      batch.Put(TombstoneKey(segment, tombstone.sequence), "");
      on_medium = true;
    }
    if (!on_medium) continue;
    unlogged_.push_back(tombstone);
    batch.Put(UnloggedKey(tombstone.sequence), std::string(AsText(SerializeTombstones({tombstone}))));
  }
  ApplyBatch(std::move(batch));
  if (urgent || unlogged_.size() >= kTombstonesABatch) LogTombstones();
}

void ColdTier::LogTombstones() {
  std::vector<Tombstone> tombstones = std::move(unlogged_);
  unlogged_.clear();
  std::erase_if(tombstones, [&](const Tombstone& tombstone) {
    return std::none_of(tombstone.segments.begin(), tombstone.segments.end(),
                        [&](uint32_t id) { return id != 0 && segments_->Exists(id); });
  });
  for (size_t at = 0; at < tombstones.size(); at += kTombstonesAnExtent) {
    size_t end = std::min(at + kTombstonesAnExtent, tombstones.size());
    std::vector<Tombstone> part(tombstones.begin() + static_cast<ptrdiff_t>(at),
                                tombstones.begin() + static_cast<ptrdiff_t>(end));
    auto item = std::make_unique<TombstoneItem>();
    item->privileged = true;
    item->done = [this, part](absl::Status status) mutable {
      if (!status.ok()) {
        ++tombstone_failures_;
        if (status.code() == absl::StatusCode::kResourceExhausted) ++tombstones_without_room_;
        unlogged_.insert(unlogged_.end(), part.begin(), part.end());  // Tried again with the next batch.
        return;
      }
      IndexBatch logged;
      for (const Tombstone& tombstone : part) logged.Delete(UnloggedKey(tombstone.sequence));
      ApplyBatch(std::move(logged));
    };
    item->extents.push_back(MakeFactExtent(ExtentKind::kTombstones, SerializeTombstones(part), next_sequence_++));
    AppendItem(std::move(item));
  }
}

void ColdTier::ForgetImpl(const CopyPtr& copy, const Identity&) {
  auto cold = std::static_pointer_cast<ColdCopy>(std::const_pointer_cast<Copy>(copy));
  bool post = false;
  {
    std::lock_guard lock(mu_);
    ForgetLocked(cold, true);
    post = !std::exchange(draining_, true);
  }
  if (post) Post([this] { DrainForgotten(); });
}

bool ColdTier::ForgetLocked(const ColdCopyPtr& copy, bool in_log) {
  if (in_log && !copy->tombstoned) {
    // Also for what reclaiming has dropped: its segment may still be there when the power goes.
    Tombstone tombstone{copy->sequence, {}};
    for (size_t i = 0; i < kRecordExtentsMax; ++i) tombstone.segments[i] = copy->extents[i].segment;
    forgotten_.push_back(tombstone);
    copy->tombstoned = true;
  }
  if (copy->forgotten) return false;
  for (size_t i = 0; i < kRecordExtentsMax; ++i) UnlinkExtentLocked(copy.get(), i);
  --copies_;
  stored_bytes_ -= copy->StoredBytes();
  copy->layout.AddHeldBytes(static_cast<int64_t>(copy->StoredBytes()));
  copy->forgotten = true;
  return true;
}

}  // namespace firn
