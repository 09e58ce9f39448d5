// Scales of checkpoints: every form they come in, and everything that is wrong with some.
#include "client/cli/support/kv_scales.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/status.h"
#include "client/cpp/tensor/tensor_file.h"

namespace firn::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class KvScalesTest : public testing::Test {
 protected:
  KvScalesTest() { std::filesystem::create_directories(folder_); }
  ~KvScalesTest() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  std::string Text(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name)) << text;
    return Path(name);
  }
  using Named = std::pair<std::string, std::vector<float>>;
  std::string Tensors(const std::string& name, const std::vector<Named>& named) const {
    std::vector<Tensor> tensors;
    for (const auto& [key, values] : named) {
      ByteSpan bytes(reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(float));
      tensors.push_back({key, ElementType::kF32, {values.size()}, bytes});
    }
    EXPECT_TRUE(WriteSafetensors(Path(name), tensors, {}).ok());
    return Path(name);
  }
  static std::string ErrorOf(const std::vector<std::string>& paths, const KvScalesOptions& options = {}) {
    auto scales = ReadKvScales(paths, options);
    EXPECT_FALSE(scales.ok());
    return Message(scales.status());
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("kv-scales-" + std::to_string(getpid()));
};

TEST_F(KvScalesTest, CompressedTensorsAScaleALayerOrAHead) {
  const std::string path = Tensors("a.safetensors", {{"model.layers.0.self_attn.k_scale", {0.5f}},
                                                     {"model.layers.0.self_attn.v_scale", {0.25f, 0.75f}},
                                                     {"model.layers.1.self_attn.attn.k_scale", {2, 3}},
                                                     {"model.layers.1.self_attn.v_proj.output_scale", {4}},
                                                     {"model.layers.1.self_attn.k_proj.weight_scale", {9}}});
  auto scales = ReadKvScales({path}, {});
  ASSERT_TRUE(scales.ok()) << scales.status();
  EXPECT_EQ(scales->layers, 2u);
  EXPECT_EQ(scales->heads, 2u) << "as many as a layer has factors";
  EXPECT_THAT(scales->k, ElementsAre(0.5f, 0.5f, 2, 3));
  EXPECT_THAT(scales->v, ElementsAre(0.25f, 0.75f, 4, 4));
}

TEST_F(KvScalesTest, ScalesMayBeBfloat16) {
  const uint16_t half = 0x3F00;  // 0.5
  ByteSpan bytes(reinterpret_cast<const uint8_t*>(&half), 2);
  ASSERT_TRUE(WriteSafetensors(Path("b.safetensors"),
                               {{"model.layers.0.self_attn.k_scale", ElementType::kBf16, {}, bytes},
                                {"model.layers.0.self_attn.v_scale", ElementType::kBf16, {1}, bytes}},
                               {})
                  .ok());
  auto scales = ReadKvScales({Path("b.safetensors")}, {.kv_heads = 2});
  ASSERT_TRUE(scales.ok()) << scales.status();
  EXPECT_THAT(scales->k, ElementsAre(0.5f, 0.5f));
}

TEST_F(KvScalesTest, ShardsAreFoundByTheirIndex) {
  Tensors("model-1.safetensors",
          {{"model.layers.0.self_attn.k_scale", {1}}, {"model.layers.0.self_attn.v_scale", {2}}});
  Tensors("model-2.safetensors",
          {{"model.layers.1.self_attn.k_scale", {3}}, {"model.layers.1.self_attn.v_scale", {4}}});
  Text("model.safetensors.index.json",
       R"({"weight_map": {"model.layers.0.self_attn.k_scale": "model-1.safetensors",
           "model.layers.0.self_attn.v_scale": "model-1.safetensors", "lm_head.weight": "absent.safetensors",
           "model.layers.1.self_attn.k_scale": "model-2.safetensors",
           "model.layers.1.self_attn.v_scale": "model-2.safetensors"}})");
  for (const std::string& path : {Path("model.safetensors.index.json"), folder_.string()}) {
    auto scales = ReadKvScales({path}, {.kv_heads = 1});
    ASSERT_TRUE(scales.ok()) << scales.status();
    EXPECT_THAT(scales->k, ElementsAre(1, 3));
    EXPECT_THAT(scales->v, ElementsAre(2, 4));
  }
  std::filesystem::remove(Path("model-2.safetensors"));
  EXPECT_THAT(ErrorOf({folder_.string()}), HasSubstr("model-2.safetensors"));
}

