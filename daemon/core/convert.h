// Between the API's messages and the store's types. What is out of range in a message is refused here, by name.
//
// Threads: any. Errors: InvalidArgument naming the field, its value and the limit.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "codecs/layout.h"
#include "codecs/types.h"
#include "daemon/core/status_map.h"
#include "firn/v1/kv.pb.h"
#include "tiers/store/store.h"

namespace firn {

absl::StatusOr<PrecisionClass> ToClass(int value, const char* field);
absl::StatusOr<ClassPair> ToClassPair(const v1::ClassPair& pair, const char* field);
void FromClassPair(const ClassPair& pair, v1::ClassPair* out);

absl::StatusOr<Digest> ToKey(const v1::BlockKey& key, const char* field);
// One answer a key. A key that cannot be read has its error in `statuses` and a zero digest in `keys`.
struct KeyBatch {
  std::vector<Digest> keys;
  std::vector<absl::Status> statuses;
};
KeyBatch ToKeys(const google::protobuf::RepeatedPtrField<v1::BlockKey>& keys);

absl::StatusOr<NamespaceFacts> ToFacts(const v1::NamespaceFacts& facts, const std::string& tenant);
void FromFacts(const NamespaceFacts& facts, v1::NamespaceFacts* out);
absl::StatusOr<PrecisionPlan> ToPlan(const v1::PrecisionPlan& plan);
void FromPlan(const PrecisionPlan& plan, v1::PrecisionPlan* out);
CallerLayout ToLayout(const v1::Layout& layout);

void FromBlockInfo(const BlockInfo& info, v1::BlockInfo* out);
void FromLocated(const LocatedBlock& located, v1::Located* out);
void FromPutResult(const absl::StatusOr<PutResult>& result, v1::PutResponse* out);
void FromStats(const StoreStats& stats, v1::StatsResponse* out);

inline std::string BytesOf(const Digest& digest) { return std::string(AsText(digest.span())); }

}  // namespace firn
