#include "client/cli/support/kv_scales.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/read_file.h"
#include "base/status.h"
#include "client/cpp/plan/plan_words.h"
#include "client/cpp/tensor/tensor_file.h"
#include "codecs/types.h"

namespace firn::cli {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kJsonBytesMax = uint64_t{64} << 20;
constexpr float kScaleMax = 1e30f;  // As artifacts have it.
constexpr int kJsonDepthMax = 16;   // More than any of these files has; what walks through it recurses.
constexpr std::string_view kIndexName = "model.safetensors.index.json";

// A file that is one JSON object. Parses without exceptions.
absl::StatusOr<Json> ReadJsonObject(const std::string& path) {
  FIRN_ASSIGN_OR_RETURN(std::string text, ReadSmallFile(path, kJsonBytesMax));
  bool deep = false;
  auto watch = [&deep](int depth, Json::parse_event_t, Json&) {
    deep |= depth > kJsonDepthMax;
    return !deep;
  };
  Json json = Json::parse(text, watch, /*allow_exceptions=*/false);
  if (deep) return InvalidArgument("{} is JSON nested deeper than {} levels", path, kJsonDepthMax);
  if (!json.is_object()) return InvalidArgument("{} is no JSON object", path);
  return json;
}

// What a name in a checkpoint is a factor of.
struct ScaleName {
  uint32_t layer = 0;
  bool k = false, v = false;
  bool reciprocal = false;  // The factor that values are multiplied with to be coded.
};

// "model.layers.3.self_attn.k_scale" and its like; nothing for every other name.
std::optional<ScaleName> ParseScaleName(std::string_view name) {
  struct Ending {
    std::string_view text;
    bool k, v, reciprocal;
  };
  constexpr Ending kEndings[] = {{".k_scale", true, false, false},
                                 {".v_scale", false, true, false},
                                 {".kv_scale", true, true, false},
                                 {".k_proj.output_scale", true, false, false},
                                 {".v_proj.output_scale", false, true, false},
                                 {".kv_cache_scaling_factor", true, true, false},
                                 {".k_cache_scaling_factor", true, false, false},
                                 {".v_cache_scaling_factor", false, true, false},
                                 {".kv_cache_rcp_scaling_factor", true, true, true}};
  for (const Ending& ending : kEndings) {
    if (!name.ends_with(ending.text)) continue;
    for (std::string_view before : {"layers.", "h."}) {
      size_t at = name.rfind(before);
      if (at == std::string_view::npos || (at > 0 && name[at - 1] != '.')) continue;
      ScaleName found{.layer = 0, .k = ending.k, .v = ending.v, .reciprocal = ending.reciprocal};
      const char *first = name.data() + at + before.size(), *last = name.data() + name.size();
      auto [stop, error] = std::from_chars(first, last, found.layer);
      if (error == std::errc() && stop != last && *stop == '.') return found;
    }
  }
  return std::nullopt;
}

class Collector {
 public:
  explicit Collector(const KvScalesOptions& options) : options_(options) {}

  absl::Status AddPath(const std::string& path);
  absl::StatusOr<KvScales> Finish() const;

 private:
  struct Factors {
    std::vector<float> values = {};
    std::string from = {};  // "FILE: NAME", for messages.
    bool derived = false;   // From a reciprocal: the factor itself is as good or better.
  };
  using Layers = std::map<uint32_t, Factors>;

  absl::Status AddFolder(const std::filesystem::path& folder);
  absl::Status AddTensors(const std::string& path);
  absl::Status AddJson(const std::string& path);
  absl::Status AddIndex(const std::string& path, const Json& weight_map);
  absl::Status AddVllm(const std::string& path, const Json& kv_cache);
  absl::Status Add(const ScaleName& name, std::vector<float> values, const std::string& from);
  absl::Status Put(Layers* layers, uint32_t layer, Factors factors);
  absl::StatusOr<std::vector<uint32_t>> WantedLayers() const;
  absl::Status Spread(const Layers& layers, const char* part, const std::vector<uint32_t>& wanted, uint32_t heads,
                      std::vector<float>* out) const;

