// What a daemon under faults has promised, by block: what was acknowledged as durable, what was deleted.
//
// A promise holds until the medium is damaged: whatever was stored or deleted before that may be a miss, or be back,
// and bytes must still be right. It is known of a promise on which side of a damage it lies, as every call notes the
// moment at which it began and damage begins and ends a moment.
// Threads: any. One client alone writes a block, so that it knows the order of its own calls.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "firnkv/types.h"

namespace firn::cli {

// Compares equal where nothing happened in between.
struct Moment {
  uint64_t damages = 0;  // Of the medium.
  uint64_t losses = 0;   // Of what was in memory alone: the daemon or its GPU child ended.
};

// What an answer to a get means.
enum class Verdict : uint8_t {
  kFine,
  kWrongBytes,
  kLost,         // A durable block is a miss, or coarser than was acknowledged.
  kCameBack,     // It was deleted.
  kLostToDamage  // As kLost, and the medium was damaged: no fault of the daemon's.
};

class Ledger {
 public:
  explicit Ledger(uint64_t blocks) : facts_(blocks) {}

  Moment Now() const;
  // Around whatever damages the medium, and whatever ends the daemon or its child.
  void Damaged();
  void MemoryLost();

  void PutBegins(uint64_t number);
  // `durable`: the class that was acknowledged; kNone: none was asked for.
  void PutDone(uint64_t number, Moment began, bool stored, firnkv::Precision durable);
  void DeleteBegins(uint64_t number);
  void DeleteDone(uint64_t number, Moment began);
  // Everything that was stored since `began.losses`, of blocks [first, first + count), is durable.
  void FlushDone(uint64_t first, uint64_t count, Moment began);

  // Of a get by the block's writer, or while nobody writes. `wrong`: the bytes are not the block's.
  Verdict Judge(uint64_t number, const absl::Status& status, firnkv::Precision served, bool wrong) const;

  // After Judge: there is nothing left of the block, so that what is put next is all new.
  void Missed(uint64_t number);

  // Blocks that must be there; blocks that must not.
  std::vector<uint64_t> Promised() const;

 private:
  struct Facts {
    bool stored = false;  // In this daemon, by a put that began at `stored_at`.
    Moment stored_at;
    std::optional<firnkv::Precision> durable;
    uint64_t durable_damages = 0;
    bool deleted = false;
    uint64_t deleted_damages = 0;
  };

  mutable std::mutex mu_;
  Moment now_;                // Guarded by mu_, as all below.
  std::vector<Facts> facts_;  // By block.
};

}  // namespace firn::cli
