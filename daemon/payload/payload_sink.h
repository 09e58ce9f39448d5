// Where the payload of a put goes: chunk by chunk from a message's slices into the runs of a put in flight.
//
// The payload is one linear space, K values | V values | K scales | V scales (proto/firn/v1/kv.proto), or the runs of a
// record that comes coded. Bytes of one
// part come in order; parts may interleave; a chunk may run over from one part into the next. With a caller's layout, K
// and V share one part, which is staged and put in canonical order at the end. Threads: not safe. Ownership: borrows
// the runs; they must live as long as the sink is written to. Errors: InvalidArgument naming the offset and what was
// expected.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "codecs/encoded_block.h"
#include "codecs/layout.h"
#include "tiers/store/namespace.h"

namespace firn {

inline constexpr size_t kPayloadParts = 4;

struct PayloadPlan {
  DType dtype = DType::kFp16;
  BlockShape shape;
  std::array<uint64_t, kPayloadParts> part_bytes{};  // Canonical: K values, V values, K scales, V scales.
  std::optional<CallerLayout> layout;
  uint64_t layout_bytes = 0;  // Of the caller's buffer, where there is a layout.
  // Of a packed record, in place of all of these: its runs, in order.
  bool packed = false;
  std::array<uint64_t, kRunIds> run_bytes{};

  uint64_t CanonicalBytes() const;
  uint64_t TotalBytes() const {
    return layout.has_value() ? layout_bytes + part_bytes[2] + part_bytes[3] : CanonicalBytes();
  }
  // Memory beside the runs that a sink or a source needs.
  uint64_t StagingBytes() const { return layout.has_value() ? layout_bytes : 0; }
};

// The payload of one shard of a block of `tokens` tokens. InvalidArgument for a token count out of range and for a
// layout that does not hold the block.
absl::StatusOr<PayloadPlan> PlanPayload(const NamespaceFacts& facts, uint32_t tokens,
                                        const std::optional<CallerLayout>& layout, uint64_t layout_bytes);

// The payload of a record that comes coded: the runs of `header->encoded`, one after the other.
PayloadPlan PlanPackedPayload(const RecordHeader& header);

class PayloadSink {
 public:
  PayloadSink(PayloadPlan plan, const MutableRuns& runs);

  absl::Status Write(uint64_t offset, std::span<const ByteSpan> pieces);
  bool complete() const { return received_ == plan_.TotalBytes(); }
  // Once complete: puts staged bytes in place.
  absl::Status Finish();
  const PayloadPlan& plan() const { return plan_; }

 private:
  struct Region {
    uint64_t start = 0;  // In the linear payload space.
    uint64_t bytes = 0;
    uint64_t filled = 0;
    MutableRunBytes target;
    size_t span = 0;  // Where the next byte goes in `target`.
    size_t span_offset = 0;
  };
  static void Append(Region* part, ByteSpan bytes);

  const PayloadPlan plan_;
  const MutableRuns runs_;
  std::vector<Region> parts_;
  std::vector<uint8_t> staging_;
  uint64_t received_ = 0;
};

}  // namespace firn
