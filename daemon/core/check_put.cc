#include <fmt/format.h>

#include <limits>

#include "base/status.h"
#include "base/units.h"
#include "codecs/exact_tokens.h"
#include "daemon/core/convert.h"
#include "daemon/core/service_core.h"

namespace firn {
namespace {

// The header of what follows: of the runs that are sent, where the record was written with more.
absl::StatusOr<std::shared_ptr<const RecordHeader>> ToPackedHeader(const v1::PutBlock& block) {
  if (block.has_layout() || block.token_importance_size() > 0) {
    return InvalidArgument("a packed record has neither layout nor token_importance");
  }
  uint64_t used = 0;
  auto header = ParseHeader(AsBytes(block.record_header()), &used);
  if (!header.ok()) return InvalidArgument("record_header: {}", Message(header.status()));
  if (used != block.record_header().size()) {
    return InvalidArgument("record_header has {} bytes, of which the header takes {}", block.record_header().size(),
                           used);
  }
  if (block.runs() > RunMask::All().bits() || !header->encoded.Contains(RunMask(static_cast<uint16_t>(block.runs())))) {
    return InvalidArgument("runs = {:#x}; the record was written with {:#x}", block.runs(), header->encoded.bits());
  }
  auto narrowed = std::make_shared<RecordHeader>(*std::move(header));
  narrowed->encoded = RunMask(static_cast<uint16_t>(block.runs()));
  for (uint32_t run = 0; run < kRunIds; ++run) {
    if (!narrowed->encoded.Has(run)) narrowed->runs[run] = {};
  }
  return narrowed;
}

}  // namespace

absl::StatusOr<PutOrder> CheckPut(const v1::PutBlock& block, const NamespaceRef& ns, SessionId session,
                                  const LimitSettings& limits) {
  PutOrder order;
  PutSpec& spec = order.spec;
  spec.address.ns = ns.id;
  FIRN_ASSIGN_OR_RETURN(spec.address.key, ToKey(block.ref().key(), "ref.key"));
  if (block.ref().shard() >= ns.facts.shards) {
    return InvalidArgument("ref.shard = {}; the namespace has {} shards", block.ref().shard(), ns.facts.shards);
  }
  spec.address.shard = static_cast<uint16_t>(block.ref().shard());
  if (block.has_parent()) {
    FIRN_ASSIGN_OR_RETURN(spec.parent, ToKey(block.parent(), "parent"));
    if (*spec.parent == spec.address.key) return InvalidArgument("parent is the block itself");
  }
  spec.first_token = block.first_token();
  spec.tokens = block.tokens();
  constexpr uint64_t kTtlMsMax = uint64_t{100} * 365 * 24 * 3600 * 1000;
  if (block.ttl_ms() > kTtlMsMax) {
    return InvalidArgument("ttl_ms = {}; allowed: 0 (none) to {}", block.ttl_ms(), kTtlMsMax);
  }
  spec.ttl_ms = static_cast<int64_t>(block.ttl_ms());
  if (block.ack() != v1::ACK_LEVEL_MEMORY && block.ack() != v1::ACK_LEVEL_DURABLE) {
    return InvalidArgument("ack = {}; allowed: MEMORY, DURABLE", static_cast<int>(block.ack()));
  }
  spec.ack = static_cast<AckLevel>(block.ack());
  spec.session = session;
  spec.token_importance.assign(block.token_importance().begin(), block.token_importance().end());
  FIRN_RETURN_IF_ERROR(CheckImportance("token_importance", spec.token_importance, spec.tokens));
  if (block.record_header().empty() != (block.runs() == 0)) {
    return InvalidArgument("record_header of {} bytes with runs = {:#x}; a packed record has both",
                           block.record_header().size(), block.runs());
  }
  if (!block.record_header().empty()) {
    FIRN_ASSIGN_OR_RETURN(spec.packed, ToPackedHeader(block));
  }
  std::optional<CallerLayout> layout;
  if (block.has_layout()) layout = ToLayout(block.layout());
  if (spec.packed != nullptr) {
    order.plan = PlanPackedPayload(*spec.packed);
  } else {
    FIRN_ASSIGN_OR_RETURN(order.plan, PlanPayload(ns.facts, block.tokens(), layout, block.layout().payload_bytes()));
  }
  uint64_t canonical = order.plan.CanonicalBytes();
  if (canonical > limits.block_bytes_max) {
    return InvalidArgument("the block has {} bytes ({}); limits.block_bytes is {}", canonical, FormatBytes(canonical),
                           FormatBytes(limits.block_bytes_max));
  }
  if (block.payload_bytes() != order.plan.TotalBytes()) {
    return InvalidArgument("payload_bytes = {}; {} have {}", block.payload_bytes(),
                           spec.packed != nullptr ? "the runs of the packed record"
                                                  : fmt::format("{} tokens of this namespace", block.tokens()),
                           order.plan.TotalBytes());
  }
  return order;
}

}  // namespace firn
