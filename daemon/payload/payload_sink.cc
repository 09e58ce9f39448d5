#include "daemon/payload/payload_sink.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "codecs/block_codec.h"

namespace firn {
namespace {

constexpr std::array<uint32_t, kPayloadParts> kRunOfPart = {
    RunIndex(RunKind::kWhole, Part::kK), RunIndex(RunKind::kWhole, Part::kV), RunIndex(RunKind::kMeta, Part::kK),
    RunIndex(RunKind::kMeta, Part::kV)};
// A layout's gaps cost memory; more than this many times the values is a mistake.
constexpr uint64_t kLayoutSpreadMax = 8;

}  // namespace

absl::StatusOr<PayloadPlan> PlanPayload(const NamespaceFacts& facts, uint32_t tokens,
                                        const std::optional<CallerLayout>& layout, uint64_t layout_bytes) {
  if (tokens == 0 || tokens > facts.block_tokens) {
    return InvalidArgument("tokens = {}; allowed: 1 to the namespace's block_tokens, {}", tokens, facts.block_tokens);
  }
  PayloadPlan plan;
  plan.dtype = facts.dtype;
  plan.shape = facts.Shape(tokens);
  FIRN_ASSIGN_OR_RETURN(EncodePlan encode, PlanIdentity(Identity{}, facts.dtype, plan.shape));
  for (size_t i = 0; i < kPayloadParts; ++i) plan.part_bytes[i] = encode.layout.run_bytes[kRunOfPart[i]];
  if (!layout.has_value()) return plan;
  uint64_t canonical = plan.part_bytes[0] + plan.part_bytes[1];
  if (layout_bytes > canonical * kLayoutSpreadMax) {
    return InvalidArgument("layout.payload_bytes = {}; the values have {} bytes and a layout at most {} times as many",
                           layout_bytes, canonical, kLayoutSpreadMax);
  }
  FIRN_RETURN_IF_ERROR(CheckLayout(*layout, plan.shape, facts.dtype, layout_bytes));
  plan.layout = layout;
  plan.layout_bytes = layout_bytes;
  return plan;
}

PayloadPlan PlanPackedPayload(const RecordHeader& header) {
  PayloadPlan plan;
  plan.dtype = header.dtype;
  plan.shape = header.shape;
  plan.packed = true;
  plan.run_bytes = LayoutOf(header).run_bytes;
  return plan;
}

uint64_t PayloadPlan::CanonicalBytes() const {
  uint64_t total = 0;
  for (uint64_t bytes : part_bytes) total += bytes;
  for (uint64_t bytes : run_bytes) total += bytes;
  return total;
}

PayloadSink::PayloadSink(PayloadPlan plan, const MutableRuns& runs) : plan_(std::move(plan)), runs_(runs) {
  uint64_t start = 0;
  auto add = [&](uint64_t bytes, MutableRunBytes target) {
    FIRN_CHECK(target.size() == bytes);
    parts_.push_back({.start = start, .bytes = bytes, .target = std::move(target)});
    start += bytes;
  };
  if (plan_.packed) {
    for (uint32_t run = 0; run < kRunIds; ++run) add(plan_.run_bytes[run], runs[run]);
    return;
  }
  if (plan_.layout.has_value()) {
    staging_.resize(plan_.layout_bytes);
    add(plan_.layout_bytes, MutableRunBytes(MutableByteSpan(staging_)));
  } else {
    add(plan_.part_bytes[0], runs[kRunOfPart[0]]);
    add(plan_.part_bytes[1], runs[kRunOfPart[1]]);
  }
  add(plan_.part_bytes[2], runs[kRunOfPart[2]]);
  add(plan_.part_bytes[3], runs[kRunOfPart[3]]);
}

void PayloadSink::Append(Region* part, ByteSpan bytes) {
  part->filled += bytes.size();
  while (!bytes.empty()) {
    MutableByteSpan rest = part->target.spans()[part->span].subspan(part->span_offset);
    if (rest.empty()) {
      ++part->span;
      part->span_offset = 0;
      continue;
    }
    size_t take = std::min(rest.size(), bytes.size());
    std::memcpy(rest.data(), bytes.data(), take);
    part->span_offset += take;
    bytes = bytes.subspan(take);
  }
}

absl::Status PayloadSink::Write(uint64_t offset, std::span<const ByteSpan> pieces) {
  for (ByteSpan piece : pieces) {
    while (!piece.empty()) {
      // The part that `offset` lies in.
      auto part = std::find_if(parts_.begin(), parts_.end(),
                               [offset](const Region& p) { return offset >= p.start && offset - p.start < p.bytes; });
      if (part == parts_.end()) {
        return InvalidArgument("payload at offset {}; the payload has {} bytes", offset, plan_.TotalBytes());
      }
      if (offset - part->start != part->filled) {
        return InvalidArgument("payload at offset {}; the next byte of this part is {}", offset,
                               part->start + part->filled);
      }
      size_t take = static_cast<size_t>(std::min<uint64_t>(piece.size(), part->bytes - part->filled));
      Append(&*part, piece.first(take));
      piece = piece.subspan(take);
      offset += take;
      received_ += take;
    }
  }
  return absl::OkStatus();
}

absl::Status PayloadSink::Finish() {
  FIRN_CHECK(complete());
  if (!plan_.layout.has_value()) return absl::OkStatus();
  for (Part part : kParts) {
    size_t index = static_cast<size_t>(part);
    if (plan_.part_bytes[index] == 0) continue;
    FIRN_RETURN_IF_ERROR(GatherPart(*plan_.layout, plan_.shape, plan_.dtype, part, staging_, runs_[kRunOfPart[index]]));
  }
  staging_ = {};
  return absl::OkStatus();
}

}  // namespace firn
