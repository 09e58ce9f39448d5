#include <limits>

#include "base/status.h"
#include "base/units.h"
#include "codecs/exact_tokens.h"
#include "daemon/core/convert.h"
#include "daemon/core/service_core.h"

namespace firn {

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
  std::optional<CallerLayout> layout;
  if (block.has_layout()) layout = ToLayout(block.layout());
  FIRN_ASSIGN_OR_RETURN(order.plan, PlanPayload(ns.facts, block.tokens(), layout, block.layout().payload_bytes()));
  uint64_t canonical = 0;
  for (uint64_t bytes : order.plan.part_bytes) canonical += bytes;
  if (canonical > limits.block_bytes_max) {
    return InvalidArgument("the block has {} bytes ({}); limits.block_bytes is {}", canonical, FormatBytes(canonical),
                           FormatBytes(limits.block_bytes_max));
  }
  if (block.payload_bytes() != order.plan.TotalBytes()) {
    return InvalidArgument("payload_bytes = {}; {} tokens of this namespace have {}", block.payload_bytes(),
                           block.tokens(), order.plan.TotalBytes());
  }
  return order;
}

}  // namespace firn
