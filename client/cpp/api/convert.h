// Between the API's messages and the client's public types. Threads: pure functions.
#pragma once

#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "firn/v1/admin.pb.h"
#include "firn/v1/kv.pb.h"
#include "firnkv/blocks.h"
#include "firnkv/client.h"
#include "firnkv/types.h"
#include "firnkv/watch.h"

namespace firnkv {

absl::Status FromProto(const firn::v1::Status& status);
PrecisionPair FromProto(const firn::v1::ClassPair& pair);
NamespaceFacts FromProto(const firn::v1::NamespaceFacts& facts);
PrecisionPlan FromProto(const firn::v1::PrecisionPlan& plan);
// DataLoss where a fingerprint is not 32 bytes.
absl::StatusOr<Namespace> FromProto(const firn::v1::NamespaceInfo& info);
Limits FromProto(const firn::v1::Limits& limits);
Capabilities FromProto(const firn::v1::CapabilitiesResponse& response);
Stats FromProto(const firn::v1::StatsResponse& response);
PutResult FromProto(const firn::v1::PutResponse& response);
Located FromProto(const firn::v1::Located& located);
Prefix FromProto(const firn::v1::LookupResponse& response);
BlockInfo FromProto(const firn::v1::BlockInfo& info);
EventBatch FromProto(const firn::v1::WatchResponse& response);
std::vector<absl::Status> FromProto(const google::protobuf::RepeatedPtrField<firn::v1::Status>& statuses);
std::vector<MoveAnswer> FromProto(const firn::v1::MoveResponse& response);
void ReadFound(const firn::v1::GetBlock& found, GetResult* result);

void ToProto(PrecisionPair pair, firn::v1::ClassPair* out);
void ToProto(const NamespaceFacts& facts, firn::v1::NamespaceFacts* out);
void ToProto(const PrecisionPlan& plan, firn::v1::PrecisionPlan* out);
void ToProto(const BlockKey& key, firn::v1::BlockKey* out);
void ToProto(const Layout& layout, firn::v1::Layout* out);
void ToProto(std::span<const BlockKey> keys, google::protobuf::RepeatedPtrField<firn::v1::BlockKey>* out);

inline std::string Bytes(const Digest& digest) {
  return std::string(reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size());
}

}  // namespace firnkv