  const KvScalesOptions& options_;
  Layers k_, v_;
};

absl::Status CheckFactor(float factor, uint32_t layer, const std::string& from) {
  if (std::isfinite(factor) && factor >= std::numeric_limits<float>::min() && factor <= kScaleMax) {
    return absl::OkStatus();
  }
  return InvalidArgument("{}: layer {} has a scale of {}{}; allowed: above 0, at most {}", from, layer, factor,
                         factor == -1 ? ", which stands for none" : "", kScaleMax);
}

absl::Status Collector::Put(Layers* layers, uint32_t layer, Factors factors) {
  auto [it, fresh] = layers->try_emplace(layer, factors);
  if (fresh || factors.derived) return absl::OkStatus();
  if (it->second.derived) {
    it->second = std::move(factors);
    return absl::OkStatus();
  }
  // Shards of one checkpoint may repeat a factor; ranks of a tensor-parallel one share it.
  if (it->second.values == factors.values) return absl::OkStatus();
  return InvalidArgument("layer {} has two different scales, in {} and in {}", layer, it->second.from, factors.from);
}

absl::Status Collector::Add(const ScaleName& name, std::vector<float> values, const std::string& from) {
  if (name.layer >= kLayersMax) {
    return InvalidArgument("{}: layer {}; allowed: 0 to {}", from, name.layer, kLayersMax - 1);
  }
  if (values.empty() || values.size() > kHeadsMax) {
    return InvalidArgument("{}: {} factors; allowed: 1, or one a KV head, at most {}", from, values.size(), kHeadsMax);
  }
  for (float& factor : values) {
    FIRN_RETURN_IF_ERROR(CheckFactor(factor, name.layer, from));
    if (name.reciprocal || options_.reciprocal) factor = 1.0f / factor;
    FIRN_RETURN_IF_ERROR(CheckFactor(factor, name.layer, from));
  }
  Factors factors{.values = std::move(values), .from = from, .derived = name.reciprocal};
  if (name.k) FIRN_RETURN_IF_ERROR(Put(&k_, name.layer, factors));
  if (name.v) FIRN_RETURN_IF_ERROR(Put(&v_, name.layer, factors));
  return absl::OkStatus();
}

absl::Status Collector::AddTensors(const std::string& path) {
  FIRN_ASSIGN_OR_RETURN(TensorFile file, TensorFile::Open(path));
  for (const Tensor& tensor : file.tensors()) {
    auto name = ParseScaleName(tensor.name);
    if (!name.has_value()) continue;
    const std::string from = fmt::format("{}: {}", path, tensor.name);
    auto values = ToFloats(tensor);
    if (!values.ok()) return InvalidArgument("{}: {}", from, Message(values.status()));
    FIRN_RETURN_IF_ERROR(Add(*name, *std::move(values), from));
  }
  return absl::OkStatus();
}

// A number, or nested lists of numbers as tensors are written.
bool Flatten(const Json& json, std::vector<float>* out) {
  if (json.is_number()) {
    out->push_back(json.get<float>());
    return true;
  }
  return json.is_array() && std::all_of(json.begin(), json.end(), [&](const Json& item) { return Flatten(item, out); });
}

absl::Status Collector::AddIndex(const std::string& path, const Json& weight_map) {
  std::set<std::string> shards;
  for (const auto& [name, shard] : weight_map.items()) {
    if (!ParseScaleName(name).has_value()) continue;
    if (!shard.is_string()) return InvalidArgument("{}: {} is in no file; a file's name expected", path, name);
    shards.insert(shard.get<std::string>());
  }
  for (const std::string& shard : shards) {
    FIRN_RETURN_IF_ERROR(AddTensors((std::filesystem::path(path).parent_path() / shard).string()));
  }
  return absl::OkStatus();
}

// {"dtype": ..., "scaling_factor": {"RANK": {"LAYER": factor}}}: each rank has its own share of the heads.
absl::Status Collector::AddVllm(const std::string& path, const Json& kv_cache) {
  const Json ranks = kv_cache.value("scaling_factor", Json::object());
  std::map<uint32_t, std::map<uint32_t, std::vector<float>>> by_layer;
  auto number = [](const std::string& text) {
    uint32_t value = std::numeric_limits<uint32_t>::max();
    auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && stop == text.data() + text.size() ? value : std::numeric_limits<uint32_t>::max();
  };
  if (!ranks.is_object()) return InvalidArgument("{}: kv_cache.scaling_factor is no object of ranks", path);
  for (const auto& [rank, layers] : ranks.items()) {
    if (number(rank) >= ranks.size() || !layers.is_object()) {
      return InvalidArgument("{}: rank '{}' of {}; ranks 0 to {}, each an object of layers, expected", path, rank,
                             ranks.size(), ranks.size() - 1);
    }
    for (const auto& [layer, factor] : layers.items()) {
      if (number(layer) >= kLayersMax || !factor.is_number()) {
        return InvalidArgument("{}: rank {}, layer '{}' is {}; a number for layers 0 to {} expected", path, rank, layer,
                               factor.dump().substr(0, 100), kLayersMax - 1);
      }
      by_layer[number(layer)][number(rank)] = {factor.get<float>()};
    }
  }
  for (const auto& [layer, factors] : by_layer) {
    const std::string from = fmt::format("{}: layer {}", path, layer);
    if (factors.size() != ranks.size()) {
      return InvalidArgument("{} has scales of {} ranks; {} expected", from, factors.size(), ranks.size());
    }
    uint32_t share = ranks.size() == 1 ? 1 : options_.kv_heads / static_cast<uint32_t>(ranks.size());
    if (share == 0 || (ranks.size() > 1 && options_.kv_heads % ranks.size() != 0)) {
      return InvalidArgument("{}: {} ranks share {} KV heads; a multiple of the ranks expected", path, ranks.size(),
                             options_.kv_heads);
    }
    std::vector<float> values;
    for (const auto& [rank, factor] : factors) values.insert(values.end(), share, factor[0]);
    FIRN_RETURN_IF_ERROR(Add({.layer = layer, .k = true, .v = true}, std::move(values), from));
  }
  return absl::OkStatus();
}

absl::Status Collector::AddJson(const std::string& path) {
  FIRN_ASSIGN_OR_RETURN(Json json, ReadJsonObject(path));
  if (auto map = json.find("weight_map"); map != json.end() && map->is_object()) return AddIndex(path, *map);
  if (auto cache = json.find("kv_cache"); cache != json.end() && cache->is_object()) return AddVllm(path, *cache);
  for (const auto& [key, value] : json.items()) {
    auto name = ParseScaleName(key);
    if (!name.has_value()) continue;
    const std::string from = fmt::format("{}: {}", path, key);
    std::vector<float> values;
    if (!Flatten(value, &values))
      return InvalidArgument("{} is {}; numbers expected", from, value.dump().substr(0, 100));
    FIRN_RETURN_IF_ERROR(Add(*name, std::move(values), from));
  }
  return absl::OkStatus();
}

absl::Status Collector::AddFolder(const std::filesystem::path& folder) {
  std::error_code error;
  if (std::filesystem::exists(folder / kIndexName, error)) return AddJson((folder / kIndexName).string());
  std::vector<std::string> files;
  for (auto it = std::filesystem::directory_iterator(folder, error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    if (it->path().extension() == ".safetensors") files.push_back(it->path().string());
  }
  if (error) return ErrnoStatus(error.value(), "list " + folder.string());
  if (files.empty()) return InvalidArgument("{} has neither {} nor .safetensors files", folder.string(), kIndexName);
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) FIRN_RETURN_IF_ERROR(AddTensors(file));
  return absl::OkStatus();
}

absl::Status Collector::AddPath(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return AddFolder(path);
  return path.ends_with(".json") ? AddJson(path) : AddTensors(path);
}

absl::StatusOr<std::vector<uint32_t>> Collector::WantedLayers() const {
  if (k_.empty() && v_.empty()) {
    return InvalidArgument(
        "there are no KV scales in these files: no ...layers.N.self_attn.k_scale and v_scale, no "
        "...layers.N.attention.kv_cache_scaling_factor, no kv_cache of vLLM");
  }
  std::vector<uint32_t> wanted;
  for (const firnkv::NumberRange& range : options_.layers) {
    for (uint32_t layer = range.first; layer <= range.last; ++layer) wanted.push_back(layer);
  }
  if (!wanted.empty()) return wanted;
  uint32_t last = std::max(k_.empty() ? 0 : k_.rbegin()->first, v_.empty() ? 0 : v_.rbegin()->first);
  uint32_t end = std::max(last + 1, options_.model_layers);
  for (uint32_t layer = 0; layer < end; ++layer) wanted.push_back(layer);
  return wanted;
}

absl::Status Collector::Spread(const Layers& layers, const char* part, const std::vector<uint32_t>& wanted,
                               uint32_t heads, std::vector<float>* out) const {
  std::vector<firnkv::NumberRange> missing;
  for (uint32_t layer : wanted) {
    if (!layers.contains(layer)) firnkv::AddNumber(&missing, layer);
  }
  if (!missing.empty()) {
    bool one = missing.size() == 1 && missing[0].first == missing[0].last;
    bool by_model = options_.layers.empty() && options_.model_layers == wanted.back() + 1;
    return InvalidArgument(
        "layer{} {} {} no scale of {}; layers {} to {} expected{} (--layers takes those that have some)",
        one ? "" : "s", firnkv::RangesText(missing), one ? "has" : "have", part, wanted.front(), wanted.back(),
        by_model ? ", as many as the model has by its configuration" : "");
  }
  for (uint32_t layer : wanted) {
    const Factors& factors = layers.at(layer);
    if (factors.values.size() != 1 && factors.values.size() != heads) {
      return InvalidArgument("{} has {} factors; allowed: 1, or one for each of {} KV heads", factors.from,
                             factors.values.size(), heads);
    }
    for (uint32_t head = 0; head < heads; ++head) {
      out->push_back(factors.values[factors.values.size() == 1 ? 0 : head]);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<KvScales> Collector::Finish() const {
  FIRN_ASSIGN_OR_RETURN(std::vector<uint32_t> wanted, WantedLayers());
  KvScales scales{.layers = static_cast<uint32_t>(wanted.size()), .heads = options_.kv_heads};
  for (const Layers* layers : {&k_, &v_}) {
    for (const auto& [layer, factors] : *layers) {
      if (options_.kv_heads == 0) scales.heads = std::max(scales.heads, static_cast<uint32_t>(factors.values.size()));
    }
  }
  FIRN_RETURN_IF_ERROR(Spread(k_, "K", wanted, scales.heads, &scales.k));
  FIRN_RETURN_IF_ERROR(Spread(v_, "V", wanted, scales.heads, &scales.v));
  return scales;
}

}  // namespace

absl::StatusOr<KvScales> ReadKvScales(const std::vector<std::string>& paths, const KvScalesOptions& options) {
  Collector collector(options);
  for (const std::string& path : paths) FIRN_RETURN_IF_ERROR(collector.AddPath(path));
  return collector.Finish();
}

absl::StatusOr<ModelShape> ReadModelShape(const std::string& path) {
  FIRN_ASSIGN_OR_RETURN(Json json, ReadJsonObject(path));
  for (const char* inner : {"text_config", "pretrained_config"}) {
    if (auto it = json.find(inner); it != json.end() && it->is_object()) json = Json(*it);
  }
  auto number = [&](std::initializer_list<const char*> names) -> uint32_t {
    for (const char* name : names) {
      auto it = json.find(name);
      if (it != json.end() && it->is_number_unsigned() && *it <= kWidthMax) return it->get<uint32_t>();
    }
    return 0;
  };
  ModelShape shape{.kv_heads = number({"num_key_value_heads"}),
                   .head_dim = number({"head_dim", "head_size"}),
                   .layers = std::min(number({"num_hidden_layers", "n_layer"}), kLayersMax)};
  uint32_t query_heads = number({"num_attention_heads"}), hidden = number({"hidden_size"});
  if (shape.kv_heads == 0) shape.kv_heads = query_heads;
  if (shape.head_dim == 0 && query_heads != 0) shape.head_dim = hidden / query_heads;
  return shape;
}

}  // namespace firn::cli
