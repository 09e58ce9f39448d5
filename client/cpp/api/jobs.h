// From the caller's items to jobs of a Put stream; shared by puts and by the filling of leases. Threads: pure
// functions.
#pragma once

#include "absl/status/statusor.h"
#include "client/cpp/transport/put_stream.h"
#include "firnkv/client.h"

namespace firnkv {

absl::StatusOr<PutStreamOptions> MakePutOptions(const Namespace& ns, const PutOptions& options, const Limits& limits);
void FillPutBlock(const Namespace& ns, const PutItem& item, const PutOptions& options, firn::v1::PutBlock* out);
void AddPayload(const SourceParts& parts, PutJob* job);

}  // namespace firnkv
