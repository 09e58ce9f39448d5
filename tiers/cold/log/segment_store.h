// The segments there are, and the one byte budget that they and the index share.
//
// Threads: all calls are safe from any thread. Segments are created and removed on the executor, since that blocks.
// Ownership: a SegmentPtr keeps a segment's file open. A condemned segment's file is removed when its last reference
// goes, so never under a reader; its bytes count until then. Errors: ResourceExhausted, with the numbers, when the
// budget does not allow a segment, or with an errno when the medium does not.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "base/executor.h"
#include "tiers/cold/device/device.h"
#include "tiers/cold/log/extent_format.h"

namespace firn {

class ColdCopy;

enum class SegmentState : uint8_t { kOpen, kFull, kSealed, kReclaiming, kCondemned };

class Segment {
 public:
  Segment(uint32_t its_id, FilePtr its_file, uint64_t its_salt)
      : id(its_id), file(std::move(its_file)), salt(its_salt) {}

  const uint32_t id;
  const FilePtr file;
  const uint64_t salt;
  Stream stream = Stream::kBase;  // Fixed before anything is appended.

  std::atomic<SegmentState> state{SegmentState::kOpen};

  // Of the log's queue alone.
  uint64_t append_at = kSegmentHeaderBytes;
  std::vector<uint8_t> entries;  // Serialized headers of the extents that settled well: the footer to be.
  uint32_t entry_count = 0;
  uint32_t unsettled = 0;  // Extents placed here whose items have not settled.
  uint32_t writes_in_flight = 0;
  bool sealing = false;
  bool untrusted = false;  // A sync failed: nothing that is not settled yet will be.
  bool has_footer = false;

  // Guarded by the tier's mutex.
  std::vector<std::shared_ptr<ColdCopy>> slots;  // Live extents, by the index that copies know; empty ones are dead.
  std::vector<uint32_t> slot_offsets;            // In units of kExtentAlignment.
  uint64_t live_bytes = 0;
  uint64_t data_bytes = 0;  // Everything ever appended.
  uint32_t live_extents = 0;
  int64_t filled_at_ns = 0;
  bool unread = false;          // Not all of it could be read at the start: more may live in it than is known.
  int64_t spared_until_ns = 0;  // Too much of it is pinned to be reclaimed before.
};
using SegmentPtr = std::shared_ptr<Segment>;

struct SegmentStoreOptions {
  BlockDevice* device = nullptr;  // Not owned.
  Executor* executor = nullptr;   // Not owned.
  uint64_t capacity_bytes = 0;
  uint64_t reserve_bytes = 0;  // Of it, for relocation and facts alone.
};

std::string SegmentFileName(uint32_t id);
// Nothing unless it is the name of a segment file.
std::optional<uint32_t> ParseSegmentFileName(const std::string& name);

class SegmentStore {
 public:
  using Created = absl::AnyInvocable<void(absl::StatusOr<SegmentPtr>)>;
  using Removed = std::function<void(uint32_t id, const absl::Status& status)>;

  explicit SegmentStore(const SegmentStoreOptions& options);
  ~SegmentStore();  // Waits for creations and removals to end.

  // Called on the executor once a condemned segment's file is gone, or could not be removed. Set before anything is
  // condemned.
  void OnRemoved(Removed removed) { removed_ = std::move(removed); }

  // `done` runs on the executor, on a thread of the device, or inside the call if the budget does not allow it: it only
  // posts.
  void Create(uint64_t bytes, bool privileged, Created done);
  // A segment found at start; its bytes count whatever the budget says.
  SegmentPtr Adopt(uint32_t id, FilePtr file, uint64_t salt);
  // Counts a file that cannot be used now, or stops to.
  void CountForeign(int64_t bytes) { foreign_bytes_ += bytes; }
  // One of ours that could not be opened: it exists, and the next start may find what lies in it.
  void NoteUnreadable(uint32_t id);

  SegmentPtr Find(uint32_t id) const;
  std::vector<SegmentPtr> All() const;
  bool Exists(uint32_t id) const;  // Also while condemned and not yet removed, and where it could not be opened.
  uint32_t oldest_id() const;      // Of those that exist; next_id() if none does.
  uint32_t next_id() const;
  void SetNextIdAtLeast(uint32_t id);

  void Condemn(const SegmentPtr& segment);
  // Its file was shortened.
  void OnShrunk(uint64_t before_bytes, uint64_t after_bytes);

  void SetCapacity(uint64_t bytes) { capacity_ = bytes; }
  uint64_t capacity_bytes() const { return capacity_; }
  void SetIndexBytes(uint64_t bytes) { index_bytes_ = bytes; }
  uint64_t index_bytes() const { return index_bytes_; }
  uint64_t segment_bytes() const { return segment_bytes_; }
  uint64_t used_bytes() const { return segment_bytes_ + static_cast<uint64_t>(foreign_bytes_.load()) + index_bytes_; }
  uint64_t free_bytes(bool privileged) const;
  bool removing() const { return removing_ > 0; }
  // Work of the store's runs or waits on the executor.
  bool busy() const;
  // From now on nothing is posted and nobody told: files of condemned segments go as soon as nobody refers to them.
  void Close() { closing_ = true; }

 private:
  struct Gate;

  void WriteHeader(SegmentPtr segment, Created done);
  void FinishCreate(SegmentPtr segment, const absl::Status& status, Created done);
  SegmentPtr Wrap(std::unique_ptr<Segment> segment);
  void Release(Segment* segment);

  const SegmentStoreOptions options_;
  Removed removed_;
  std::atomic<uint64_t> capacity_, segment_bytes_{0}, index_bytes_{0};
  std::atomic<int64_t> foreign_bytes_{0};
  std::atomic<int> removing_{0};
  std::atomic<bool> closing_{false};
  std::shared_ptr<Gate> gate_;

  mutable std::mutex mu_;
  std::map<uint32_t, SegmentPtr> segments_;  // Guarded by mu_, as all below.
  std::map<uint32_t, bool> condemned_;
  std::set<uint32_t> unreadable_;
  uint32_t next_id_ = 1;
};

}  // namespace firn
