// Schemes and scales of checkpoints, the formats that follow, and the SPECs.
#include "tools/model_specs.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/model_folder.h"
#include "tools/cache_scales.h"

namespace kvforge {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Two layers, 4 q heads over 2 kv heads of 64; `more` are further keys.
std::string Config(absl::string_view more = "") {
  return absl::StrCat(
      R"({"model_type": "llama", "hidden_size": 256, "num_attention_heads": 4,
          "num_key_value_heads": 2, "num_hidden_layers": 2,
          "torch_dtype": "bfloat16")",
      more.empty() ? "" : ", ", more, "}");
}

constexpr char kFp8Scheme[] = R"("quantization_config": {
    "quant_method": "compressed-tensors",
    "kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": false,
                        "strategy": "tensor", "symmetric": true}})";

using Tensors = std::map<std::string, FixtureTensor>;

Tensors ScalesOfTwoLayers(const std::vector<int64_t>& shape,
                          const std::vector<float>& values) {
  Tensors tensors;
  for (const char* layer : {"0", "1"}) {
    for (const char* side : {"k_scale", "v_scale"}) {
      tensors[absl::StrCat("model.layers.", layer, ".self_attn.", side)] =
          F32Tensor(shape, values);
    }
  }
  tensors["model.layers.0.self_attn.k_proj.weight"] =
      F32Tensor({2, 2}, {1, 2, 3, 4});
  // The file's last bytes are none that are read.
  tensors["model.norm.weight"] = F32Tensor({2}, {1, 2});
  return tensors;
}

absl::StatusOr<ModelPlan> Plan(const ModelFolder& folder,
                               absl::string_view format = "auto") {
  ModelOptions options;
  options.folder = folder.path();
  options.kv_cache_format = std::string(format);
  return PlanModel(options);
}

std::vector<std::string> SpecTexts(const ModelFolder& folder,
                                   ModelOptions options = {}) {
  options.folder = folder.path();
  const auto plan = PlanModel(options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  const auto specs = SpecsOf(*plan, options);
  EXPECT_TRUE(specs.ok()) << specs.status();
  std::vector<std::string> texts;
  for (const KernelSpec& spec : *specs) texts.push_back(spec.Text());
  return texts;
}

TEST(ModelSpecs, LlamaNeedsFiveKernels) {
  EXPECT_THAT(SpecTexts(ModelFolder(Config())),
              ElementsAre("store/bf16/d64/g1/page16/bf16",
                          "decode/bf16/d64/g2/page16/bf16",
                          "extend/bf16/d64/g2/page16/bf16", "merge/d64/bf16",
                          "gather/bf16/d64/g1/page16/bf16"));
}

TEST(ModelSpecs, OptionsChangePageFormatTypeAndKernels) {
  ModelOptions options;
  options.kv_cache_format = "int8_row";
  options.type = "f16";
  options.page_size = 64;
  options.kernels = {KernelKind::kDecode};
  EXPECT_THAT(SpecTexts(ModelFolder(Config()), options),
              ElementsAre("decode/int8_row/d64/g2/page64/f16"));
}

TEST(ModelSpecs, LayersOfTwoKindsShareWhatTheyCan) {
  const ModelFolder folder(
      R"({"model_type": "gpt_oss", "num_attention_heads": 64,
          "num_key_value_heads": 8, "head_dim": 64, "num_hidden_layers": 4,
          "sliding_window": 128, "torch_dtype": "bfloat16"})");
  EXPECT_THAT(SpecTexts(folder),
              ElementsAre("store/bf16/d64/g1/page16/bf16",
                          "decode/bf16/d64/g8/page16/bf16/sinks=1/window=128",
                          "extend/bf16/d64/g8/page16/bf16/sinks=1/window=128",
                          "merge/d64/bf16", "gather/bf16/d64/g1/page16/bf16",
                          "decode/bf16/d64/g8/page16/bf16/sinks=1",
                          "extend/bf16/d64/g8/page16/bf16/sinks=1"));
  const auto plan = Plan(folder);
  EXPECT_THAT(PlanText(*plan), AllOf(HasSubstr("\n0,2 "), HasSubstr("\n1,3 "),
                                     HasSubstr("model gpt_oss: 4 layers")));
}

TEST(ModelSpecs, SoftcapAndWindowOfGemma) {
  ModelOptions options;
  options.kernels = {KernelKind::kExtend};
  EXPECT_THAT(
      SpecTexts(ModelFolder(
                    R"({"model_type": "gemma2", "num_hidden_layers": 2,
                        "sliding_window": 4096, "hidden_size": 2304,
                        "attn_logit_softcapping": 50.0,
                        "torch_dtype": "bfloat16"})"),
                options),
      ElementsAre("extend/bf16/d256/g2/page16/bf16/softcap=50/window=4096",
                  "extend/bf16/d256/g2/page16/bf16/softcap=50"));
}

