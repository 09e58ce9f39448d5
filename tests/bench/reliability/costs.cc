#include "tests/bench/reliability/costs.h"

#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"

namespace firn::bench {
namespace {

std::shared_ptr<const Artifact> EvenBalance(const BlockShape& shape) {
  const size_t count = size_t{shape.layers} * shape.heads * shape.k_width;
  return *Artifact::CreateBalance(shape.layers, shape.heads, shape.k_width, std::vector<float>(count),
                                  std::vector<float>(count, 1));
}

// Enough of one for a plan: checks of nothing, and no bytes.
EncodedBlock BlockWithoutValues(const BlockShape& shape) {
  EncodePlan plan = *PlanIdentity({}, DType::kFp16, shape);
  for (uint32_t run = 0; run < kRunIds; ++run) {
    if (!plan.layout.present.Has(run)) continue;
    RunInfo& info = plan.header.runs[run];
    info.layers_per_check = LayersPerCheckOf(plan.header, run);
    info.checks.resize((shape.layers + info.layers_per_check - 1) / info.layers_per_check);
  }
  EncodedBlock block;
  block.header = std::make_shared<const RecordHeader>(std::move(plan.header));
  block.present = plan.layout.present;
  return block;
}

}  // namespace

Cost CostOf(const BlockShape& shape, Ladder ladder, PrecisionClass at, const Protection& protection) {
  EncodeSpec spec;
  spec.target = {at, at};
  spec.key_method = KeyMethod::kBalancedRotated;
  spec.ladder = ladder;
  spec.balance = EvenBalance(shape);
  const EncodePlan plan = *PlanEncode(BlockWithoutValues(shape), spec);
  Cost cost{.header_bytes = HeaderBytesBound(plan.layout), .run_bytes = plan.layout.TotalBytes()};
  cost.parity_bytes = ParityBytes(protection.ecc.OfHeader(), cost.header_bytes);
  uint64_t checks = 0;
  for (uint32_t run = 0; run < kRunIds; ++run) {
    if (!plan.layout.present.Has(run)) continue;
    const uint64_t bytes = plan.layout.run_bytes[run];
    cost.parity_bytes += ParityBytes(protection.ecc.OfRun(run), bytes);
    const uint32_t joined = LayersPerCheck(bytes / shape.layers, shape.layers);
    checks += bytes == 0 ? 0 : (shape.layers + joined - 1) / joined;
  }
  if (!protection.checked) cost.header_bytes -= (checks + 1) * 8;
  return cost;
}

}  // namespace firn::bench
