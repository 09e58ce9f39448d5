// Recent windows: of every sequence that grows, the blocks that hold its last N tokens.
//
// A window belongs to the end of a sequence: a block that has a parent here and no child. It holds the end and those
// above it of whose tokens fewer than N come after them, whole blocks, and lasts kGrowingSeconds from the last use of
// the end. When a block is put behind the end, the window moves on by one block; where chains branch, every end has a
// window of its own, so that a block is recent while fewer than N tokens follow it on the way to any of them. What some
// window holds has Entry::kRecent; nothing else in an entry is changed here.
//
// Cost: a use of an end that has a window is O(1), amortized over its blocks; a first use walks up the window once.
// Memory: 20 bytes a block and window, 24 a window, and a row of a hash table a block; none where no plan has a window.
// Threads: not thread-safe; the store's lock guards it, as the table. Limits: below.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "tiers/store/entry_table.h"

namespace firn {

class RecentWindows {
 public:
  static constexpr uint32_t kGrowingSeconds = 60;
  static constexpr uint32_t kWindowBlocksMax = 1024;          // However many tokens a plan asks for.
  static constexpr uint32_t kWindowsOfABlockMax = 64;         // A window that meets a block of so many ends there.
  static constexpr uint32_t kMembersMax = uint32_t{1} << 20;  // Of all windows; beyond, those unused longest end.

  // Blocks that became recent, or ceased to be, in that order.
  using Changed = std::vector<EntryId>;

  explicit RecentWindows(EntryTable* table) : table_(table) {}  // Not owned.

  // A block was put, read or touched: where it is the end of a sequence it gets its window of `tokens`, or the window
  // lasts longer. With 0 tokens it has none.
  void Use(EntryId id, uint32_t tokens, uint32_t now_s, Changed* changed);
  // The block is about to be erased. What came before it is no longer known to belong to what comes after.
  void Remove(EntryId id, Changed* changed);
  // Ends windows that were not used for kGrowingSeconds, up to about `members_max` blocks of them.
  void Expire(uint32_t now_s, uint32_t members_max, Changed* changed);
  // Fits the windows of a namespace to another number of tokens: about `members_max` blocks of them from window `*at`
  // on. False when there are no more. Windows that may be larger grow as they are used.
  bool Fit(uint32_t ns, uint32_t tokens, uint32_t members_max, uint32_t* at, Changed* changed);

  // For a recent block: the oldest block of a window that holds it.
  EntryId OldestWith(EntryId id) const;
  // Takes a block out of all windows, and what these have that is older.
  void Release(EntryId id, Changed* changed);
  // Ends all windows that hold the block.
  void EndAllWith(EntryId id, Changed* changed);

  size_t blocks() const { return held_.size(); }  // Recent ones.
  size_t windows() const { return windows_.in_use(); }
  uint64_t MemoryBytes() const;
  // What does not add up, a line each; nothing where all is well. Expensive.
  std::vector<std::string> Audit() const;

 private:
  static constexpr uint32_t kNone = 0xFFFFFFFFu;

  // One block in one window.
  struct Member {
    EntryId entry = kNoEntry;
    uint32_t window = kNone;
    uint32_t older = kNone, newer = kNone;  // In the window.
    uint32_t next = kNone;                  // The same block in another window.
  };
  struct Window {
    uint32_t oldest = kNone, newest = kNone;  // Members; kNone in a window that is not in use.
    uint32_t blocks = 0;
    uint32_t until_s = 0;
    uint32_t longer_unused = kNone, used_later = kNone;
  };
  struct Held {
    uint32_t first = kNone;  // Its members, in no order.
    uint32_t windows = 0;
  };

  uint32_t WindowEndingAt(EntryId id) const;
  // Whether a block belongs in a window of `tokens` that ends at `end`.
  bool Within(EntryId id, EntryId end, uint32_t tokens) const;
  void AddNewest(uint32_t window, EntryId id, Changed* changed);
  void AddOldest(uint32_t window, EntryId id, Changed* changed);
  uint32_t AddMember(uint32_t window, EntryId id, Changed* changed);
  // The window must have others; a window without members is ended.
  void DropOldest(uint32_t window, Changed* changed);
  void DropMember(uint32_t member, Changed* changed);
  void DropThrough(uint32_t member, Changed* changed);
  void Reach(uint32_t window, uint32_t tokens, Changed* changed);
  void End(uint32_t window, Changed* changed);
  void LinkUsed(uint32_t window);
  void UnlinkUsed(uint32_t window);

  EntryTable* const table_;
  Slab<Member> members_;
  Slab<Window> windows_;
  absl::flat_hash_map<EntryId, Held> held_;
  uint32_t longest_unused_ = kNone, last_used_ = kNone;
};

}  // namespace firn