TEST(ModelSpecs, Fp8FollowsTheSchemeAndPrintsEveryScale) {
  const ModelFolder folder(Config(kFp8Scheme));
  folder.Write("model.safetensors",
               SafetensorsBytes(ScalesOfTwoLayers({1}, {0.25f})));
  const auto plan = Plan(folder);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->notes, IsEmpty());
  EXPECT_THAT(plan->quantization.source,
              HasSubstr("config.json: quantization_config.kv_cache_scheme = "
                        "8-bit float per tensor"));
  const nlohmann::json json = PlanJson(*plan);
  ASSERT_EQ(json["layers"].size(), 2u);
  const nlohmann::json& layer = json["layers"][1];
  EXPECT_EQ(layer["k_format"], "e4m3_tensor");
  EXPECT_EQ(layer["k_scale"]["tensor"], "model.layers.1.self_attn.k_scale");
  EXPECT_EQ(layer["k_scale"]["file"], folder.Path("model.safetensors"));
  EXPECT_EQ(layer["v_scale"]["values"], nlohmann::json({0.25}));
  EXPECT_THAT(SpecTexts(folder),
              Contains("decode/e4m3_tensor/d64/g2/page16/bf16"));
}

struct NameCase {
  const char* name;
  const char* k;
  const char* v;  // "" = the same tensor
};

class ScaleNames : public ::testing::TestWithParam<NameCase> {};

TEST_P(ScaleNames, AreFoundForTheirLayer) {
  const ModelFolder folder(Config());
  Tensors tensors;
  tensors[GetParam().k] = F32Tensor({}, {0.5f});
  if (*GetParam().v) tensors[GetParam().v] = F32Tensor({}, {2.f});
  folder.Write("model.safetensors", SafetensorsBytes(tensors));
  const auto scales = ReadCacheScales(folder.path());
  ASSERT_TRUE(scales.ok()) << scales.status();
  ASSERT_EQ(scales->size(), 1u);
  ASSERT_EQ(scales->begin()->first, 13);
  EXPECT_THAT(scales->at(13).k->values, ElementsAre(0.5f));
  EXPECT_THAT(scales->at(13).v->values,
              ElementsAre(*GetParam().v ? 2.f : 0.5f));
}

INSTANTIATE_TEST_SUITE_P(
    Names, ScaleNames,
    ::testing::Values(
        NameCase{"Projections", "model.layers.13.self_attn.k_proj.k_scale",
                 "model.layers.13.self_attn.v_proj.v_scale"},
        NameCase{"Attention", "model.layers.13.self_attn.k_scale",
                 "model.layers.13.self_attn.v_scale"},
        NameCase{"InnerAttention", "model.layers.13.self_attn.attn.k_scale",
                 "model.layers.13.self_attn.attn.v_scale"},
        NameCase{"Attn", "layers.13.attn.k_scale", "layers.13.attn.v_scale"},
        NameCase{"Language", "model.language_model.layers.13.self_attn.k_scale",
                 "model.language_model.layers.13.self_attn.v_scale"},
        NameCase{"Output", "model.layers.13.self_attn.k_proj.output_scale",
                 "model.layers.13.self_attn.v_proj.output_scale"},
        NameCase{"Both", "model.layers.13.self_attn.kv_scale", ""}),
    [](const auto& info) { return info.param.name; });

TEST(CacheScales, OthersAreNotTheCaches) {
  const ModelFolder folder(Config());
  Tensors tensors;
  for (const char* name :
       {"model.layers.0.self_attn.q_scale",
        "model.layers.0.self_attn.k_proj.weight_scale",
        "model.layers.0.self_attn.k_proj.input_scale",
        "model.layers.0.mlp.k_scale", "k_scale", "model.self_attn.k_scale",
        "vision_tower.encoder.layers.0.self_attn.k_scale",
        "model.visual.layers.0.attn.k_scale"}) {
    tensors[name] = F32Tensor({1}, {1});
  }
  folder.Write("model.safetensors", SafetensorsBytes(tensors));
  const auto scales = ReadCacheScales(folder.path());
  ASSERT_TRUE(scales.ok()) << scales.status();
  EXPECT_TRUE(scales->empty());
}

