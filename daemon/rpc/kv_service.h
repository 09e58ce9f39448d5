// The data service of one listener: requests to the store and back. Put and Get take raw messages (streams.h).
//
// Threads: gRPC's own call in; everything that takes time runs on the executor. Ownership: borrows the core, which
// outlives the server. Errors: as proto/firn/v1/types.proto says: a status a key, the call fails as a whole only where
// nothing can be read.
#pragma once

#include <memory>

#include "daemon/core/service_core.h"
#include "daemon/rpc/checked_service.h"
#include "daemon/rpc/grpc_glue.h"
#include "daemon/rpc/streams.h"
#include "firn/v1/kv.grpc.pb.h"

namespace firn {

namespace kv_internal {
using S0 = v1::KvStore::WithRawCallbackMethod_Put<v1::KvStore::WithRawCallbackMethod_Get<v1::KvStore::Service>>;
using S1 = v1::KvStore::WithCallbackMethod_RegisterNamespace<
    v1::KvStore::WithCallbackMethod_DescribeNamespace<v1::KvStore::WithCallbackMethod_ListNamespaces<S0>>>;
using S2 = v1::KvStore::WithCallbackMethod_PutArtifact<v1::KvStore::WithCallbackMethod_BeginPut<
    v1::KvStore::WithCallbackMethod_CommitPut<v1::KvStore::WithCallbackMethod_AbortPut<S1>>>>;
using S3 = v1::KvStore::WithCallbackMethod_Lookup<v1::KvStore::WithCallbackMethod_Exists<
    v1::KvStore::WithCallbackMethod_List<v1::KvStore::WithCallbackMethod_Describe<S2>>>>;
using S4 = v1::KvStore::WithCallbackMethod_Prefetch<v1::KvStore::WithCallbackMethod_Pin<
    v1::KvStore::WithCallbackMethod_Unpin<v1::KvStore::WithCallbackMethod_Touch<S3>>>>;
using S5 = v1::KvStore::WithCallbackMethod_Delete<
    v1::KvStore::WithCallbackMethod_Flush<v1::KvStore::WithCallbackMethod_Session<S4>>>;
using S6 = v1::KvStore::WithCallbackMethod_Watch<
    v1::KvStore::WithCallbackMethod_Stats<v1::KvStore::WithCallbackMethod_Capabilities<S5>>>;
using S7 = v1::KvStore::WithCallbackMethod_FillFromDevice<v1::KvStore::WithCallbackMethod_GetToDevice<S6>>;
struct Base : S7 {
  static constexpr const char* service_full_name() { return v1::KvStore::service_full_name(); }
};
}  // namespace kv_internal

// FailedPrecondition unless the caller may hand over device memory.
absl::Status CheckLocal(const CallerIdentity& caller);

class KvService final : public CheckedService<kv_internal::Base> {
 public:
  using Context = grpc::CallbackServerContext;
  using Unary = grpc::ServerUnaryReactor;

  KvService(ServiceCore* core, CallerIdentity caller);

  Unary* RegisterNamespace(Context*, const v1::RegisterNamespaceRequest*, v1::NamespaceInfo*) override;
  Unary* DescribeNamespace(Context*, const v1::DescribeNamespaceRequest*, v1::NamespaceInfo*) override;
  Unary* ListNamespaces(Context*, const v1::ListNamespacesRequest*, v1::ListNamespacesResponse*) override;
  Unary* PutArtifact(Context*, const v1::PutArtifactRequest*, v1::PutArtifactResponse*) override;

  RawBidiReactor* Put(Context* context) override { return NewPutStream(core_, caller_, context); }
  Unary* BeginPut(Context*, const v1::BeginPutRequest*, v1::BeginPutResponse*) override;
  Unary* CommitPut(Context*, const v1::CommitPutRequest*, v1::CommitPutResponse*) override;
  Unary* AbortPut(Context*, const v1::AbortPutRequest*, v1::AbortPutResponse*) override;
  Unary* FillFromDevice(Context*, const v1::FillFromDeviceRequest*, v1::FillFromDeviceResponse*) override;
  Unary* GetToDevice(Context*, const v1::GetToDeviceRequest*, v1::GetToDeviceResponse*) override;
  RawBidiReactor* Get(Context* context) override { return NewGetStream(core_, caller_, context); }

  Unary* Lookup(Context*, const v1::LookupRequest*, v1::LookupResponse*) override;
  Unary* Exists(Context*, const v1::ExistsRequest*, v1::ExistsResponse*) override;
  Unary* List(Context*, const v1::ListRequest*, v1::ListResponse*) override;
  Unary* Describe(Context*, const v1::DescribeRequest*, v1::DescribeResponse*) override;

  Unary* Prefetch(Context*, const v1::PrefetchRequest*, v1::BatchResponse*) override;
  Unary* Pin(Context*, const v1::PinRequest*, v1::BatchResponse*) override;
  Unary* Unpin(Context*, const v1::PinRequest*, v1::BatchResponse*) override;
  Unary* Touch(Context*, const v1::TouchRequest*, v1::BatchResponse*) override;
  Unary* Delete(Context*, const v1::DeleteRequest*, v1::BatchResponse*) override;
  Unary* Flush(Context*, const v1::FlushRequest*, v1::FlushResponse*) override;

  grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionResponse>* Session(Context* context) override {
    return NewSessionStream(core_, caller_, context);
  }
  grpc::ServerWriteReactor<v1::WatchResponse>* Watch(Context* context, const v1::WatchRequest* request) override {
    return NewWatchStream(core_, caller_, context, *request);
  }
  Unary* Stats(Context*, const v1::StatsRequest*, v1::StatsResponse*) override;
  Unary* Capabilities(Context*, const v1::CapabilitiesRequest*, v1::CapabilitiesResponse*) override;

 private:
  absl::StatusOr<NamespacePtr> Namespace(Store* store, const std::string& fingerprint) {
    return core_->FindNamespace(store, fingerprint, caller_.tenant);
  }
  // InvalidArgument for a batch over limits.keys.
  absl::Status CheckBatch(int size) const;
  absl::Status FillInfo(Store* store, const NamespaceRef& ns, v1::NamespaceInfo* out) const;

  ServiceCore* const core_;
  const CallerIdentity caller_;
};

}  // namespace firn
