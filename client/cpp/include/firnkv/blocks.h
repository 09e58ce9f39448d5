// What goes in and out of the block calls of client.h.
//
// Payloads are never copied on their way to or from the socket: the caller's memory is named piece by piece, and must
// stay valid and unchanged (Put) or untouched (Get) until the call completes. Shapes: without a Layout, K and V are
// canonical, [layer][head][token][channel] in the namespace's dtype, and the pieces of a part are simply its bytes in
// order. Threads: values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "firnkv/types.h"

namespace firnkv {

// Memory as a list of pieces that follow each other: one buffer, or one a layer, or one a page.
template <typename Byte>
class PieceList {
 public:
  PieceList() = default;
  PieceList(std::span<Byte> whole) { Append(whole); }  // NOLINT: one buffer is a list of one.
  PieceList(Byte* data, size_t bytes) { Append({data, bytes}); }
  void Append(std::span<Byte> piece) {
    if (!piece.empty()) pieces_.push_back(piece);
    bytes_ += piece.size();
  }
  const std::vector<std::span<Byte>>& pieces() const { return pieces_; }
  uint64_t bytes() const { return bytes_; }

 private:
  std::vector<std::span<Byte>> pieces_ = {};
  uint64_t bytes_ = 0;
};
using SourcePieces = PieceList<const uint8_t>;
using TargetPieces = PieceList<uint8_t>;

// The parts of a block in memory. With a layout, `k` is the one space of K and V together and `v` is empty.
template <typename Pieces>
struct BlockParts {
  Pieces k = {};
  Pieces v = {};
  Pieces k_scales = {};  // FP8 only: FP32 [layer][head].
  Pieces v_scales = {};
  uint64_t bytes() const { return k.bytes() + v.bytes() + k_scales.bytes() + v_scales.bytes(); }
};
using SourceParts = BlockParts<SourcePieces>;
using TargetParts = BlockParts<TargetPieces>;

enum class AckLevel : uint8_t { kMemory = 0, kDurable = 1 };

struct PutItem {
  BlockKey key = {};
  uint32_t shard = 0;
  std::optional<BlockKey> parent = {};  // The block before it in its sequence.
  uint32_t first_token = 0;
  uint32_t tokens = 0;
  SourceParts parts = {};
  std::optional<Layout> layout = {};
  // How much each token matters (accumulated attention, say), finite and not negative: one a token, or none. Only the
  // order counts. With PrecisionPlan::important_fraction it says which tokens stay exact when the block is coded.
  std::vector<float> token_importance = {};
  // The block as a record that was coded elsewhere: GetResult::record_header and `runs` of a Get of kPacked, or what an
  // encoder of the caller's made. `parts.k` is then the runs, in order, and nothing else is set but key, shard, parent,
  // tokens and first_token. The daemon must offer API revision 6.
  std::string record_header = {};
  uint32_t runs = 0;
};

struct PutResult {
  absl::Status status = {};  // OK also where an equal or finer block was there.
  bool stored = false;       // False: it was there already.
  uint64_t generation = 0;
  PrecisionPair stored_class = {};
  PrecisionPair durable_class = {};  // kNone unless a durable acknowledgement was asked for.
  uint64_t stored_bytes = 0;
};

enum class Representation : uint8_t { kSource = 0, kFp16 = 1, kBf16 = 2, kFp32 = 3, kPacked = 4 };

struct GetItem {
  BlockKey key = {};
  uint32_t shard = 0;
  // Where the block goes; a part may have more room than the block needs, never less. A miss and a failure leave zeros
  // or the bytes that were there before, never a part of the block.
  TargetParts parts = {};
  // Instead of `parts`: GetResult::payload is allocated to fit.
  bool allocate = false;
};

struct GetResult {
  absl::Status status = {};           // NOT_FOUND is a miss: unknown, evicted, or coarser than GetOptions::least.
  PrecisionPair served = {};          // The class of the bytes returned.
  uint32_t tier = 0;                  // Index in Capabilities::tiers.
  DType dtype = DType::kUnspecified;  // Of the values returned.
  uint32_t tokens = 0;
  uint32_t first_token = 0;
  uint32_t layers = 0;
  uint64_t k_bytes = 0;  // With a layout: of K and V together.
  uint64_t v_bytes = 0;
  uint64_t k_scale_bytes = 0;
  uint64_t v_scale_bytes = 0;
  uint64_t payload_bytes = 0;
  uint64_t generation = 0;
  int64_t expires_unix_ms = 0;  // 0: never.
  std::optional<Digest> parent = {};
  std::vector<uint8_t> payload = {};  // Of GetItem::allocate: K, V, K scales, V scales, one after the other.
  std::string record_header = {};     // kPacked only.
  uint32_t runs = 0;                  // kPacked only: bit i set where run i follows, in order.
};

struct Located {
  bool found = false;  // In every shard.
  PrecisionPair served = {};
  uint32_t tier = 0;
  uint32_t tokens = 0;
  absl::Status status = {};  // Not OK: the key breaks a limit, and nothing was looked up for it.
};

struct Prefix {
  uint32_t blocks = 0;
  uint64_t tokens = 0;
  std::vector<Located> located = {};  // The blocks of the prefix.
  std::vector<Digest> keys = {};      // Of all blocks asked about, where tokens were asked for.
  absl::Status stopped = {};          // Not OK: the prefix ends before a key that breaks a limit.
};

struct TouchHint {
  BlockKey key = {};
  float importance = 0;        // In [-1, 1].
  bool live_sequence = false;  // Its sequence is decoding now.
  // As in PutItem, in place of what was given before; none leaves that. Copies that are coded already stay as they are.
  std::vector<float> token_importance = {};
};

struct PartErrors {
  float int8 = 0, int4 = 0, int3 = 0, int2 = 0;  // Relative error of each class; NaN where it was never computed.
};

struct BlockInfo {
  Digest key = {};
  std::optional<Digest> parent = {};
  uint32_t shard = 0;
  uint32_t first_token = 0;
  uint32_t tokens = 0;
  uint64_t generation = 0;
  int64_t expires_unix_ms = 0;
  uint32_t pins = 0;
  struct Copy {
    uint32_t tier = 0;
    PrecisionPair served = {};
    uint64_t bytes = 0;
  };
  std::vector<Copy> copies = {};  // Hot to cold.
  PartErrors k_errors = {};
  PartErrors v_errors = {};
};

struct DescribeAnswer {
  absl::Status status = {};
  std::vector<BlockInfo> shards = {};
};

}  // namespace firnkv