TEST(CacheScales, HalfPrecisionScalesAreRead) {
  const ModelFolder folder(Config());
  Tensors tensors;
  // 0x3e80 in bf16 is 2^-2; 0x3555 in f16 is (1024 + 341) * 2^(13 - 25).
  tensors["model.layers.0.self_attn.k_scale"] = {"BF16", {1}, "\x80\x3e"};
  tensors["model.layers.0.self_attn.v_scale"] = {"F16", {1}, "\x55\x35"};
  folder.Write("model.safetensors", SafetensorsBytes(tensors));
  const auto scales = ReadCacheScales(folder.path());
  ASSERT_TRUE(scales.ok()) << scales.status();
  EXPECT_THAT(scales->at(0).k->values, ElementsAre(0.25f));
  EXPECT_THAT(scales->at(0).v->values, ElementsAre(1365.f / 4096));
}

// Only files that the index names for a scale are opened.
TEST(CacheScales, AreFoundThroughTheIndex) {
  const ModelFolder folder(Config(kFp8Scheme));
  Tensors first;
  Tensors second;
  for (auto& [name, tensor] : ScalesOfTwoLayers({}, {0.5f})) {
    (name.find("layers.0") != std::string::npos ? first : second)[name] =
        tensor;
  }
  folder.Write("model-00001-of-00003.safetensors", SafetensorsBytes(first));
  folder.Write("model-00002-of-00003.safetensors", SafetensorsBytes(second));
  std::vector<std::string> map;
  for (const auto& [name, tensor] : first) {
    map.push_back(
        absl::StrCat("\"", name, "\": \"model-00001-of-00003.safetensors\""));
  }
  for (const auto& [name, tensor] : second) {
    map.push_back(
        absl::StrCat("\"", name, "\": \"model-00002-of-00003.safetensors\""));
  }
  map.push_back("\"lm_head.weight\": \"model-00003-of-00003.safetensors\"");
  folder.Write(
      "model.safetensors.index.json",
      absl::StrCat("{\"weight_map\": {", absl::StrJoin(map, ", "), "}}"));
  const auto scales = ReadCacheScales(folder.path());
  ASSERT_TRUE(scales.ok()) << scales.status();
  EXPECT_EQ(scales->size(), 2u);
  EXPECT_EQ(scales->at(1).v->file,
            folder.Path("model-00002-of-00003.safetensors"));

  folder.Write("model.safetensors.index.json",
               R"({"weight_map": {"model.layers.0.self_attn.k_scale":
                                  "../elsewhere.safetensors"}})");
  EXPECT_THAT(std::string(ReadCacheScales(folder.path()).status().message()),
              HasSubstr("'weight_map.model.layers.0.self_attn.k_scale' is "
                        "\"../elsewhere.safetensors\"; expected the name"));
  folder.Write("model.safetensors.index.json",
               R"({"weight_map": {"model.layers.0.self_attn.k_scale":
                                  "gone.safetensors"}})");
  EXPECT_THAT(std::string(ReadCacheScales(folder.path()).status().message()),
              HasSubstr(folder.Path("gone.safetensors")));
  folder.Write("model.safetensors.index.json", R"({"weights": {}})");
  EXPECT_THAT(std::string(ReadCacheScales(folder.path()).status().message()),
              HasSubstr("'weight_map' is missing; expected an object"));
}

TEST(CacheScales, ACutCheckpointIsAnErrorThatNamesIt) {
  const ModelFolder folder(Config(kFp8Scheme));
  const std::string bytes = SafetensorsBytes(ScalesOfTwoLayers({}, {0.5f}));
  for (size_t kept = 0; kept < bytes.size(); ++kept) {
    folder.Write("model.safetensors", bytes.substr(0, kept));
    const auto plan = Plan(folder);
    ASSERT_TRUE(absl::IsInvalidArgument(plan.status()))
        << "kept " << kept << ": " << plan.status();
    ASSERT_THAT(std::string(plan.status().message()),
                HasSubstr(folder.Path("model.safetensors")));
  }
}

