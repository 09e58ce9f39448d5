// Plan files and rankings: what is read prints as what reads back the same.
#include "base/check.h"
#include "client/cpp/api/convert.h"
#include "daemon/core/convert.h"
#include "firnkv/plan_file.h"
#include "tests/fuzz/fuzz_target.h"

namespace firn::fuzz {
namespace {

Bytes FromText(std::string_view text) { return Bytes(text.begin(), text.end()); }

// Files that a plan names are not there.
absl::StatusOr<firnkv::PlanFile> Parse(std::string_view toml) {
  return firnkv::ParsePlanFile(toml, {.source = "fuzz.toml", .folder = "/proc/self/nowhere"});
}

void RunPlan(ByteSpan input) {
  using firnkv::Precision;
  auto file = Parse(AsText(input));
  if (!file.ok()) return;
  auto again = Parse(PrintPlanFile(*file));
  FIRN_CHECK(again.ok() && (*again == *file || !file->artifacts.empty() || !file->ranked.empty()));
  const firnkv::NamespaceFacts facts = {
      .model_id = "m", .layer_last = 32, .kv_heads = 2, .k_width = 64, .v_width = 64, .block_tokens = 64};
  const std::vector<firnkv::TierInfo> tiers = {{.name = "warm", .precision = {Precision::kInt8, Precision::kInt4}},
                                               {.name = "cold", .precision = {Precision::kInt4, Precision::kInt2}}};
  CheckPlanTiers(*file, tiers).IgnoreError();
  auto plan = PlanFor(*file, facts, tiers);
  if (!plan.ok()) return;
  // What the daemon would be sent, and make of it.
  v1::PrecisionPlan message;
  firnkv::ToProto(*plan, &message);
  FIRN_CHECK(firnkv::FromProto(message) == *plan);
  auto taken = ToPlan(message);
  v1::NamespaceFacts facts_message;
  firnkv::ToProto(facts, &facts_message);
  auto taken_facts = ToFacts(facts_message, "tenant");
  FIRN_CHECK(taken_facts.ok());
  if (taken.ok()) ValidatePlan(*taken_facts, *taken).IgnoreError();
}

std::vector<Bytes> PlanSeeds() {
  const std::string digest(64, 'a');
  std::vector<Bytes> seeds;
  for (const char* preset : {"firn", "kivi-2", "kvquant-3", "mikv", "fp8", "kvmix"}) {
    seeds.push_back(FromText("preset = \"" + std::string(preset) + "\"\nfloor = \"int4\"\n[artifacts]\nkeys = \"" +
                             digest + "\"\nvalues = \"" + digest + "\"\n"));
  }
  seeds.push_back(FromText("key_method = \"balanced\"\nbalance_artifact = \"" + digest + R"("
ladder = "trellis"
key_group = 32
value_group = 128
keep_first_tokens = 0
important_fraction = 0.25
recent_tokens = 128
floor = { k = "int4", v = "none" }
max_error = 0.25
[targets]
warm = "int8"
"odd name" = { k = "exact", v = "int3" }
)"));
  seeds.push_back(FromText(R"([[rules]]
tier = "cold"
part = "k"
codec = "int-token"
bits = 8
symmetric = true
pre_rope = false
rotated = true
[[rules]]
part = "v"
codec = "int-channel"
bits = 3
group = 64
heads = ["int4 x 3", "int2"]
)"));
  seeds.push_back(FromText(R"([boundary_layers]
first = 1
last = 2
at = "int8"
[[layers]]
tier = "cold"
layers = "0-1,30-31"
heads = "1"
k = "int8"
[[layers]]
layers = "all"
v = "int4"
)"));
  return seeds;
}

void RunRanking(ByteSpan input) {
  auto ranking = firnkv::ParseRanking(AsText(input));
  if (!ranking.ok()) return;
  auto preset = firnkv::PresetPlan("kvmix", {}, *ranking);
  if (preset.ok()) FIRN_CHECK(Parse(PrintPlanFile(*preset)).ok());
}

}  // namespace

std::vector<Target> PlanTargets() {
  return {{"plan", RunPlan, PlanSeeds(), nullptr},
          {"ranking",
           RunRanking,
           {FromText("layer,k_bits,v_bits\n0,3,4\n1,2,2\n"),
            FromText("# x\nlayer,k_importance,v_importance\n0,0.5,1e3\n1, 2 ,0\n")},
           nullptr}};
}

}  // namespace firn::fuzz
