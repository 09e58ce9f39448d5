// import-scales: calibrated KV-cache scales of a checkpoint, as artifacts of keys and values (docs/plan.md).

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>

#include "base/status.h"
#include "client/cli/commands/commands.h"
#include "client/cli/support/artifact_output.h"
#include "client/cli/support/kv_scales.h"
#include "client/cli/support/numbers.h"
#include "client/cpp/plan/plan_words.h"
#include "client/cpp/tensor/output_file.h"
#include "codecs/artifact.h"

namespace firn::cli {
namespace {

struct ImportCommand {
  std::vector<std::string> files;
  std::string config, layers, out_keys, out_values;
  uint32_t kv_heads = 0, head_dim = 0, v_head_dim = 0;
  bool reciprocal = false, register_them = false;

  // Heads and channels from the options, or else from the model's config.json, which alone says how many layers.
  absl::StatusOr<ModelShape> Shape() const {
    ModelShape shape{.kv_heads = kv_heads, .head_dim = head_dim};
    std::filesystem::path path = config;
    std::error_code error;
    if (config.empty()) {
      path = files[0];
      if (!std::filesystem::is_directory(path, error)) path = path.parent_path();
      path /= "config.json";
    }
    if (!config.empty() || std::filesystem::exists(path, error)) {
      FIRN_ASSIGN_OR_RETURN(ModelShape read, ReadModelShape(path.string()));
      if (shape.kv_heads == 0) shape.kv_heads = read.kv_heads;
      if (shape.head_dim == 0) shape.head_dim = read.head_dim;
      shape.layers = read.layers;
    }
    if (shape.head_dim == 0) {
      return InvalidArgument(
          "the channels of a head are not known: --head-dim N, or --config with the model's config.json");
    }
    return shape;
  }

  absl::StatusOr<std::string> Deliver(Context* context, const KvScales& scales, const std::vector<float>& values,
                                      uint32_t width, const std::string& out) const {
    FIRN_ASSIGN_OR_RETURN(auto artifact, Artifact::Create({.layers = scales.layers,
                                                           .heads = scales.heads,
                                                           .width = width,
                                                           .mean = {},
                                                           .weight = {},
                                                           .centre = {},
                                                           .reach = {},
                                                           .scales = values,
                                                           .codebooks = {},
                                                           .rope = {}}));
    FIRN_RETURN_IF_ERROR(DeliverArtifact(context, *artifact, out, register_them));
    return artifact->digest().Hex();
  }

  absl::StatusOr<int> Run(Context* context) const {
    if (out_keys.empty() && out_values.empty() && !register_them) {
      return InvalidArgument("say where the artifacts go: --out-keys FILE, --out-values FILE, --register");
    }
    for (const std::string& out : {out_keys, out_values}) {
      if (!out.empty()) FIRN_RETURN_IF_ERROR(CheckOutputPath(out));
    }
    FIRN_ASSIGN_OR_RETURN(ModelShape shape, Shape());
    KvScalesOptions options{
        .kv_heads = shape.kv_heads, .layers = {}, .model_layers = shape.layers, .reciprocal = reciprocal};
    if (!layers.empty()) {
      auto ranges = firnkv::ParseRanges(layers, firnkv::kLayersMax - 1);
      if (!ranges.has_value()) {
        return InvalidArgument("--layers {}: allowed: ascending numbers and ranges of 0 to {}, as in 0-1,30-31", layers,
                               firnkv::kLayersMax - 1);
      }
      options.layers = *std::move(ranges);
    }
    FIRN_ASSIGN_OR_RETURN(KvScales scales, ReadKvScales(files, options));
    uint32_t v_width = v_head_dim == 0 ? shape.head_dim : v_head_dim;
    FIRN_ASSIGN_OR_RETURN(std::string keys, Deliver(context, scales, scales.k, shape.head_dim, out_keys));
    FIRN_ASSIGN_OR_RETURN(std::string values, Deliver(context, scales, scales.v, v_width, out_values));
    if (context->json) {
      context->Print({{"keys", keys},
                      {"values", values},
                      {"layers", scales.layers},
                      {"heads", scales.heads},
                      {"head_dim", shape.head_dim},
                      {"registered", register_them}});
    } else {
      std::printf("keys   %s\nvalues %s\n", keys.c_str(), values.c_str());
      if (!context->quiet) std::fprintf(stderr, "%u layers of %u KV heads\n", scales.layers, scales.heads);
    }
    return kExitOk;
  }
};

}  // namespace

void AddImportScales(CLI::App* app, Context* context, int* code) {
  auto command = std::make_shared<ImportCommand>();
  CLI::App* scales = app->add_subcommand(
      "import-scales", "Makes artifacts of a checkpoint's calibrated KV-cache scales; prints their names");
  scales->add_option("files", command->files, "Checkpoint folder, .safetensors, index.json, or JSON of scales")
      ->required()
      ->type_name("FILE");
  scales->add_option("--config", command->config, "The model's config.json (default: the one beside the files)")
      ->type_name("FILE");
  scales->add_option("--kv-heads", command->kv_heads, "KV heads of the model (default: the configuration's)")
      ->check(WholeNumber<uint32_t>())
      ->type_name("HEADS");
  scales->add_option("--head-dim", command->head_dim, "Channels of a head (default: the configuration's)")
      ->check(WholeNumber<uint32_t>())
      ->type_name("CHANNELS");
  scales->add_option("--v-head-dim", command->v_head_dim, "Channels of a head of V (default: as of K)")
      ->check(WholeNumber<uint32_t>())
      ->type_name("CHANNELS");
  scales
      ->add_option(
          "--layers", command->layers,
          "Layers to take, as in 0-31 (default: all of the configuration, else from 0 to the last that has a scale)")
      ->type_name("RANGE");
  scales->add_flag("--reciprocal", command->reciprocal, "The files hold 1/scale: what values are multiplied with");
  scales->add_option("--out-keys", command->out_keys, "Write the artifact of keys to this file (default: nowhere)")
      ->type_name("FILE");
  scales
      ->add_option("--out-values", command->out_values, "Write the artifact of values to this file (default: nowhere)")
      ->type_name("FILE");
  scales->add_flag("--register", command->register_them, "Hand both artifacts to the daemon");
  scales->callback([=] {
    auto result = command->Run(context);
    *code = result.ok() ? *result : context->Report(result.status());
  });
}

}  // namespace firn::cli
