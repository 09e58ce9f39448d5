// Namespaces, artifacts and what the daemon says of itself.
#include <algorithm>

#include "base/block_key.h"
#include "base/status.h"
#include "base/units.h"
#include "codecs/artifact.h"
#include "daemon/core/convert.h"
#include "daemon/payload/payload_sink.h"
#include "daemon/rpc/grpc_server.h"
#include "daemon/rpc/kv_service.h"

namespace firn {

absl::Status KvService::FillInfo(Store* store, const NamespaceRef& ns, v1::NamespaceInfo* out) const {
  out->set_namespace_fingerprint(BytesOf(ns.fingerprint));
  out->set_model_fingerprint(BytesOf(ns.model_fingerprint));
  FromFacts(ns.facts, out->mutable_facts());
  FIRN_ASSIGN_OR_RETURN(PrecisionPlan plan, store->Plan(ns.id));
  FromPlan(plan, out->mutable_plan());
  FIRN_ASSIGN_OR_RETURN(PayloadPlan payload, PlanPayload(ns.facts, ns.facts.block_tokens, std::nullopt, 0));
  out->set_block_bytes(payload.TotalBytes());
  return absl::OkStatus();
}

KvService::Unary* KvService::RegisterNamespace(Context* context, const v1::RegisterNamespaceRequest* request,
                                               v1::NamespaceInfo* response) {
  return AnswerLater(core_, context, Method::kRegisterNamespace, [=, this](Store* store, UnaryDone done) mutable {
    auto facts = ToFacts(request->facts(), caller_.tenant);
    if (!facts.ok()) return done(facts.status());
    absl::StatusOr<PrecisionPlan> plan = PrecisionPlan{};
    if (request->has_plan()) {
      plan = ToPlan(request->plan());
    } else if (auto known = store->FindNamespace(NamespaceFingerprint(*facts)); known.ok()) {
      plan = store->Plan(*known);
    }
    if (!plan.ok()) return done(plan.status());
    absl::Status valid = ValidatePlan(*facts, *plan);
    if (!valid.ok()) return done(valid);
    store->RegisterNamespace(*facts, *plan, [=, this, done = std::move(done)](absl::StatusOr<NamespaceId> id) mutable {
      if (!id.ok()) return done(id.status());
      NamespacePtr ns = core_->NamespaceById(store, *id);
      absl::Status filled = ns == nullptr ? NotFound("") : FillInfo(store, *ns, response);
      if (filled.code() == absl::StatusCode::kNotFound) {
        filled = Aborted("the namespace was removed by another call while it was registered; register it again");
      }
      done(std::move(filled));
    });
  });
}

KvService::Unary* KvService::DescribeNamespace(Context* context, const v1::DescribeNamespaceRequest* request,
                                               v1::NamespaceInfo* response) {
  return Answer(core_, context, Method::kDescribeNamespace, [=, this](Store* store) -> absl::Status {
    FIRN_ASSIGN_OR_RETURN(NamespacePtr ns, Namespace(store, request->namespace_fingerprint()));
    return FillInfo(store, *ns, response);
  });
}

KvService::Unary* KvService::ListNamespaces(Context* context, const v1::ListNamespacesRequest*,
                                            v1::ListNamespacesResponse* response) {
  return Answer(core_, context, Method::kListNamespaces, [=, this](Store* store) -> absl::Status {
    constexpr uint64_t kListedBytesMax = kMessageBytesMax - kMiB;
    uint64_t bytes = 0;
    for (NamespaceId id : store->ListNamespaces(caller_.tenant)) {
      NamespacePtr ns = core_->NamespaceById(store, id);
      if (ns == nullptr) continue;
      v1::NamespaceInfo* info = response->add_namespaces();
      absl::Status filled = FillInfo(store, *ns, info);
      if (filled.code() == absl::StatusCode::kNotFound) {  // Removed meanwhile.
        response->mutable_namespaces()->RemoveLast();
        continue;
      }
      FIRN_RETURN_IF_ERROR(filled);
      bytes += info->ByteSizeLong() + 8;
      if (bytes <= kListedBytesMax) continue;
      response->clear_namespaces();
      return ResourceExhausted(
          "the namespaces with their plans take more than {} bytes, the limit of an answer; ask about each with "
          "DescribeNamespace",
          kListedBytesMax);
    }
    return absl::OkStatus();
  });
}

KvService::Unary* KvService::PutArtifact(Context* context, const v1::PutArtifactRequest* request,
                                         v1::PutArtifactResponse* response) {
  return AnswerLater(core_, context, Method::kPutArtifact, [=](Store* store, UnaryDone done) mutable {
    auto artifact = Artifact::Parse(AsBytes(request->serialized()));
    if (!artifact.ok()) return done(InvalidArgument("serialized: {}", Message(artifact.status())));
    // Its name is the SHA-256 of its bytes: the caller's and the daemon's are the same, or nobody finds it by its name.
    if (!std::ranges::equal((*artifact)->serialized(), AsBytes(request->serialized()))) {
      return done(InvalidArgument("serialized: {} bytes, not as an artifact of these sections is written ({} bytes)",
                                  request->serialized().size(), (*artifact)->serialized().size()));
    }
    response->set_artifact(BytesOf((*artifact)->digest()));
    store->PutArtifact(*artifact, std::move(done));
  });
}

KvService::Unary* KvService::Stats(Context* context, const v1::StatsRequest*, v1::StatsResponse* response) {
  return Answer(core_, context, Method::kStats, [=](Store* store) {
    FromStats(store->Stats(), response);
    return absl::OkStatus();
  });
}

KvService::Unary* KvService::Capabilities(Context* context, const v1::CapabilitiesRequest*,
                                          v1::CapabilitiesResponse* response) {
  return Answer(core_, context, Method::kCapabilities, [=, this](Store*) {
    response->set_version(core_->version());
    response->set_api_revision(6);
    const LimitSettings& limits = core_->limits();
    v1::Limits* shown = response->mutable_limits();
    shown->set_block_bytes_max(limits.block_bytes_max);
    shown->set_chunk_bytes_max(limits.chunk_bytes_max);
    shown->set_message_bytes_max(kMessageBytesMax);
    shown->set_keys_max(limits.keys_max);
    shown->set_opaque_key_bytes_max(kOpaqueKeyBytesMax);
    shown->set_streams_max(limits.streams_max);
    shown->set_put_idle_ms_max(static_cast<uint64_t>(limits.put_idle_ms));
    shown->set_read_stall_ms_max(static_cast<uint64_t>(limits.read_stall_ms));
    shown->set_held_bytes_max(limits.held_bytes_max);
    for (const TierDescription& tier : core_->tiers()) {
      v1::TierInfo* info = response->add_tiers();
      info->set_name(tier.name);
      info->set_medium(tier.medium);
      info->set_persistent(tier.persistent);
      FromClassPair(tier.precision, info->mutable_precision());
      FromClassPair(tier.least, info->mutable_least());
      info->set_capacity_bytes(tier.capacity_bytes);
      info->set_ecc(tier.ecc);
    }
    for (auto dtype : {v1::DTYPE_FP16, v1::DTYPE_BF16, v1::DTYPE_FP8_E4M3, v1::DTYPE_FP8_E5M2, v1::DTYPE_BYTES}) {
      response->add_dtypes(dtype);
    }
    for (auto representation : {v1::REPRESENTATION_SOURCE, v1::REPRESENTATION_FP16, v1::REPRESENTATION_BF16,
                                v1::REPRESENTATION_FP32, v1::REPRESENTATION_PACKED}) {
      response->add_representations(representation);
    }
    response->add_byte_paths("inline");
    bool gpu = std::any_of(core_->tiers().begin(), core_->tiers().end(),
                           [](const TierDescription& tier) { return tier.medium.starts_with("gpu:"); });
    if (gpu && caller_.local) response->add_byte_paths("gpu_handle");
    response->set_admin(caller_.admin);
    return absl::OkStatus();
  });
}

}  // namespace firn
