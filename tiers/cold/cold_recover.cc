// What is there at start: the index says where, the log says what the index does not know yet.
//
// Order: segments; the index's facts and tombstones; the segments that the index does not know whole, read from their
// footers or block by block; which copy of each block wins; and then every location, checked against the segments that
// exist. A record that was never acknowledged may be found half: it is dropped whole. One whose plane was reclaimed is
// found narrower: it is kept.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "base/check.h"
#include "base/status.h"
#include "tiers/cold/cold_items.h"
#include "tiers/cold/log/segment_reader.h"

namespace firn {
namespace {

// A batch small enough to be held in memory twice.
constexpr uint64_t kBatchBytesMax = uint64_t{4} << 20;
// Sequence numbers that may have been given out and left no trace.
constexpr uint64_t kSequenceGap = uint64_t{1} << 20;

// A block's name in 128 bits: two blocks that share it by design cost a miss, no more.
using BlockName = std::pair<uint64_t, uint64_t>;
BlockName NameOf(const Identity& identity) {
  return {identity.key.Prefix() ^ identity.namespace_fingerprint.Prefix(),
          LoadLe<uint64_t>(identity.key.bytes.data() + 8) +
              LoadLe<uint64_t>(identity.namespace_fingerprint.bytes.data() + 8) +
              identity.shard * uint64_t{0x9E3779B97F4A7C15}};
}

}  // namespace

class ColdTier::Recoverer {
 public:
  Recoverer(ColdTier* tier, const ColdRecovery& recovery, ColdRecoveryReport* report)
      : tier_(*tier), recovery_(recovery), report_(*report) {}

  absl::Status Run() {
    FIRN_RETURN_IF_ERROR(OpenSegments());
    FIRN_RETURN_IF_ERROR(ReadIndexFacts());
    FIRN_RETURN_IF_ERROR(ReadUnindexed());
    DropUnacknowledged();
    SealReplayed();
    FIRN_RETURN_IF_ERROR(ElectWinners());
    // All that can fail has been read once: from here on the caller is told.
    TellFacts();
    FIRN_RETURN_IF_ERROR(LoadLocations());
    LoadReplayed();
    FIRN_RETURN_IF_ERROR(Finish());
    return absl::OkStatus();
  }

 private:
  struct Replayed {
    std::vector<ExtentHeader> extents;
    bool settled = false;  // Some of it is in a footer.
    bool seen = false;     // The index has it too.
  };
  using Version = std::pair<uint64_t, uint64_t>;  // Generation, sequence.

  absl::Status OpenSegments();
  absl::Status ReadIndexFacts();
  absl::Status ReadUnindexed();
  void AddReplayed(ExtentHeader header, bool sealed);
  void ReplayFact(const SegmentPtr& segment, const ExtentHeader& header);
  void DropUnacknowledged();
  absl::Status ElectWinners();
  void TellFacts();
  absl::Status LoadLocations();
  void LoadReplayed();
  void LoadCopy(RecordRow row, bool new_to_index);
  void SealReplayed();
  absl::Status Seal(const SegmentPtr& segment, const SegmentContents& contents);
  absl::Status Finish();

  bool IsForgotten(uint64_t sequence, const Digest& namespace_fingerprint) const {
    if (dead_.contains(sequence)) return true;
    for (const NamespaceForgottenRow& row : namespaces_) {
      if (sequence <= row.sequence && row.namespace_fingerprint == namespace_fingerprint) return true;
    }
    return false;
  }
  bool Wins(uint64_t sequence, const Identity& identity) const {
    auto winner = winners_.find(NameOf(identity));
    return winner == winners_.end() || winner->second.second == sequence;
  }
  void Elect(uint64_t sequence, const Identity& identity) {
    Version version{identity.generation, sequence};
    auto [winner, is_new] = winners_.try_emplace(NameOf(identity), version);
    if (is_new) return;
    ++report_.duplicates;
    if (version > winner->second) winner->second = version;
  }
  bool PlaceExists(const RowExtent& extent, const RunLengths& lengths) {
    if (extent.place.segment != last_id_ || last_segment_ == nullptr) {
      last_id_ = extent.place.segment;
      last_segment_ = tier_.segments_->Find(last_id_);
    }
    return last_segment_ != nullptr &&
           extent.place.offset + ExtentEnd(extent.shape, lengths) <= last_segment_->file->size();
  }
  void MaybeApply() {
    if (batch_.bytes() > kBatchBytesMax) tier_.ApplyBatch(std::exchange(batch_, IndexBatch()));
  }

