// Between the pool, or memory that the child has mapped, and the device memory of workers.
#include "base/status.h"
#include "tiers/hot/device_rows.h"
#include "tiers/hot/gpu_tier_internal.h"

namespace firn {

void GpuTier::Import(Draft* draft, const RecordHeader& planned, const DeviceRows& rows, ImportDone done) {
  absl::Status checked = CheckDeviceRows(rows, planned.shape, DTypeBytes(planned.dtype), nullptr);
  if (checked.ok() && !rows.has_event()) {
    checked = InvalidArgument("device memory without the event of who produces its values");
  }
  if (!checked.ok()) return done(checked);
  RecordHeader header = planned;
  MakeRoomForChecks(&header);
  // The record keeps its extents until the child has answered, whatever becomes of the draft.
  std::shared_ptr<Record> record = static_cast<GpuDraft*>(draft)->record;
  gpu::ImportJob job;
  job.header = SerializeHeader(header);
  job.from = rows;
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (record->runs[i].bytes > 0)
      job.target[i].push_back({gpu::kPoolSpace, record->runs[i].offset, record->runs[i].bytes});
  }
  link_->Run(record->pool->epoch, gpu::Lane::kImport, std::move(job), {},
             [executor = options_.executor, record, plan = PlanBytes(planned),
              done = std::move(done)](absl::StatusOr<std::vector<uint8_t>> answer) mutable {
               executor->Post([record = std::move(record), plan = std::move(plan), answer = std::move(answer),
                               done = std::move(done)]() mutable {
                 record = nullptr;  // Whoever hears of it may want the room at once.
                 if (!answer.ok()) return done(answer.status());
                 auto sealed = ParseHeader(*answer, nullptr);
                 if (!sealed.ok()) return done(sealed.status());
                 RecordHeader compared = *sealed;
                 compared.flags &= static_cast<uint16_t>(~RecordHeader::kNonFinite);
                 if (PlanBytes(std::move(compared)) != plan) {
                   return done(InternalError("a header came back that was not planned"));
                 }
                 done(std::shared_ptr<const RecordHeader>(std::make_shared<RecordHeader>(*std::move(sealed))));
               });
             });
}

absl::StatusOr<EncodedBlock> GpuTier::Stage(const EncodedBlock& block) {
  std::vector<gpu::Place> places;
  bool mapped = true;
  for (const RunBytes& run : block.runs) mapped = mapped && PlacesOf(*link_, run, &places);
  if (mapped) return block;
  MutableRuns runs;
  EncodedBlock staged = block;
  FIRN_ASSIGN_OR_RETURN(staged.owner, reads_->Take(block.Layout(block.present), &runs));
  for (uint32_t i = 0; i < kRunIds; ++i) {
    CopyScattered(block.runs[i], runs[i]);
    staged.runs[i] = runs[i];
  }
  return staged;
}

absl::StatusOr<EncodedBlock> GpuTier::StageDecoded(const EncodedBlock& block, const ArtifactSource& artifacts) {
  const RecordHeader& header = *block.header;
  FIRN_ASSIGN_OR_RETURN(EncodePlan plan, PlanIdentity(header.identity, header.dtype, header.shape));
  std::array<std::vector<uint8_t>, 2> values;
  for (Part part : kParts) {
    values[static_cast<size_t>(part)].resize(header.shape.part(part).values() * DTypeBytes(header.dtype));
  }
  DecodeRequest request;
  request.out = header.dtype;
  request.use = block.present;
  FIRN_RETURN_IF_ERROR(Decode(block, artifacts, request, values[0], values[1]));
  MutableRuns runs;
  EncodedBlock staged;
  FIRN_ASSIGN_OR_RETURN(staged.owner, reads_->Take(LayoutOf(plan.header), &runs));
  staged.present = plan.header.encoded;
  for (Part part : kParts) {
    uint32_t run = RunIndex(RunKind::kWhole, part);
    CopyScattered(RunBytes(ByteSpan(values[static_cast<size_t>(part)])), runs[run]);
    staged.runs[run] = runs[run];
  }
  auto sealed = std::make_shared<RecordHeader>(std::move(plan.header));
  SealSource(sealed.get(), staged.runs);
  staged.header = std::move(sealed);
  return staged;
}

void GpuTier::Export(const EncodedBlock& block, CopyPtr copy, const ArtifactSource& artifacts, const DeviceRows& rows,
                     ExportDone done) {
  const RecordHeader& header = *block.header;
  absl::Status checked = CheckDeviceRows(rows, header.shape, DTypeBytes(header.dtype), nullptr);
  if (!checked.ok()) return done(checked);
  gpu::ExportJob job;
  job.header = SerializeHeader(header);
  job.to = rows;
  std::vector<std::shared_ptr<const Artifact>> needed;
  for (Part part : kParts) {
    if (header.shape.part(part).width == 0) continue;
    auto artifact = ArtifactFor(header.CodingOf(part), EncodeSpec{}, artifacts);
    if (!artifact.ok()) return done(artifact.status());
    if (*artifact != nullptr) needed.push_back(*std::move(artifact));
  }
  std::shared_ptr<Pool> pool = CurrentPool();
  EncodedBlock staged;
  if (copy != nullptr) {
    const Record& record = *static_cast<const GpuCopy&>(*copy).record;
    pool = record.pool;
    for (uint32_t i = 0; i < kRunIds; ++i) {
      if (block.present.Has(i) && record.runs[i].bytes > 0) {
        job.source[i].push_back({gpu::kPoolSpace, record.runs[i].offset, record.runs[i].bytes});
      }
    }
  } else {
    auto mapped = Stage(block);
    if (!mapped.ok()) return done(mapped.status());
    staged = *std::move(mapped);
    for (uint32_t i = 0; i < kRunIds; ++i) FIRN_CHECK(PlacesOf(*link_, staged.runs[i], &job.source[i]));
  }
  if (pool == nullptr) return done(Unavailable("{}: no GPU child serves", name()));
  auto on_done = [this, block, copy, staged, rows, &artifacts,
                  done = std::move(done)](absl::StatusOr<std::vector<uint8_t>> answer) mutable {
    options_.executor->Post([this, block = std::move(block), copy = std::move(copy), staged = std::move(staged),
                             rows = std::move(rows), &artifacts, done = std::move(done),
                             status = answer.status()]() mutable {
      bool coded = false;
      for (Part part : kParts) {
        CodecFamily family = FamilyOf(block.header->CodingOf(part).codec);
        coded = coded || family == CodecFamily::kCodes || family == CodecFamily::kNested;
      }
      bool by_hand = absl::IsUnimplemented(status) && copy == nullptr && coded;
      if (!by_hand) return done(status);
      staged = {};
      auto decoded = StageDecoded(block, artifacts);
      if (!decoded.ok()) return done(decoded.status());
      Export(*decoded, nullptr, artifacts, rows, std::move(done));
    });
  };
  link_->Run(pool->epoch, gpu::Lane::kServe, std::move(job), std::move(needed), std::move(on_done));
}

}  // namespace firn