TEST_F(KvScalesTest, TensorRtLlmHasOneFactorForKAndV) {
  const std::string rank0 =
      Tensors("rank0.safetensors", {{"transformer.layers.0.attention.kv_cache_scaling_factor", {0.5f}},
                                    {"transformer.layers.0.attention.kv_cache_rcp_scaling_factor", {2}},
                                    {"transformer.layers.1.attention.kv_cache_rcp_scaling_factor", {8}}});
  auto scales = ReadKvScales({rank0, rank0}, {.kv_heads = 2});
  ASSERT_TRUE(scales.ok()) << scales.status() << ": ranks repeat what they share";
  EXPECT_THAT(scales->k, ElementsAre(0.5f, 0.5f, 0.125f, 0.125f));
  EXPECT_EQ(scales->v, scales->k);
  const std::string json = Text("t.json", R"({"transformer.layers.0.attention.kv_cache_scaling_factor": [0.5],
                                              "transformer.layers.1.attention.kv_cache_scaling_factor": 0.25})");
  EXPECT_THAT(ReadKvScales({json}, {.kv_heads = 1})->k, ElementsAre(0.5f, 0.25f));
}

TEST_F(KvScalesTest, VllmScalesByRankAndLayer) {
  const std::string one = Text("kv_cache_scales.json", R"({"model_type": "llama", "kv_cache": {"dtype": "float8_e4m3fn",
      "scaling_factor": {"0": {"0": 0.5, "1": 0.25, "10": 0.125}}}})");
  auto some = ReadKvScales({one}, {.kv_heads = 2, .layers = {{0, 1}, {10, 10}}});
  ASSERT_TRUE(some.ok()) << some.status();
  EXPECT_THAT(some->v, ElementsAre(0.5f, 0.5f, 0.25f, 0.25f, 0.125f, 0.125f));
  EXPECT_THAT(ErrorOf({one}, {.kv_heads = 2}), HasSubstr("layers 2-9 have no scale of K; layers 0 to 10 expected"));
  const std::string two = Text("two.json", R"({"kv_cache": {"scaling_factor": {"1": {"0": 2}, "0": {"0": 1}}}})");
  EXPECT_THAT(ReadKvScales({two}, {.kv_heads = 4})->k, ElementsAre(1, 1, 2, 2)) << "each rank has its share of heads";
  EXPECT_THAT(ErrorOf({two}, {.kv_heads = 3}), HasSubstr("2 ranks share 3 KV heads"));
  const std::string hole = Text("hole.json", R"({"kv_cache": {"scaling_factor": {"1": {"1": 2}, "0": {"0": 1}}}})");
  EXPECT_THAT(ErrorOf({hole}, {.kv_heads = 2}), HasSubstr("layer 0 has scales of 1 ranks; 2 expected"));
}

TEST_F(KvScalesTest, TheOtherConventionIsTurnedOver) {
  const std::string path =
      Tensors("r.safetensors", {{"layers.0.self_attn.k_scale", {4}}, {"layers.0.self_attn.v_scale", {0.5f}}});
  auto scales = ReadKvScales({path}, {.kv_heads = 1, .reciprocal = true});
  ASSERT_TRUE(scales.ok()) << scales.status();
  EXPECT_THAT(scales->k, ElementsAre(0.25f));
  EXPECT_THAT(scales->v, ElementsAre(2.0f));
}