TEST(CacheScales, OddScalesAreNamed) {
  const std::string k = "model.layers.1.self_attn.k_scale";
  const std::string v = "model.layers.1.self_attn.v_scale";
  struct Case {
    Tensors tensors;
    const char* message;
  };
  const FixtureTensor good = F32Tensor({1}, {1});
  const std::vector<Case> cases = {
      {{{k, good}},
       "layer 1 has tensor 'model.layers.1.self_attn.k_scale' "
       "and no scale of V; expected both"},
      {{{k, good}, {v, F32Tensor({1}, {0})}}, "has the value 0; expected pos"},
      {{{k, good}, {v, F32Tensor({1}, {-1})}}, "has the value -1"},
      {{{k, good}, {v, F32Tensor({1}, {NAN})}}, "has the value nan"},
      {{{k, good}, {v, F32Tensor({0}, {})}}, "is empty"},
      {{{k, good}, {v, {"I32", {1}, "1234"}}}, "has dtype I32; expected F32"},
      {{{k, good},
        {v, good},
        {"model.layers.1.self_attn.k_proj.k_scale", good}},
       "are scales of the same side of layer 1"},
      {{{k, F32Tensor({3}, {1, 1, 1})}, {v, good}},
       "has 3 values; expected 1 (e4m3_tensor);"}};
  for (const Case& c : cases) {
    const ModelFolder folder(Config(kFp8Scheme));
    folder.Write("model.safetensors", SafetensorsBytes(c.tensors));
    const auto plan = Plan(folder);
    ASSERT_TRUE(absl::IsInvalidArgument(plan.status())) << plan.status();
    EXPECT_THAT(std::string(plan.status().message()),
                AllOf(HasSubstr(folder.Path("model.safetensors")),
                      HasSubstr(c.message)));
    // A format of its own scales asks nothing of the checkpoint.
    EXPECT_TRUE(Plan(folder, "e4m3_row").ok());
  }
}

TEST(ModelSpecs, ScalesPerHeadOrChannelTakeTheirFormats) {
  for (const auto& [count, format] :
       {std::pair(2, "e4m3_head"), std::pair(128, "e4m3_channel")}) {
    const ModelFolder folder(Config(
        R"("quantization_config": {"kv_cache_scheme":
             {"num_bits": 8, "type": "float"}})"));
    folder.Write("model.safetensors",
                 SafetensorsBytes(ScalesOfTwoLayers(
                     {count}, std::vector<float>(count, 0.5f))));
    const auto plan = Plan(folder);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->layers[0].k_format->name, format);
    EXPECT_EQ(plan->layers[0].scales.v->values.size(),
              static_cast<size_t>(count));
  }
}

TEST(ModelSpecs, MissingScalesAreOneAndSaid) {
  const auto plan = Plan(ModelFolder(Config(kFp8Scheme)));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->notes, ElementsAre(HasSubstr("2 layers have no scales")));
  const nlohmann::json scale = PlanJson(*plan)["layers"][0]["k_scale"];
  EXPECT_TRUE(scale["tensor"].is_null());
  EXPECT_EQ(scale["values"], nlohmann::json({1.0}));
}

TEST(ModelSpecs, ScalesWithoutASchemeAreNotUsedAndSaid) {
  const ModelFolder folder(Config());
  folder.Write("model.safetensors",
               SafetensorsBytes(ScalesOfTwoLayers({}, {0.5f})));
  const auto plan = Plan(folder);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->layers[0].k_format->name, "bf16");
  EXPECT_THAT(plan->notes,
              ElementsAre(HasSubstr("scales of 2 layers are not used")));
  const auto forced = Plan(folder, "e4m3_tensor");
  EXPECT_THAT(forced->notes, IsEmpty());
  EXPECT_THAT(forced->layers[1].scales.k->values, ElementsAre(0.5f));
  // One scale is that of every head.
  EXPECT_THAT(Plan(folder, "e4m3_head")->layers[1].scales.k->values,
              ElementsAre(0.5f, 0.5f));
}

struct SchemeCase {
  const char* name;
  const char* hf_quant;  // hf_quant_config.json; "" = no such file
  const char* config;    // further keys of config.json
  const char* format;    // or, after "!", part of the error
};

class Schemes : public ::testing::TestWithParam<SchemeCase> {};

TEST_P(Schemes, GiveAFormatOrAreRefusedByName) {
  const SchemeCase& c = GetParam();
  const ModelFolder folder(Config(c.config));
  if (*c.hf_quant) folder.Write("hf_quant_config.json", c.hf_quant);
  const auto plan = Plan(folder);
  if (c.format[0] != '!') {
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->layers[0].k_format->name, c.format);
    return;
  }
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr(c.format + 1));
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr(folder.path()));
  // A chosen format asks no file for its scheme.
  EXPECT_TRUE(Plan(folder, "e4m3_row").ok());
}

