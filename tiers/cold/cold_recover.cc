// The log's side of a start: segments, what the index does not know of them, and what was under way.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "tiers/cold/cold_recoverer.h"

namespace firn {

absl::Status ColdTier::Recoverer::OpenSegments() {
  FIRN_ASSIGN_OR_RETURN(std::vector<FileEntry> files, tier_.device_->List());
  uint32_t id_max = 0;
  for (const FileEntry& entry : files) {
    auto id = ParseSegmentFileName(entry.name);
    if (!id) {
      tier_.segments_->CountForeign(
          static_cast<int64_t>(entry.allocated_bytes));  // Not ours to remove; it takes space all the same.
      continue;
    }
    id_max = std::max(id_max, *id);
    auto file = tier_.device_->Open(entry.name);
    absl::Status status = file.status();
    if (file.ok()) {
      auto header = SegmentReader(tier_.device_.get(), *file).ReadHeader();
      status = header.status();
      if (status.ok() && header->id != *id) status = DataLoss("{} holds segment {:08x}", entry.name, header->id);
      if (status.ok()) {
        SegmentPtr segment = tier_.segments_->Adopt(*id, *std::move(file), header->salt);
        segment->stream = header->stream;
        segment->state = SegmentState::kSealed;
        segment->data_bytes = segment->append_at = segment->file->size();
        ++report_.segments;
        continue;
      }
      file = absl::UnknownError("closed");
    }
    if (status.code() == absl::StatusCode::kFailedPrecondition) return status;  // Of a later version: hands off.
    bool refused = StatusErrno(status).has_value();
    if (refused) {
      // The medium would not say. It may tomorrow; until then the bytes count, the blocks in it are misses, and the
      // index keeps what it knows of it.
      refused_.insert(*id);
      tier_.segments_->NoteUnreadable(*id);
      tier_.segments_->CountForeign(static_cast<int64_t>(entry.allocated_bytes));
    } else {
      FIRN_RETURN_IF_ERROR(tier_.device_->Remove(entry.name));
    }
    if (tier_.options_.notice && status.code() != absl::StatusCode::kNotFound) tier_.options_.notice(Message(status));
  }
  tier_.segments_->SetNextIdAtLeast(id_max + 1);
  return absl::OkStatus();
}

void ColdTier::Recoverer::ReplayFact(const SegmentPtr& segment, const ExtentHeader& header) {
  auto payload = SegmentReader(tier_.device_.get(), segment->file).ReadPayload(header);
  if (!payload.ok()) return;
  if (header.kind == ExtentKind::kTombstones) {
    auto tombstones = ParseTombstones(*payload);
    if (!tombstones.ok()) return;
    for (const Tombstone& tombstone : *tombstones) {
      dead_.insert(tombstone.sequence);
      sequence_max_ = std::max(sequence_max_, tombstone.sequence);
      for (uint32_t id : tombstone.segments) {
        if (id != 0 && tier_.segments_->Exists(id)) batch_.Put(TombstoneKey(id, tombstone.sequence), "");
      }
    }
    MaybeApply();
  } else if (header.kind == ExtentKind::kNamespaceForgotten) {
    auto row = ParseNamespaceRow(AsText(*payload));
    if (!row.ok()) return;
    batch_.Put(NamespaceKey(row->sequence), NamespaceValue(*row));
    namespaces_.push_back(*row);
  } else if (header.kind == ExtentKind::kFact) {
    auto fact = ParseFact(*payload);
    if (!fact.ok()) return;
    std::string key = FactKey(fact->kind, fact->name);
    auto known = facts_.find(key);
    if (known != facts_.end() && known->second.sequence > header.sequence) return;
    FactRow row{*std::move(fact), header.sequence, header.place};
    batch_.Put(key, FactValue(row));
    facts_[key] = std::move(row);
  } else if (header.kind == ExtentKind::kFactRemoved) {
    auto fact = ParseFact(*payload);
    if (!fact.ok()) return;
    uint64_t& removed = facts_removed_[FactKey(fact->kind, fact->name)];
    removed = std::max(removed, header.sequence);
  }
}

absl::Status ColdTier::Recoverer::ReadUnindexed() {
  for (const SegmentPtr& segment : tier_.segments_->All()) {
    if (indexed_.contains(segment->id)) continue;
    SegmentReader reader(tier_.device_.get(), segment->file);
    auto contents = reader.ReadFooter(segment->id, segment->salt);
    if (!contents.ok()) {
      contents = reader.Scan(segment->id, segment->salt, [&](const ExtentHeader& header, MutableByteSpan extent) {
        return tier_.MendExtent(header, segment->salt, extent);
      });
    }
    if (!contents.ok()) {
      refused_.insert(segment->id);
      segment->unread = true;
      if (tier_.options_.notice) tier_.options_.notice(Message(contents.status()));
      continue;
    }
    report_.torn_extents += contents->torn;
    report_.mended_extents += contents->mended;
    segment->has_footer = contents->sealed;
    segment->data_bytes = segment->append_at = contents->data_end;
    if (segment->stream == Stream::kUnassigned) {
      segment->stream = contents->extents.empty() ? Stream::kBase : contents->extents[0].stream;
    }
    for (const ExtentHeader& header : contents->extents) {
      ++report_.replayed_extents;
      sequence_max_ = std::max(sequence_max_, header.sequence);
      if (header.kind == ExtentKind::kRecord) {
        AddReplayed(header, contents->sealed);
      } else {
        ReplayFact(segment, header);
      }
    }
    if (contents->refused_bytes > 0) {
      // Without a footer: the next start looks for what could not be read once more.
      refused_.insert(segment->id);
      segment->unread = true;
      if (tier_.options_.notice) {
        tier_.options_.notice(
            fmt::format("{}: {} bytes could not be read", segment->file->name(), contents->refused_bytes));
      }
      continue;
    }
    if (!contents->sealed) {
      unsealed_.emplace_back(segment, *std::move(contents));
      continue;
    }
    sealed_now_.push_back(segment);
  }
  for (const auto& [key, sequence] : facts_removed_) {
    auto known = facts_.find(key);
    if (known == facts_.end() || known->second.sequence > sequence) continue;
    facts_.erase(known);
    batch_.Delete(key);
  }
  return absl::OkStatus();
}

void ColdTier::Recoverer::AddReplayed(ExtentHeader header, bool sealed) {
  Replayed& record = replayed_[header.sequence];
  record.settled |= sealed || header.relocated;
  record.extents.push_back(std::move(header));
}

// A record whose extents are not all there, though their segments are, was on its way when the power went.
absl::Status ColdTier::Recoverer::DropUnacknowledged() {
  for (auto record = replayed_.begin(); record != replayed_.end();) {
    auto current = record++;
    std::vector<ExtentHeader>& extents = current->second.extents;
    std::sort(extents.begin(), extents.end(), [](const ExtentHeader& a, const ExtentHeader& b) {
      return std::pair(a.has_record_header, a.place.segment) > std::pair(b.has_record_header, b.place.segment);
    });
    if (current->second.settled || !extents[0].has_record_header) continue;
    // An index that cannot say whether it was acknowledged is no reason to drop it.
    FIRN_ASSIGN_OR_RETURN(std::optional<std::string> row, tier_.index_->Get(RecordKey(current->first)));
    if (row.has_value()) continue;
    for (const ExtentPlace& sibling : extents[0].siblings) {
      // A sibling's segment that is gone has been reclaimed, which only happens to what has settled.
      bool found = std::any_of(extents.begin(), extents.end(),
                               [&](const ExtentHeader& header) { return header.place == sibling; });
      if (found || tier_.segments_->Find(sibling.segment) == nullptr) continue;
      // What could not be read may hold it: no reason either.
      if (refused_.contains(sibling.segment)) continue;
      report_.torn_extents += extents.size();
      // It must stay dropped, also when the index is lost: the extents that are whole would look settled next time.
      Tombstone tombstone{current->first, {}};
      for (size_t i = 0; i < extents.size() && i < kRecordExtentsMax; ++i)
        tombstone.segments[i] = extents[i].place.segment;
      for (const ExtentHeader& header : extents) batch_.Put(TombstoneKey(header.place.segment, current->first), "");
      tier_.forgotten_.push_back(tombstone);
      replayed_.erase(current);
      break;
    }
  }
  return absl::OkStatus();
}

// Gives segments that were open when the process ended their footers, and their unused space back. A footer says that
// what it lists has settled, so what was under way is not in it.
void ColdTier::Recoverer::SealReplayed() {
  // What was refused may belong to what was found: all of it is looked at again by the next start.
  if (!refused_.empty()) {
    unsealed_.clear();
    sealed_now_.clear();
  }
  for (auto& [segment, contents] : unsealed_) {
    std::erase_if(contents.extents, [&](const ExtentHeader& header) {
      return header.kind == ExtentKind::kRecord && !replayed_.contains(header.sequence);
    });
    absl::Status sealed = Seal(segment, contents);
    if (sealed.ok()) {
      sealed_now_.push_back(segment);
    } else if (tier_.options_.notice) {
      tier_.options_.notice(Message(sealed));
    }
  }
  unsealed_.clear();
}

absl::Status ColdTier::Recoverer::Seal(const SegmentPtr& segment, const SegmentContents& contents) {
  ByteWriter entries;
  for (const ExtentHeader& header : contents.extents) entries.WriteBytes(SerializeExtentHeader(header, segment->salt));
  uint64_t at = AlignUp(contents.data_end, kIoAlignment);
  std::vector<uint8_t> footer =
      SerializeFooter(segment->id, segment->salt, at, entries.bytes(), static_cast<uint32_t>(contents.extents.size()));
  if (at + footer.size() > segment->file->size())
    return absl::OkStatus();  // Cut off by someone; there is no room to say so.
  AlignedBuffer buffer(footer.size());
  std::copy(footer.begin(), footer.end(), buffer.data());
  FIRN_RETURN_IF_ERROR(tier_.device_->WriteBlocking(segment->file, at, buffer.span()));
  FIRN_RETURN_IF_ERROR(tier_.device_->SyncBlocking(segment->file));
  uint64_t before = segment->file->allocated_bytes();
  absl::Status status = tier_.device_->Truncate(segment->file, at + footer.size());
  tier_.segments_->OnShrunk(before, segment->file->allocated_bytes());
  segment->has_footer = status.ok();
  return status;
}

}  // namespace firn