  ColdTier& tier_;
  const ColdRecovery& recovery_;
  ColdRecoveryReport& report_;
  IndexBatch batch_;
  absl::flat_hash_set<uint32_t> indexed_;  // Segments that the index knows whole.
  absl::flat_hash_set<uint64_t> dead_;     // Sequences with a tombstone, where the log might still have them.
  absl::flat_hash_map<uint64_t, Replayed> replayed_;
  absl::flat_hash_map<BlockName, Version> winners_;
  std::vector<NamespaceForgottenRow> namespaces_;
  std::map<std::string, FactRow> facts_;
  std::map<std::string, uint64_t> facts_removed_;
  std::vector<std::pair<SegmentPtr, SegmentContents>> unsealed_;
  std::vector<SegmentPtr> sealed_now_;
  uint64_t sequence_max_ = 0;
  bool index_empty_ = true;
  uint32_t last_id_ = 0;
  SegmentPtr last_segment_;
};

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
      // The medium would not say. It may tomorrow; until then the bytes count and the blocks in it are misses.
      tier_.segments_->CountForeign(static_cast<int64_t>(entry.allocated_bytes));
    } else {
      FIRN_RETURN_IF_ERROR(tier_.device_->Remove(entry.name));
    }
    if (tier_.options_.notice && status.code() != absl::StatusCode::kNotFound) tier_.options_.notice(Message(status));
  }
  tier_.segments_->SetNextIdAtLeast(id_max + 1);
  return absl::OkStatus();
}

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
    } else {
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
        if (id != 0 && tier_.segments_->Find(id) != nullptr) batch_.Put(TombstoneKey(id, tombstone.sequence), "");
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
    if (!contents.ok()) contents = reader.Scan(segment->id, segment->salt);
    if (!contents.ok()) {
      if (tier_.options_.notice) tier_.options_.notice(Message(contents.status()));
      continue;
    }
    report_.torn_extents += contents->torn;
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
void ColdTier::Recoverer::DropUnacknowledged() {
  for (auto record = replayed_.begin(); record != replayed_.end();) {
    auto current = record++;
    std::vector<ExtentHeader>& extents = current->second.extents;
    std::sort(extents.begin(), extents.end(), [](const ExtentHeader& a, const ExtentHeader& b) {
      return std::pair(a.has_record_header, a.place.segment) > std::pair(b.has_record_header, b.place.segment);
    });
    if (current->second.settled || !extents[0].has_record_header) continue;
    auto row = tier_.index_->Get(RecordKey(current->first));
    if (row.ok() && row->has_value()) continue;
    for (const ExtentPlace& sibling : extents[0].siblings) {
      // A sibling's segment that is gone has been reclaimed, which only happens to what has settled.
      bool found = std::any_of(extents.begin(), extents.end(),
                               [&](const ExtentHeader& header) { return header.place == sibling; });
      if (found || tier_.segments_->Find(sibling.segment) == nullptr) continue;
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
    auto row = tier_.index_->Get(RecordKey(sequence));
    record.seen = row.ok() && row->has_value();
    if (!record.seen) Elect(sequence, note.identity);
  }
  return absl::OkStatus();
}

void ColdTier::Recoverer::LoadCopy(RecordRow row, bool new_to_index) {
  if (row.extents.empty() || !PlaceExists(row.extents[0], row.note.run_bytes)) {
    report_.missing_extents += row.extents.size();
    batch_.Delete(RecordKey(row.sequence));
    return MaybeApply();
  }
  size_t before = row.extents.size();
  std::erase_if(row.extents, [&](const RowExtent& extent) { return !PlaceExists(extent, row.note.run_bytes); });
  report_.missing_extents += before - row.extents.size();
  RunMask present;
  for (const RowExtent& extent : row.extents) present |= extent.shape.runs;
  auto copy = std::make_shared<ColdCopy>(row.sequence, row.note.digest);
  copy->layout = tier_.layouts_.Intern(LayoutOf(row.note, row.extents));
  bool wins = Wins(row.sequence, row.note.identity);
  {
    std::lock_guard lock(tier_.mu_);
    tier_.LinkLocked(copy, row.extents, row.note);
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
          if (PlaceExists(extent, row->note.run_bytes) || (extent.shape.runs & header.shape.runs).Empty()) continue;
          if (header.has_record_header) row->note = header.note;
          extent = {header.place, header.shape};
          changed = true;
        }
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

// Gives segments that were open when the process ended their footers, and their unused space back. A footer says that
// what it lists has settled, so what was under way is not in it.
void ColdTier::Recoverer::SealReplayed() {
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

absl::Status ColdTier::Recoverer::Finish() {
  for (const SegmentPtr& segment : sealed_now_) batch_.Put(SegmentKey(segment->id), std::string(1, '\1'));
  tier_.next_sequence_ = sequence_max_ + kSequenceGap;
  tier_.ApplyBatch(std::exchange(batch_, IndexBatch()));
  report_.rebuilt = index_empty_ && report_.segments > 0;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ColdTier>> ColdTier::Open(const ColdOptions& options,
                                                         std::unique_ptr<BlockDevice> device,
                                                         std::unique_ptr<KeyValueIndex> index,
                                                         const ColdRecovery& recovery, ColdRecoveryReport* report) {
  std::unique_ptr<ColdTier> tier(new ColdTier(options, std::move(device), std::move(index)));
  FIRN_RETURN_IF_ERROR(tier->CheckOptions());
  FIRN_ASSIGN_OR_RETURN(tier->staging_, ChunkPool::Create(options.staging_bytes, options.chunk_bytes));
  FIRN_ASSIGN_OR_RETURN(tier->read_pool_, ChunkPool::Create(options.read_bytes, options.chunk_bytes));
  tier->device_->RegisterBuffer(tier->staging_->region());
  tier->device_->RegisterBuffer(tier->read_pool_->region());
  ColdTier* raw = tier.get();
  tier->read_pool_->SetOnFree([raw] {
    if (raw->waiting_read_count_ > 0) raw->PostToExecutor([raw] { raw->RetryWaitingReads(); });
  });
  SegmentStoreOptions store;
  store.device = raw->device_.get();
  store.executor = options.executor;
  store.capacity_bytes = options.capacity_bytes;
  store.reserve_bytes = options.segment_bytes;
  tier->segments_ = std::make_unique<SegmentStore>(store);
  tier->segments_->OnRemoved([raw](uint32_t id, const absl::Status& status) { raw->OnSegmentRemoved(id, status); });
  LogWriterOptions writer;
  writer.device = raw->device_.get();
  writer.segments = raw->segments_.get();
  writer.queue = &raw->queue_;
  writer.executor = options.executor;
  writer.clock = options.clock;
  writer.sink = raw;
  writer.segment_bytes = options.segment_bytes;
  writer.pack_below_bytes = options.split_plane_bytes;
  tier->writer_ = std::make_unique<LogWriter>(writer);
  ColdRecoveryReport ignored;
  Recoverer recoverer(raw, recovery, report == nullptr ? &ignored : report);
  absl::Status recovered = recoverer.Run();
  if (!recovered.ok()) return recovered;
  raw->MeasureIndex(true);
  raw->Tick();
  raw->Post([raw] {
    raw->DrainForgotten();
    raw->LogTombstones();
  });
  return tier;
}

}  // namespace firn
