// Precision plans as files that people write (docs/plan.md is the manual): TOML to PrecisionPlan and back.
//
// A file may say more than a plan does: which layers and heads are finer, by number, and artifacts by their files. Such
// a PlanFile becomes the plan of a namespace by PlanFor, once the namespace's layers and heads are known; its artifacts
// are handed over first (Client::PutArtifact). Threads: values and pure functions; LoadPlanFile, and ParsePlanFile
// where a plan names files, read them. Errors: InvalidArgument with every key that is wrong, its value, what is allowed
// and the line. Limits: 1 MiB of TOML, 34 rules, 1,024 entries of layers.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "firnkv/presets.h"
#include "firnkv/types.h"

namespace firnkv {

// Numbers from `first` to `last`, both among them.
struct NumberRange {
  uint32_t first = 0;
  uint32_t last = 0;
  bool operator==(const NumberRange&) const = default;
};

// Where an entry of a plan stands in its file, for messages: "layers[1]", line 8. No part of what it says: all are
// equal.
struct FilePlace {
  std::string entry = {};  // Empty: not from a file.
  uint32_t line = 0;
  bool operator==(const FilePlace&) const { return true; }
};

// The same of what the plan itself has: rules in their order, and targets by tier. There may be fewer places.
struct FilePlaces {
  std::vector<FilePlace> rules = {};
  std::map<std::string, FilePlace> targets = {};
  bool operator==(const FilePlaces&) const { return true; }
};

// Heads that get a precision of their own.
struct LayerClasses {
  std::string tier = {};                 // Empty: in every tier that does not keep values exactly.
  std::vector<NumberRange> layers = {};  // By the model's numbers, ascending; empty: all.
  std::vector<NumberRange> heads = {};   // KV heads of the shard, ascending; empty: all.
  std::optional<Precision> k = {};       // kInt8, kInt4, kInt3 (where the codec has it) or kInt2; nothing: as it is.
  std::optional<Precision> v = {};
  FilePlace place = {};
  bool operator==(const LayerClasses&) const = default;
};

// The namespace's first and last layers, which are never coded coarser than `at`.
struct BoundaryLayers {
  uint32_t first = 0;
  uint32_t last = 0;
  PrecisionPair at = {};
  bool operator==(const BoundaryLayers&) const = default;
};

// An artifact that a plan names by its file.
struct ArtifactFile {
  Digest digest = {};
  std::string path = {};
  std::string serialized = {};  // What Client::PutArtifact takes.
  bool operator==(const ArtifactFile&) const = default;
};

struct PlanFile {
  PrecisionPlan plan = {};
  std::vector<LayerClasses> layers = {};  // In order: a later one wins.
  std::optional<BoundaryLayers> boundary = {};
  std::vector<ArtifactFile> artifacts = {};
  // The layers that a ranking ranks: all of the namespace's have to be among them. Empty: no ranking. Not printed, as
  // `layers` then say what each gets.
  std::vector<NumberRange> ranked = {};
  FilePlaces places = {};
  bool operator==(const PlanFile&) const = default;
};

struct PlanFileOptions {
  std::string source = "plan";  // What messages call it.
  std::string folder = {};      // Files that the plan names are relative to it; empty: to the working directory.
};
absl::StatusOr<PlanFile> ParsePlanFile(std::string_view toml, const PlanFileOptions& options = {});
absl::StatusOr<PlanFile> LoadPlanFile(const std::string& path);

// TOML that ParsePlanFile reads back to the same values; artifacts by their names.
std::string PrintPlan(const PrecisionPlan& plan);
std::string PrintPlanFile(const PlanFile& file);

// The plan of a namespace of these facts. `tiers` are needed where layers or boundaries are finer than the ladder's own
// precision, which each tier sets: FailedPrecondition without. InvalidArgument where a layer or head is not the
// namespace's, a ranking lacks one of its layers, or a codec has no such precision.
absl::StatusOr<PrecisionPlan> PlanFor(const PlanFile& file, const NamespaceFacts& facts,
                                      std::span<const TierInfo> tiers = {});

// InvalidArgument, with the names there are, where a plan names a tier that the daemon does not have.
absl::Status CheckPlanTiers(const PlanFile& file, std::span<const TierInfo> tiers);

// A ranking of layers, as KVmix wants it (arXiv 2506.08018): CSV with a row a layer under the heading
// `layer,k_bits,v_bits`, or `layer,k_importance,v_importance`. Of importances the greatest `share` of the layers
// (rounded down, at least one; of equals the first) get K 3 bits and V 4, each ranked by its own column; the others 2.
// InvalidArgument, naming the layers, where some between the first and the last are missing or there twice.
struct RankingOptions {
  std::string source = "ranking";
  double share = 0.2;  // Above 0, at most 1.
};
absl::StatusOr<std::vector<LayerClasses>> ParseRanking(std::string_view csv, const RankingOptions& options = {});

// A preset, also one that tells layers apart: `ranking` is what kvmix cannot do without, and no other has a use for.
absl::StatusOr<PlanFile> PresetPlan(std::string_view name, const PresetArtifacts& artifacts,
                                    const std::vector<LayerClasses>& ranking = {});

}  // namespace firnkv