TEST_F(KvScalesTest, WhatIsWrongIsNamed) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  for (const auto& [factor, said] :
       std::initializer_list<std::pair<float, const char*>>{{0, "scale of 0;"},
                                                            {-1, "scale of -1, which stands for none"},
                                                            {nan, "nan"},
                                                            {inf, "inf"},
                                                            {1e-40f, "allowed: above 0"}}) {
    const std::string path =
        Tensors("w.safetensors", {{"layers.7.self_attn.k_scale", {factor}}, {"layers.7.self_attn.v_scale", {1}}});
    EXPECT_THAT(ErrorOf({path}),
                testing::AllOf(HasSubstr("w.safetensors: layers.7.self_attn.k_scale"), HasSubstr(said)));
  }
  const std::string k_only = Tensors("k.safetensors", {{"layers.0.self_attn.k_scale", {1}}});
  EXPECT_THAT(ErrorOf({k_only}, {.kv_heads = 1}), HasSubstr("layer 0 has no scale of V"));
  const std::string other = Tensors("o.safetensors", {{"layers.0.self_attn.k_scale", {2}}});
  EXPECT_THAT(ErrorOf({k_only, other}), HasSubstr("two different scales"));
  const std::string three =
      Tensors("t.safetensors", {{"layers.0.self_attn.k_scale", {1, 2, 3}}, {"layers.0.self_attn.v_scale", {1}}});
  EXPECT_THAT(ErrorOf({three}, {.kv_heads = 2}), HasSubstr("has 3 factors; allowed: 1, or one for each of 2 KV heads"));
  const std::string none = Tensors("n.safetensors", {{"layers.0.mlp.up_proj.weight_scale", {1}}});
  EXPECT_THAT(ErrorOf({none}), HasSubstr("there are no KV scales"));
  EXPECT_THAT(ErrorOf({Text("x.json", "[1]")}), HasSubstr("no JSON object"));
  EXPECT_THAT(ErrorOf({Text("y.json", R"({"layers.0.self_attn.k_scale": "1"})")}), HasSubstr("numbers expected"));
  EXPECT_THAT(ErrorOf({Path("absent.safetensors")}), HasSubstr("absent"));
}

TEST_F(KvScalesTest, LayersOfTheModelThatHaveNoneAreNamed) {
  const std::string two =
      Tensors("two.safetensors", {{"layers.0.self_attn.kv_scale", {1}}, {"layers.2.self_attn.kv_scale", {1}}});
  EXPECT_THAT(ErrorOf({two}), HasSubstr("layer 1 has no scale of K; layers 0 to 2 expected (--layers takes"));
  EXPECT_THAT(ErrorOf({two}, {.model_layers = 6}),
              HasSubstr("layers 1,3-5 have no scale of K; layers 0 to 5 expected, as many as the model has by its "
                        "configuration (--layers takes"));
  EXPECT_THAT(ErrorOf({two}, {.layers = {{0, 1}}, .model_layers = 6}),
              HasSubstr("layer 1 has no scale of K; layers 0 to 1 expected (--layers takes"));
  EXPECT_TRUE(ReadKvScales({two}, {.layers = {{0, 0}, {2, 2}}, .model_layers = 6}).ok());
}

TEST_F(KvScalesTest, DeepJsonIsRefusedBeforeAnythingRecurses) {
  const std::string deep(1 << 20, '[');
  const std::string text = R"({"model.layers.0.self_attn.k_scale": )" + deep + std::string(1 << 20, ']') + "}";
  EXPECT_THAT(ErrorOf({Text("deep.json", text)}), HasSubstr("nested deeper than 16 levels"));
  EXPECT_THAT(ErrorOf({Text("cut.json", deep)}), HasSubstr("nested deeper"));
  EXPECT_FALSE(ReadModelShape(Text("config.json", R"({"text_config": )" + deep + "}")).ok());
}

TEST_F(KvScalesTest, TheShapeComesFromTheModelsConfiguration) {
  auto hf = ReadModelShape(
      Text("hf.json",
           R"({"num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096, "num_hidden_layers": 3})"));
  ASSERT_TRUE(hf.ok()) << hf.status();
  EXPECT_EQ(hf->kv_heads, 8u);
  EXPECT_EQ(hf->head_dim, 128u);
  EXPECT_EQ(hf->layers, 3u);
  auto trt = ReadModelShape(Text("trt.json", R"({"pretrained_config": {"num_attention_heads": 4, "head_size": 64}})"));
  EXPECT_EQ(trt->kv_heads, 4u);
  EXPECT_EQ(trt->head_dim, 64u);
  EXPECT_FALSE(ReadModelShape(Text("bad.json", "{")).ok());
}

}  // namespace
}  // namespace firn::cli
