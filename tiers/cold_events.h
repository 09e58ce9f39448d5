// What a persistent tier tells the store, and asks it.
//
// A cold tier reclaims whole segments by itself. Before a segment goes it asks what each live record in it is worth,
// and it reports what left. At start it hands over what survived. Threads: called from the tier's executor with no lock
// of the tier held (implementations take the store's lock, under which the store asks tiers for their usage);
// implementations must not block on I/O and must not call back into Reclaim.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "codecs/record.h"
#include "tiers/tier.h"

namespace firn {

enum class ReclaimVerdict : uint8_t {
  kDrop = 0,      // The runs in this segment may go: a degradation, or the block's end if they hold its base.
  kRelocate = 1,  // Hot or a parent of live blocks: rewrite it within the relocation budget.
  kKeep = 2,      // Pinned: it stays, whatever that costs.
};

// What survives a restart of one record: enough to index it without reading it.
struct RecoveredCopy {
  Identity identity;
  std::optional<Digest> parent;
  uint32_t first_token = 0;
  uint32_t tokens = 0;
  int64_t expires_unix_ms = 0;
  ClassPair encoded_class;  // Of all runs written.
  ClassPair stored_class;   // Of the runs that are still there.
  CopyPtr copy;
};

// A small named fact kept in the log: namespaces, plans, artifacts. The last value of a name wins.
struct RecoveredFact {
  std::string kind;  // "namespace", "artifact", "plan"
  std::string name;
  std::vector<uint8_t> value;
};

class ColdEvents {
 public:
  virtual ~ColdEvents() = default;
  // Asked for every live record of a segment chosen for reclaim; `leaving` are its runs in that segment.
  virtual ReclaimVerdict JudgeReclaim(const Identity& identity, RunMask leaving) = 0;
  // Asked when runs that were judged kDrop, or that no budget was left for, are about to go. True: the store does not
  // have them any more, and OnRunsLost is not called for them. False: they are wanted after all, and are kept.
  virtual bool LetGo(const Identity& identity, RunMask leaving, bool whole) = 0;
  // `lost` runs of the record are gone (found damaged or missing, or could not be moved). If the record cannot be
  // decoded any more, `whole` is true and the tier has already forgotten it.
  virtual void OnRunsLost(const Identity& identity, RunMask lost, bool whole) = 0;
  // A record was rewritten elsewhere; the index must refer to `copy` from now on.
  virtual void OnRelocated(const Identity& identity, const CopyPtr& copy) = 0;
};

}  // namespace firn
