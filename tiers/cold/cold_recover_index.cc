// The index's side of a start: facts, tombstones, and every location, checked against the segments there are.
#include <algorithm>
#include <utility>

#include "tiers/cold/cold_recoverer.h"

namespace firn {
namespace {

// Sequence numbers that may have been given out and left no trace.
constexpr uint64_t kSequenceGap = uint64_t{1} << 20;

}  // namespace

absl::Status ColdTier::Recoverer::ReadIndexFacts() {
  absl::Status problem;
  auto visit = [&](const char* letter, const std::function<absl::Status(std::string_view, std::string_view)>& row) {
    return tier_.index_->Visit(letter, PrefixEnd(letter), [&](std::string_view key, std::string_view value) {
      index_empty_ = false;
      absl::Status status = row(key, value);
      if (!status.ok()) problem = status;
      return status.ok();
    });
  };
  FIRN_RETURN_IF_ERROR(visit("S", [&](std::string_view key, std::string_view) -> absl::Status {
    FIRN_ASSIGN_OR_RETURN(uint32_t id, ParseSegmentKey(key));
    if (tier_.segments_->Find(id) != nullptr) {
      indexed_.insert(id);
    } else if (!refused_.contains(id)) {
      batch_.Delete(std::string(key));
      batch_.DeletePrefix(TombstonePrefix(id));
    }
    return absl::OkStatus();
  }));
  FIRN_RETURN_IF_ERROR(visit("T", [&](std::string_view key, std::string_view) -> absl::Status {
    FIRN_ASSIGN_OR_RETURN(TombstoneKeyParts parts, ParseTombstoneKey(key));
    sequence_max_ = std::max(sequence_max_, parts.sequence);
    if (!indexed_.contains(parts.segment)) dead_.insert(parts.sequence);
    return absl::OkStatus();
  }));
  FIRN_RETURN_IF_ERROR(visit("U", [&](std::string_view, std::string_view value) -> absl::Status {
    FIRN_ASSIGN_OR_RETURN(std::vector<Tombstone> tombstones, ParseTombstones(AsBytes(value)));
    tier_.unlogged_.insert(tier_.unlogged_.end(), tombstones.begin(), tombstones.end());
    return absl::OkStatus();
  }));
  FIRN_RETURN_IF_ERROR(visit("N", [&](std::string_view key, std::string_view value) -> absl::Status {
    FIRN_ASSIGN_OR_RETURN(NamespaceForgottenRow row, ParseNamespaceRow(value));
    sequence_max_ = std::max(sequence_max_, row.sequence);
    if (row.segment_bound <= tier_.segments_->oldest_id()) {
      batch_.Delete(std::string(key));
    } else {
      namespaces_.push_back(row);
    }
    return absl::OkStatus();
  }));
  FIRN_RETURN_IF_ERROR(visit("F", [&](std::string_view key, std::string_view value) -> absl::Status {
    FIRN_ASSIGN_OR_RETURN(FactRow row, ParseFactRow(value));
    sequence_max_ = std::max(sequence_max_, row.sequence);
    facts_[std::string(key)] = std::move(row);
    return absl::OkStatus();
  }));
  FIRN_RETURN_IF_ERROR(visit("M", [&](std::string_view key, std::string_view value) -> absl::Status {
    FIRN_ASSIGN_OR_RETURN(uint64_t number, ParseNumber(value));
    if (key == NumberKey("next_sequence")) sequence_max_ = std::max(sequence_max_, number);
    if (key == NumberKey("next_segment")) tier_.segments_->SetNextIdAtLeast(static_cast<uint32_t>(number));
    return absl::OkStatus();
  }));
  return problem;
}

absl::Status ColdTier::Recoverer::ElectWinners() {
  absl::Status problem;
  FIRN_RETURN_IF_ERROR(tier_.index_->Visit("L", PrefixEnd("L"), [&](std::string_view key, std::string_view value) {
    index_empty_ = false;
    auto name = ParseRecordName(key, value);
    if (!name.ok()) {
      problem = name.status();
      return false;
    }
    sequence_max_ = std::max(sequence_max_, name->first);
    if (!IsForgotten(name->first, name->second.namespace_fingerprint)) Elect(name->first, name->second);
    return true;
  }));
  FIRN_RETURN_IF_ERROR(problem);
  for (auto& [sequence, record] : replayed_) {
    const RecordNote& note = record.extents[0].note;
    if (!record.extents[0].has_record_header || IsForgotten(sequence, note.identity.namespace_fingerprint)) continue;
    FIRN_ASSIGN_OR_RETURN(std::optional<std::string> row, tier_.index_->Get(RecordKey(sequence)));
    record.seen = row.has_value();
    if (!record.seen) Elect(sequence, note.identity);
  }
  return absl::OkStatus();
}

void ColdTier::Recoverer::LoadCopy(RecordRow row, bool new_to_index) {
  if (row.extents.empty() || !PlaceExists(row.extents[0], row.note, true)) {
    report_.missing_extents += row.extents.size();
    if (!row.extents.empty() && refused_.contains(row.extents[0].place.segment)) return;
    batch_.Delete(RecordKey(row.sequence));
    return MaybeApply();
  }
  size_t before = row.extents.size();
  std::erase_if(row.extents, [&, base = row.extents[0].place](const RowExtent& extent) {
    return !PlaceExists(extent, row.note, extent.place == base);
  });
  report_.missing_extents += before - row.extents.size();
  RunMask present;
  for (const RowExtent& extent : row.extents) present |= extent.shape.runs;
  auto copy = std::make_shared<ColdCopy>(row.sequence, row.note.digest);
  copy->layout = tier_.layouts_.Intern(LayoutOf(row.note, row.extents));
  bool wins = Wins(row.sequence, row.note.identity);
  {
    std::lock_guard lock(tier_.mu_);
    tier_.LinkLocked(copy, row.extents);
    if (!wins) tier_.ForgetLocked(copy, true);
  }
  if (!wins) return;
  if (new_to_index) batch_.Put(RecordKey(row.sequence), RecordValue(row));
  MaybeApply();
  ++report_.copies;
  if (!recovery_.on_copy) return;
  RecoveredCopy out;
  out.identity = row.note.identity;
  out.parent = row.note.parent;
  out.first_token = row.note.first_token;
  out.tokens = row.note.tokens;
  out.expires_unix_ms = row.note.expires_unix_ms;
  out.encoded_class = row.note.classes[0];
  out.stored_class = row.note.ClassOf(present);
  out.copy = std::move(copy);
  recovery_.on_copy(std::move(out));
}

void ColdTier::Recoverer::TellFacts() {
  for (auto& [key, row] : facts_) {
    tier_.facts_[key] = {row.sequence, row.place};
    ++report_.facts;
    if (recovery_.on_fact) recovery_.on_fact({row.fact.kind, row.fact.name, row.fact.value});
  }
}

absl::Status ColdTier::Recoverer::LoadLocations() {
  FIRN_RETURN_IF_ERROR(tier_.index_->Visit("L", PrefixEnd("L"), [&](std::string_view key, std::string_view value) {
    auto row = ParseRecordRow(key, value);
    if (!row.ok()) {
      ++report_.missing_extents;
      batch_.Delete(std::string(key));
      return true;
    }
    if (IsForgotten(row->sequence, row->note.identity.namespace_fingerprint)) {
      batch_.Delete(std::string(key));
      MaybeApply();
      return true;
    }
    bool changed = false;
    auto replayed = replayed_.empty() ? replayed_.end() : replayed_.find(row->sequence);
    if (replayed != replayed_.end()) {
      // Moved, and the index had not been told: the new place stands in for one that is gone.
      for (const ExtentHeader& header : replayed->second.extents) {
        for (RowExtent& extent : row->extents) {
          if (PlaceExists(extent, row->note, &extent == row->extents.data()) ||
              (extent.shape.runs & header.shape.runs).Empty())
            continue;
          if (header.has_record_header) row->note = header.note;
          extent = {header.place, header.shape};
          changed = true;
        }
      }
      // Planes that the medium would not give at an earlier start.
      RunMask covered;
      for (const RowExtent& extent : row->extents) covered |= extent.shape.runs;
      for (const ExtentHeader& header : replayed->second.extents) {
        if (header.note.digest != row->note.digest || row->extents.size() == kRecordExtentsMax) continue;
        if (!(header.shape.runs & covered).Empty() || !row->note.written.Contains(header.shape.runs)) continue;
        covered |= header.shape.runs;
        row->extents.push_back({header.place, header.shape});
        changed = true;
      }
    }
    LoadCopy(*std::move(row), changed);
    return true;
  }));
  return absl::OkStatus();
}

void ColdTier::Recoverer::LoadReplayed() {
  for (auto& [sequence, record] : replayed_) {
    const ExtentHeader& base = record.extents[0];
    if (record.seen || !base.has_record_header || IsForgotten(sequence, base.note.identity.namespace_fingerprint))
      continue;
    RecordRow row{sequence, base.note, {}};
    RunMask covered;
    // The newest place of each first; the record header's extent leads.
    for (const ExtentHeader& header : record.extents) {
      if (!(header.shape.runs & covered).Empty() || !base.note.written.Contains(header.shape.runs)) continue;
      if (header.note.digest != base.note.digest || row.extents.size() == kRecordExtentsMax) continue;
      covered |= header.shape.runs;
      row.extents.push_back({header.place, header.shape});
    }
    LoadCopy(std::move(row), true);
  }
}

absl::Status ColdTier::Recoverer::Finish() {
  for (const SegmentPtr& segment : sealed_now_) batch_.Put(SegmentKey(segment->id), std::string(1, '\1'));
  tier_.next_sequence_ = sequence_max_ + kSequenceGap;
  tier_.ApplyBatch(std::exchange(batch_, IndexBatch()));
  report_.rebuilt = index_empty_ && report_.segments > 0;
  return absl::OkStatus();
}

}  // namespace firn
