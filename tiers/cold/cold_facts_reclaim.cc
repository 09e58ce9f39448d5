// Reclaiming segments of facts: always the oldest, and what is still needed of it is rewritten.
#include <algorithm>
#include <utility>

#include "base/status.h"
#include "tiers/cold/cold_items.h"
#include "tiers/cold/log/segment_reader.h"

namespace firn {

void ColdTier::ReclaimFacts(const std::shared_ptr<ReclaimJob>& job) {
  removals_at_facts_reclaim_ = removals_;
  PostToExecutor([this, job] {
    SegmentReader reader(device_.get(), job->victim->file);
    std::vector<std::pair<ExtentHeader, std::vector<uint8_t>>> payloads;
    for (ExtentHeader& header : job->entries) {
      auto payload = reader.ReadPayload(header);
      // What cannot be read any more cannot be kept, but for the facts themselves, which the index has.
      if (payload.ok()) payloads.emplace_back(std::move(header), *std::move(payload));
    }
    Post([this, job, payloads = std::move(payloads)]() mutable { KeepFacts(job, std::move(payloads)); });
  });
}

// Rewrites what is still needed of the oldest facts segment. Removals are not: what they removed was here, or before.
void ColdTier::KeepFacts(const std::shared_ptr<ReclaimJob>& job,
                         std::vector<std::pair<ExtentHeader, std::vector<uint8_t>>> payloads) {
  std::map<std::string, uint64_t> unread;  // Facts that lie here and could not be read, by key, with their sequences.
  for (const auto& [key, known] : facts_) {
    if (known.place.segment == job->victim->id) unread.emplace(key, known.sequence);
  }
  for (const auto& [header, payload] : payloads) {
    if (header.kind != ExtentKind::kFact) continue;
    auto fact = ParseFact(payload);
    if (fact.ok()) unread.erase(FactKey(fact->kind, fact->name));
  }
  std::vector<FactRow> from_index;
  for (const auto& [key, sequence] : unread) {
    auto value = index_->Get(key);
    // It may say so another time, and until then nothing is written over and over.
    if (!value.ok() || index_broken_) return Post([this, job] { SpareVictim(job); });
    if (!value->has_value()) continue;
    auto row = ParseFactRow(**value);
    if (row.ok() && row->sequence == sequence) from_index.push_back(*std::move(row));
  }
  auto all_kept = std::make_shared<bool>(true);
  job->in_flight = 1;  // This function.
  auto noted = [this, job, all_kept](absl::Status status) {
    *all_kept &= status.ok();
    if (--job->in_flight > 0) return;
    if (*all_kept) return FinishReclaim(job);
    Post([this, job] { SpareVictim(job); });
  };
  auto rewrite = [&](ExtentKind kind, ByteSpan payload, uint64_t sequence) {
    auto item = std::make_unique<TombstoneItem>();
    item->privileged = true;
    item->done = noted;
    item->extents.push_back(MakeFactExtent(kind, payload, sequence));
    ++job->in_flight;
    AppendItem(std::move(item));
  };
  auto keep = [&](const FactPayload& fact, uint64_t sequence) {
    ++job->in_flight;
    AppendItem(MakeFactItem(ExtentKind::kFact, fact, sequence, true, noted));
  };
  for (const FactRow& row : from_index) keep(row.fact, row.sequence);
  std::vector<Tombstone> tombstones;
  for (auto& [header, payload] : payloads) {
    if (header.kind == ExtentKind::kFact) {
      auto fact = ParseFact(payload);
      if (!fact.ok()) continue;
      auto known = facts_.find(FactKey(fact->kind, fact->name));
      if (known == facts_.end() || known->second.sequence != header.sequence) continue;
      // Written anew already.
      if (known->second.place != header.place && segments_->Exists(known->second.place.segment)) continue;
      keep(*fact, header.sequence);
    } else if (header.kind == ExtentKind::kTombstones) {
      auto old = ParseTombstones(payload);
      if (!old.ok()) continue;
      for (const Tombstone& tombstone : *old) {
        bool needed = std::any_of(tombstone.segments.begin(), tombstone.segments.end(),
                                  [&](uint32_t id) { return id != 0 && segments_->Exists(id); });
        if (needed) tombstones.push_back(tombstone);
      }
    } else if (header.kind == ExtentKind::kNamespaceForgotten) {
      auto row = ParseNamespaceRow(AsText(payload));
      if (row.ok() && row->segment_bound > segments_->oldest_id()) rewrite(header.kind, payload, header.sequence);
    }
  }
  if (!tombstones.empty()) rewrite(ExtentKind::kTombstones, SerializeTombstones(tombstones), next_sequence_++);
  noted(absl::OkStatus());
}

}  // namespace firn
