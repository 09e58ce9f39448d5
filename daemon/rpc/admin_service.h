// The administration service. Registered only with servers of listeners that say `admin = true`.
//
// Threads, ownership, errors: as kv_service.h.
#pragma once

#include "daemon/core/service_core.h"
#include "daemon/rpc/checked_service.h"
#include "daemon/rpc/grpc_glue.h"
#include "firn/v1/admin.grpc.pb.h"

namespace firn {

struct AdminBase : v1::Admin::CallbackService {
  static constexpr const char* service_full_name() { return v1::Admin::service_full_name(); }
};

class AdminService final : public CheckedService<AdminBase> {
 public:
  using Context = grpc::CallbackServerContext;
  using Unary = grpc::ServerUnaryReactor;

  AdminService(ServiceCore* core, CallerIdentity caller);

  Unary* Clear(Context*, const v1::ClearRequest*, v1::ClearResponse*) override;
  Unary* Demote(Context*, const v1::MoveRequest*, v1::MoveResponse*) override;
  Unary* Promote(Context*, const v1::MoveRequest*, v1::MoveResponse*) override;
  Unary* Degrade(Context*, const v1::DegradeRequest*, v1::MoveResponse*) override;
  Unary* RemoveNamespace(Context*, const v1::RemoveNamespaceRequest*, v1::RemoveNamespaceResponse*) override;
  Unary* SetCapacity(Context*, const v1::SetCapacityRequest*, v1::SetCapacityResponse*) override;
  Unary* Verify(Context*, const v1::VerifyRequest*, v1::VerifyResponse*) override;
  Unary* Scrub(Context*, const v1::ScrubRequest*, v1::ScrubResponse*) override;

 private:
  absl::StatusOr<uint8_t> TierByName(const std::string& name) const;
  // Runs `move(ns, key, tier, done)` for every key of a request.
  template <typename Request, typename Move>
  Unary* MoveEach(Context* context, Method method, const Request* request, v1::MoveResponse* response, Move move);

  ServiceCore* const core_;
  const CallerIdentity caller_;
};

}  // namespace firn
