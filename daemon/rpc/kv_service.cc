#include "daemon/rpc/kv_service.h"

#include <utility>

namespace firn {

KvService::KvService(ServiceCore* core, CallerIdentity caller) : core_(core), caller_(std::move(caller)) {
  Check(core, Method::kRegisterNamespace, &KvService::RegisterNamespace);
  Check(core, Method::kDescribeNamespace, &KvService::DescribeNamespace);
  Check(core, Method::kListNamespaces, &KvService::ListNamespaces);
  Check(core, Method::kPutArtifact, &KvService::PutArtifact);
  Check(core, Method::kBeginPut, &KvService::BeginPut);
  Check(core, Method::kCommitPut, &KvService::CommitPut);
  Check(core, Method::kAbortPut, &KvService::AbortPut);
  Check(core, Method::kFillFromDevice, &KvService::FillFromDevice);
  Check(core, Method::kGetToDevice, &KvService::GetToDevice);
  Check(core, Method::kLookup, &KvService::Lookup);
  Check(core, Method::kExists, &KvService::Exists);
  Check(core, Method::kList, &KvService::List);
  Check(core, Method::kDescribe, &KvService::Describe);
  Check(core, Method::kPrefetch, &KvService::Prefetch);
  Check(core, Method::kPin, &KvService::Pin);
  Check(core, Method::kUnpin, &KvService::Unpin);
  Check(core, Method::kTouch, &KvService::Touch);
  Check(core, Method::kDelete, &KvService::Delete);
  Check(core, Method::kFlush, &KvService::Flush);
  Check(core, Method::kWatch, &KvService::Watch);
  Check(core, Method::kStats, &KvService::Stats);
  Check(core, Method::kCapabilities, &KvService::Capabilities);
}

}  // namespace firn
