#include "client/cpp/api/checks.h"

#include "base/status.h"

namespace firnkv {
namespace {

absl::Status CheckPart(const char* name, uint64_t given, uint64_t needed) {
  if (given == needed) return absl::OkStatus();
  return firn::InvalidArgument("{} was given {} bytes; the block's shape needs {}", name, given, needed);
}

absl::Status CheckShard(const Namespace& ns, uint32_t shard) {
  if (shard < ns.facts.shards) return absl::OkStatus();
  return firn::InvalidArgument("shard {} of a namespace of {} shards", shard, ns.facts.shards);
}

}  // namespace

absl::Status CheckKey(const BlockKey& key) { return key.ToDigest().status(); }

uint64_t PayloadBytes(const Namespace& ns, const PutItem& item) {
  if (!item.record_header.empty()) return item.parts.k.bytes();
  uint64_t values =
      item.layout.has_value() ? item.layout->payload_bytes : ns.KBytes(item.tokens) + ns.VBytes(item.tokens);
  return values + ns.KScaleBytes() + ns.VScaleBytes();
}

absl::Status CheckBlock(const Namespace& ns, const Limits& limits, const PutItem& item) {
  FIRN_RETURN_IF_ERROR(CheckKey(item.key));
  if (item.parent.has_value()) FIRN_RETURN_IF_ERROR(CheckKey(*item.parent));
  FIRN_RETURN_IF_ERROR(CheckShard(ns, item.shard));
  if (item.tokens < 1 || item.tokens > ns.facts.block_tokens) {
    return firn::InvalidArgument("a block of {} tokens; 1 to {} expected", item.tokens, ns.facts.block_tokens);
  }
  // Gaps of a layout travel too, so they count.
  uint64_t bytes = PayloadBytes(ns, item);
  if (bytes > limits.block_bytes_max) {
    return firn::InvalidArgument("a block of {} bytes; the daemon takes at most {}", bytes, limits.block_bytes_max);
  }
  return absl::OkStatus();
}

absl::Status CheckPut(const Namespace& ns, const Limits& limits, const PutItem& item) {
  FIRN_RETURN_IF_ERROR(CheckBlock(ns, limits, item));
  if (!item.record_header.empty()) {
    if (item.layout.has_value() || item.parts.bytes() != item.parts.k.bytes()) {
      return firn::InvalidArgument("a packed record is its runs, in parts.k, and has no layout");
    }
    return absl::OkStatus();
  }
  if (item.layout.has_value()) {
    FIRN_RETURN_IF_ERROR(CheckPart("the layout's space of K and V", item.parts.k.bytes(), item.layout->payload_bytes));
    FIRN_RETURN_IF_ERROR(CheckPart("V beside a layout", item.parts.v.bytes(), 0));
  } else {
    FIRN_RETURN_IF_ERROR(CheckPart("K", item.parts.k.bytes(), ns.KBytes(item.tokens)));
    FIRN_RETURN_IF_ERROR(CheckPart("V", item.parts.v.bytes(), ns.VBytes(item.tokens)));
  }
  FIRN_RETURN_IF_ERROR(CheckPart("the scales of K", item.parts.k_scales.bytes(), ns.KScaleBytes()));
  return CheckPart("the scales of V", item.parts.v_scales.bytes(), ns.VScaleBytes());
}

absl::Status CheckGet(const Namespace& ns, const GetItem& item) {
  FIRN_RETURN_IF_ERROR(CheckKey(item.key));
  FIRN_RETURN_IF_ERROR(CheckShard(ns, item.shard));
  if (!item.allocate && item.parts.bytes() == 0) {
    return firn::InvalidArgument("a Get into 0 bytes of memory; name where the block goes, or set `allocate`");
  }
  return absl::OkStatus();
}

}  // namespace firnkv
