// Re-coding on the GPU: what crosses the bus is what the target tier keeps.
#include <limits>

#include "base/status.h"
#include "tiers/hot/gpu_tier_internal.h"

namespace firn {

void MakeRoomForChecks(RecordHeader* header) {
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (!header->encoded.Has(i)) continue;
    RunInfo& run = header->runs[i];
    run.layers_per_check = LayersPerCheckOf(*header, i);
    run.checks.clear();
    if (run.bytes == 0) continue;
    run.checks.assign((header->shape.layers + run.layers_per_check - 1) / run.layers_per_check, 0);
  }
}

std::vector<uint8_t> PlanBytes(RecordHeader header) {
  constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();
  header.errors = {PartErrors{kUnknown, kUnknown, kUnknown}, PartErrors{kUnknown, kUnknown, kUnknown}};
  MakeRoomForChecks(&header);
  return SerializeHeader(header);
}

namespace {

struct Recoding {
  std::unique_ptr<Draft> draft;
  std::vector<uint8_t> plan;
  CopyPtr copy;
  TierRecoder::RecodeDone done;
};

absl::StatusOr<TierRecoder::Recoded> Finish(Recoding* recoding, absl::StatusOr<std::vector<uint8_t>> answer) {
  if (absl::IsAborted(answer.status())) {
    return Unimplemented("the values want another plan: {}", Message(answer.status()));
  }
  if (!answer.ok() && !absl::IsDataLoss(answer.status()) && !absl::IsUnavailable(answer.status())) {
    // Whatever the child could not do, the processor can.
    return Unimplemented("the child did not: {}", Message(answer.status()));
  }
  if (!answer.ok()) return answer.status();
  FIRN_ASSIGN_OR_RETURN(RecordHeader header, ParseHeader(*answer, nullptr));
  if (PlanBytes(header) != recoding->plan) return InternalError("a header came back that was not planned");
  return TierRecoder::Recoded{std::move(recoding->draft), std::make_shared<const RecordHeader>(std::move(header))};
}

}  // namespace

void GpuTier::Recode(CopyPtr copy, const Identity& identity, const EncodeSpec& spec, const ArtifactSource& artifacts,
                     Tier* to, RecodeDone done) {
  const auto& gpu_copy = static_cast<const GpuCopy&>(*copy);
  const Record& record = *gpu_copy.record;
  EncodedBlock source;
  source.header = record.header;
  source.present = gpu_copy.stored();
  if (source.header->identity != identity) return done(DataLoss("{}: the record there is another's", name()));
  auto plan = PlanEncode(source, spec);
  if (!plan.ok()) return done(plan.status());
  if (plan->surveyed) return done(Unimplemented("nothing is coded anew"));

  gpu::RecodeJob job;
  std::vector<std::shared_ptr<const Artifact>> needed;
  for (const RecordHeader* header : {source.header.get(), static_cast<const RecordHeader*>(&plan->header)}) {
    for (Part part : kParts) {
      if (header->shape.part(part).width == 0) continue;
      auto artifact = ArtifactFor(header->CodingOf(part), spec, artifacts);
      if (!artifact.ok()) return done(artifact.status());
      if (*artifact != nullptr) needed.push_back(*std::move(artifact));
    }
  }
  auto draft = to->Reserve(LayoutOf(plan->header));
  if (!draft.ok()) return done(draft.status());
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (source.present.Has(i) && record.runs[i].bytes > 0) {
      job.source[i].push_back({gpu::kPoolSpace, record.runs[i].offset, record.runs[i].bytes});
    }
    if (!PlacesOf(*link_, (*draft)->runs()[i], &job.target[i])) {
      return done(Unimplemented("tier \"{}\" has memory that the GPU child has not mapped", to->name()));
    }
  }
  auto recoding = std::make_shared<Recoding>();
  recoding->draft = *std::move(draft);
  recoding->plan = PlanBytes(plan->header);
  recoding->copy = std::move(copy);
  recoding->done = std::move(done);
  job.source_header = SerializeHeader(*source.header);
  job.target_header = recoding->plan;
  link_->Run(record.pool->epoch, gpu::Lane::kDemote, std::move(job), std::move(needed),
             [executor = options_.executor, recoding](absl::StatusOr<std::vector<uint8_t>> answer) mutable {
               executor->Post([recoding = std::move(recoding), answer = std::move(answer)]() mutable {
                 auto recoded = Finish(recoding.get(), std::move(answer));
                 recoding->draft.reset();
                 recoding->copy.reset();
                 recoding->done(std::move(recoded));
               });
             });
}

}  // namespace firn
