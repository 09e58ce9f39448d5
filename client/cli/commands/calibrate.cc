#include "codecs/calibrate.h"

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <map>

#include "base/status.h"
#include "client/cli/commands/commands.h"
#include "client/cli/support/kv_file.h"
#include "client/cpp/tensor/output_file.h"
#include "client/cpp/tensor/tensor_file.h"

namespace firn::cli {
namespace {

// Keys and queries of one layer of one file.
struct LayerTensors {
  const Tensor* k = nullptr;
  const Tensor* q = nullptr;
};

absl::StatusOr<std::map<uint32_t, LayerTensors>> FindLayers(const TensorFile& file) {
  std::map<uint32_t, LayerTensors> layers;
  for (const Tensor& tensor : file.tensors()) {
    uint32_t layer = 0;
    std::string suffix;
    if (!SplitLayerName(tensor.name, &layer, &suffix)) continue;
    if (suffix == "k" || suffix == "key") layers[layer].k = &tensor;
    if (suffix == "q" || suffix == "query") layers[layer].q = &tensor;
  }
  for (auto it = layers.begin(); it != layers.end();) it = it->second.k == nullptr ? layers.erase(it) : std::next(it);
  if (layers.empty()) return InvalidArgument("{} has no tensors named LAYER.k", file.path());
  for (const auto& [layer, tensors] : layers) {
    for (const Tensor* tensor : {tensors.k, tensors.q}) {
      if (tensor != nullptr && tensor->shape.size() != 3) {
        return InvalidArgument("{}: tensor '{}' is {}; shape (tokens, heads, channels) expected", file.path(),
                               tensor->name, DescribeTensor(*tensor));
      }
    }
  }
  return layers;
}

struct CalibrateCommand {
  std::vector<std::string> files;
  std::string out;
  bool register_it = false;
  uint64_t tokens_seen = 0;
  uint32_t layers_without_queries = 0;

  // All files hold the same layers and heads; their tokens add up.
  absl::StatusOr<std::shared_ptr<const Artifact>> Measure() {
    std::optional<KeyCalibrator> calibrator;
    std::vector<uint32_t> numbers;
    std::array<uint64_t, 3> shape{};  // KV heads, query heads, channels.
    for (const std::string& path : files) {
      FIRN_ASSIGN_OR_RETURN(TensorFile file, TensorFile::Open(path));
      FIRN_ASSIGN_OR_RETURN(auto layers, FindLayers(file));
      std::vector<uint32_t> here;
      for (const auto& [layer, tensors] : layers) here.push_back(layer);
      const LayerTensors& first = layers.begin()->second;
      std::array<uint64_t, 3> shape_here = {first.k->shape[1], (first.q != nullptr ? first.q : first.k)->shape[1],
                                            first.k->shape[2]};
      if (!calibrator.has_value()) {
        numbers = here;
        shape = shape_here;
        FIRN_ASSIGN_OR_RETURN(calibrator,
                              KeyCalibrator::Create(static_cast<uint32_t>(here.size()), static_cast<uint32_t>(shape[0]),
                                                    static_cast<uint32_t>(shape[1]), static_cast<uint32_t>(shape[2])));
      } else if (here != numbers || shape_here != shape) {
        return InvalidArgument("{} has other layers, heads or channels than {}", path, files[0]);
      }
      FIRN_RETURN_IF_ERROR(AddFile(layers, shape, &*calibrator));
    }
    return calibrator->Finish();
  }

  absl::Status AddFile(const std::map<uint32_t, LayerTensors>& layers, const std::array<uint64_t, 3>& shape,
                       KeyCalibrator* calibrator) {
    uint32_t index = 0;
    for (const auto& [layer, tensors] : layers) {
      FIRN_ASSIGN_OR_RETURN(std::vector<float> keys, ToFloats(*tensors.k));
      std::vector<float> queries;
      if (tensors.q != nullptr) {
        FIRN_ASSIGN_OR_RETURN(queries, ToFloats(*tensors.q));
      } else {
        ++layers_without_queries;
      }
      uint64_t tokens = tensors.k->shape[0];
      bool fits = tensors.k->shape[1] == shape[0] && tensors.k->shape[2] == shape[2] &&
                  (tensors.q == nullptr || tensors.q->shape == std::vector<uint64_t>{tokens, shape[1], shape[2]});
      if (!fits) {
        return InvalidArgument("layer {}: K is {}{}; {} KV heads, {} query heads of {} channels expected", layer,
                               DescribeTensor(*tensors.k),
                               tensors.q == nullptr ? "" : " and Q " + DescribeTensor(*tensors.q), shape[0], shape[1],
                               shape[2]);
      }
      FIRN_RETURN_IF_ERROR(calibrator->Add(index, static_cast<uint32_t>(tokens), keys, queries));
      if (index++ == 0) tokens_seen += tokens;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<int> Run(Context* context) {
    if (out.empty() && !register_it)
      return InvalidArgument("say where the artifact goes: --out FILE, --register, or both");
    if (!out.empty()) FIRN_RETURN_IF_ERROR(CheckOutputPath(out));
    FIRN_ASSIGN_OR_RETURN(std::shared_ptr<const Artifact> artifact, Measure());
    std::string_view serialized = AsText(artifact->serialized());
    if (!out.empty()) FIRN_RETURN_IF_ERROR(WriteOutputFile(out, {AsBytes(serialized)}));
    std::string name = artifact->digest().Hex();
    if (register_it) {
      FIRN_ASSIGN_OR_RETURN(firnkv::Client * client, context->Connect());
      FIRN_ASSIGN_OR_RETURN(firnkv::Digest registered, client->PutArtifact(serialized));
      if (registered.Hex() != name)
        return InternalError("the daemon named the artifact {}; {} expected", registered.Hex(), name);
    }
    if (context->json) {
      context->Print({{"artifact", name},
                      {"tokens", tokens_seen},
                      {"layers", artifact->layers()},
                      {"heads", artifact->heads()},
                      {"width", artifact->width()},
                      {"bytes", serialized.size()},
                      {"layers_without_queries", layers_without_queries},
                      {"registered", register_it}});
    } else {
      std::printf("%s\n", name.c_str());
      if (!context->quiet) {
        std::fprintf(stderr, "%llu tokens, %u layers of %u KV heads of %u channels, %zu bytes%s\n",
                     static_cast<unsigned long long>(tokens_seen), artifact->layers(), artifact->heads(),
                     artifact->width(), serialized.size(),
                     layers_without_queries > 0 ? "; without queries, keys are balanced by their own spread" : "");
      }
    }
    return kExitOk;
  }
};

}  // namespace

void AddCalibrate(CLI::App* app, Context* context, int* code) {
  auto command = std::make_shared<CalibrateCommand>();
  CLI::App* calibrate = app->add_subcommand(
      "calibrate",
      "Measures mean and balance of key channels into an artifact (put --artifact uses it); prints its name");
  calibrate->add_option("files", command->files, "Captured LAYER.k and, better, LAYER.q, after RoPE (.safetensors)")
      ->required();
  calibrate->add_option("--out", command->out, "Write the artifact to this file");
  calibrate->add_flag("--register", command->register_it, "Hand the artifact to the daemon");
  calibrate->callback([=] {
    auto result = command->Run(context);
    *code = result.ok() ? *result : context->Report(result.status());
  });
}

}  // namespace firn::cli
