// Finds out what is there at start: the index says where, the log says what the index does not know yet. Private to the
// cold tier.
//
// Order: segments; the index's facts and tombstones; the segments that the index does not know whole, read from their
// footers or block by block; which copy of each block wins; and then every location, checked against the segments that
// exist. A record that was never acknowledged may be found half: it is dropped whole. One whose plane was reclaimed is
// found narrower: it is kept. Threads: one, before the tier is used by anyone else.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/status.h"
#include "tiers/cold/cold_items.h"
#include "tiers/cold/log/segment_reader.h"

namespace firn {

// A batch small enough to be held in memory twice.
inline constexpr uint64_t kRecoveryBatchBytesMax = uint64_t{4} << 20;

// A block's name in 128 bits: two blocks that share it by design cost a miss, no more.
using BlockName = std::pair<uint64_t, uint64_t>;
inline BlockName NameOf(const Identity& identity) {
  return {identity.key.Prefix() ^ identity.namespace_fingerprint.Prefix(),
          LoadLe<uint64_t>(identity.key.bytes.data() + 8) +
              LoadLe<uint64_t>(identity.namespace_fingerprint.bytes.data() + 8) +
              identity.shard * uint64_t{0x9E3779B97F4A7C15}};
}

class ColdTier::Recoverer {
 public:
  Recoverer(ColdTier* tier, const ColdRecovery& recovery, ColdRecoveryReport* report)
      : tier_(*tier), recovery_(recovery), report_(*report) {}

  absl::Status Run() {
    FIRN_RETURN_IF_ERROR(OpenSegments());
    FIRN_RETURN_IF_ERROR(ReadIndexFacts());
    FIRN_RETURN_IF_ERROR(ReadUnindexed());
    FIRN_RETURN_IF_ERROR(DropUnacknowledged());
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
  absl::Status DropUnacknowledged();
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
  // `base`: the extent with the record header.
  bool PlaceExists(const RowExtent& extent, const RecordNote& note, bool base) {
    if (extent.place.segment != last_id_ || last_segment_ == nullptr) {
      last_id_ = extent.place.segment;
      last_segment_ = tier_.segments_->Find(last_id_);
    }
    ExtentContents contents{extent.shape, note.run_bytes, base ? note.header_bytes : 0, note.ecc};
    return last_segment_ != nullptr && extent.place.offset + contents.End() <= last_segment_->file->size();
  }
  void MaybeApply() {
    if (batch_.bytes() > kRecoveryBatchBytesMax) tier_.ApplyBatch(std::exchange(batch_, IndexBatch()));
  }

  ColdTier& tier_;
  const ColdRecovery& recovery_;
  ColdRecoveryReport& report_;
  IndexBatch batch_;
  absl::flat_hash_set<uint32_t> indexed_;  // Segments that the index knows whole.
  absl::flat_hash_set<uint32_t> refused_;  // Segments that the medium would not give, or not all of.
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

}  // namespace firn