INSTANTIATE_TEST_SUITE_P(
    Files, Schemes,
    ::testing::Values(
        SchemeCase{"Fp8", R"({"quantization": {"quant_algo": "FP8",
                              "kv_cache_quant_algo": "FP8"}})",
                   "", "e4m3_tensor"},
        SchemeCase{"Nvfp4", R"({"quantization": {"quant_algo": "NVFP4",
                                "kv_cache_quant_algo": "NVFP4"}})",
                   "", "nvfp4"},
        SchemeCase{"Null", R"({"quantization": {"quant_algo": "FP8",
                               "kv_cache_quant_algo": null}})",
                   "", "bf16"},
        SchemeCase{"None", R"({"quantization": {
                               "kv_cache_quant_algo": "none"}})",
                   "", "bf16"},
        SchemeCase{"Int8", R"({"quantization": {
                               "kv_cache_quant_algo": "INT8"}})",
                   "", "!'quantization.kv_cache_quant_algo' is 'INT8', which"},
        SchemeCase{"WrongType", R"({"quantization": {
                                    "kv_cache_quant_algo": 8}})",
                   "",
                   "!'quantization.kv_cache_quant_algo' is 8; expected a "
                   "string"},
        SchemeCase{"NoQuantization", R"({"producer": {}})", "",
                   "!'quantization' is missing; expected an object"},
        SchemeCase{"Cut", R"({"quantization": {"kv_c)", "",
                   "!hf_quant_config.json: "},
        SchemeCase{"SchemeNvfp4", "",
                   R"("quantization_config": {"kv_cache_scheme":
                        {"num_bits": 4, "type": "float", "group_size": 16}})",
                   "nvfp4"},
        SchemeCase{"SchemeInt", "",
                   R"("quantization_config": {"kv_cache_scheme":
                        {"num_bits": 8, "type": "int",
                         "strategy": "tensor"}})",
                   "!is 8-bit 'int' per tensor, which no kernel serves"},
        SchemeCase{"SchemeDynamic", "",
                   R"("quantization_config": {"kv_cache_scheme":
                        {"num_bits": 8, "type": "float", "dynamic": true}})",
                   "!is dynamic 8-bit 'float', which no kernel serves"},
        SchemeCase{"SchemeToken", "",
                   R"("quantization_config": {"kv_cache_scheme":
                        {"num_bits": 8, "type": "float",
                         "strategy": "token"}})",
                   "!per token, which no kernel serves"},
        SchemeCase{"SchemeNoBits", "",
                   R"("quantization_config": {"kv_cache_scheme":
                        {"type": "float"}})",
                   "!kv_cache_scheme.num_bits' is missing; expected"},
        SchemeCase{"SchemeIsText", "",
                   R"("quantization_config": {"kv_cache_scheme": "static"})",
                   "!kv_cache_scheme' is \"static\"; expected an object"},
        SchemeCase{"Agree", R"({"quantization": {
                                "kv_cache_quant_algo": "FP8"}})",
                   kFp8Scheme, "e4m3_tensor"},
        SchemeCase{"Disagree", R"({"quantization": {
                                   "kv_cache_quant_algo": "NVFP4"}})",
                   kFp8Scheme, "!expected one scheme"}),
    [](const auto& info) { return info.param.name; });

TEST(ModelSpecs, FormatsAndHeadDimsThatAreNotServedAreNamed) {
  const ModelFolder folder(Config());
  EXPECT_THAT(std::string(Plan(folder, "e4m3").status().message()),
              AllOf(HasSubstr("'e4m3'"), HasSubstr("e4m3_row")));
  const ModelFolder odd(
      R"({"model_type": "llama", "hidden_size": 2304, "head_dim": 72,
          "num_attention_heads": 32, "num_hidden_layers": 1,
          "torch_dtype": "bfloat16"})");
  ModelOptions options;
  options.folder = odd.path();
  const auto specs = SpecsOf(*PlanModel(options), options);
  EXPECT_THAT(std::string(specs.status().message()),
              AllOf(HasSubstr(absl::StrCat("layer 0 of ", odd.path())),
                    HasSubstr("72")));
}

TEST(ModelSpecs, ATypeThatNoFileNamesHasToBeGiven) {
  const ModelFolder folder(
      R"({"model_type": "llama", "hidden_size": 256,
          "num_attention_heads": 4, "num_hidden_layers": 1})");
  EXPECT_THAT(std::string(Plan(folder).status().message()),
              HasSubstr("name the type of q with --dtype bf16"));
  ModelOptions options;
  options.folder = folder.path();
  options.type = "f32";
  EXPECT_THAT(std::string(PlanModel(options).status().message()),
              HasSubstr("choose one with --kv-cache-dtype"));
  options.kv_cache_format = "e4m3_row";
  EXPECT_TRUE(PlanModel(options).ok());
  options.type = "f8";
  EXPECT_FALSE(PlanModel(options).ok());
}

}  // namespace
}  // namespace kvforge
