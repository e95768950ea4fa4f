// config.json of the families that differ in their attention, and odd ones.
#include "tools/model_files.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/model_folder.h"

namespace kvforge {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kLlama[] = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama",
  "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
  "num_hidden_layers": 4, "torch_dtype": "bfloat16"})";

absl::StatusOr<ModelFiles> Read(absl::string_view config) {
  const ModelFolder folder(config);
  return ReadModelFiles(folder.path());
}

std::string ErrorOf(absl::string_view config) {
  return std::string(Read(config).status().message());
}

// Windows of the layers, -1 without a cache.
std::vector<int> WindowsOf(const ModelFiles& model) {
  std::vector<int> windows;
  for (const ModelLayer& layer : model.layers) {
    windows.push_back(layer.has_cache ? layer.geometry.window : -1);
  }
  return windows;
}

TEST(ModelFiles, LlamasHeadDimIsHiddenSizeOverHeads) {
  const auto model = Read(kLlama);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->family, "llama");
  EXPECT_EQ(model->type, DType::kBf16);
  EXPECT_THAT(WindowsOf(*model), ElementsAre(0, 0, 0, 0));
  const LayerGeometry expected = {32, 8, 128, 128, 0, 0, false};
  EXPECT_EQ(model->layers[3].geometry, expected);
  EXPECT_THAT(model->notes, IsEmpty());
}

TEST(ModelFiles, WithoutKvHeadsThereAreAsManyAsQHeads) {
  const auto model = Read(R"({"model_type": "llama", "hidden_size": 2048,
      "num_attention_heads": 16, "num_hidden_layers": 1, "dtype": "float16",
      "num_key_value_heads": null})");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->layers[0].geometry.kv_heads, 16);
  EXPECT_EQ(model->type, DType::kF16);
}

TEST(ModelFiles, MistralsWindowIsThatOfAllLayers) {
  const std::string config = R"({"model_type": "mistral", "hidden_size": 4096,
      "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
      "num_hidden_layers": 3, "torch_dtype": "bfloat16",
      "sliding_window": 4096})";
  EXPECT_THAT(WindowsOf(*Read(config)), ElementsAre(4096, 4096, 4096));
  EXPECT_THAT(
      WindowsOf(*Read(absl::StrReplaceAll(
          config, {{"\"sliding_window\": 4096", "\"sliding_window\": null"}}))),
      ElementsAre(0, 0, 0));
}

TEST(ModelFiles, QwensWindowNeedsItsFlagAndBeginsAtALayer) {
  const std::string config = R"({"model_type": "qwen2", "hidden_size": 3584,
      "num_attention_heads": 28, "num_key_value_heads": 4,
      "num_hidden_layers": 4, "torch_dtype": "bfloat16",
      "sliding_window": 32768, "max_window_layers": 3,
      "use_sliding_window": false})";
  EXPECT_THAT(WindowsOf(*Read(config)), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(
      WindowsOf(*Read(absl::StrReplaceAll(config, {{"false", "true"}}))),
      ElementsAre(0, 0, 0, 32768));
}

TEST(ModelFiles, Gemma2AlternatesAndHasASoftcap) {
  const auto model = Read(R"({"model_type": "gemma2", "hidden_size": 2304,
      "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
      "num_hidden_layers": 4, "torch_dtype": "bfloat16",
      "sliding_window": 4096, "attn_logit_softcapping": 50.0,
      "final_logit_softcapping": 30.0})");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(WindowsOf(*model), ElementsAre(4096, 0, 4096, 0));
  EXPECT_EQ(model->layers[0].geometry.softcap, 50);
  EXPECT_EQ(model->layers[1].geometry.softcap, 50);
  EXPECT_EQ(model->layers[1].geometry.head_dim, 256);
}

// A multimodal gemma leaves heads and head_dim to its class.
TEST(ModelFiles, NestedTextConfigAndFamilyDefaults) {
  const auto model = Read(R"({"model_type": "gemma3",
      "torch_dtype": "bfloat16",
      "text_config": {"model_type": "gemma3_text", "hidden_size": 2560,
                      "num_hidden_layers": 7, "sliding_window": 1024},
      "vision_config": {"model_type": "siglip", "num_attention_heads": 16}})");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->family, "gemma3_text");
  EXPECT_EQ(model->type, DType::kBf16);
  EXPECT_THAT(WindowsOf(*model),
              ElementsAre(1024, 1024, 1024, 1024, 1024, 0, 1024));
  const LayerGeometry full = {8, 4, 256, 256, 0, 0, false};
  EXPECT_EQ(model->layers[5].geometry, full);
}

TEST(ModelFiles, PatternsAreNumbersOrTexts) {
  const std::string config = R"({"model_type": "exaone4", "hidden_size": 2048,
      "num_attention_heads": 16, "num_key_value_heads": 8,
      "num_hidden_layers": 6, "torch_dtype": "bfloat16",
      "sliding_window": 100, "sliding_window_pattern": PATTERN})";
  const auto with = [&config](absl::string_view pattern) {
    return Read(absl::StrReplaceAll(config, {{"PATTERN", pattern}}));
  };
  EXPECT_THAT(WindowsOf(*with("3")), ElementsAre(100, 100, 0, 100, 100, 0));
  EXPECT_THAT(WindowsOf(*with("1")), ElementsAre(0, 0, 0, 0, 0, 0));
  EXPECT_THAT(WindowsOf(*with("\"LLLG\"")),
              ElementsAre(100, 100, 100, 0, 100, 100));
  EXPECT_THAT(WindowsOf(*with("null")),
              ElementsAre(100, 100, 100, 0, 100, 100));
  EXPECT_THAT(std::string(with("\"LX\"").status().message()),
              HasSubstr("'sliding_window_pattern' is \"LX\"; expected a "
                        "number, or a string of L and G"));
  EXPECT_FALSE(with("0").ok());
}

TEST(ModelFiles, GptOssHasSinksAndLayerTypes) {
  const auto model = Read(R"({"model_type": "gpt_oss", "hidden_size": 2880,
      "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
      "num_hidden_layers": 4, "torch_dtype": "bfloat16", "sliding_window": 128,
      "layer_types": ["sliding_attention", "full_attention",
                      "sliding_attention", "full_attention"]})");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(WindowsOf(*model), ElementsAre(128, 0, 128, 0));
  EXPECT_TRUE(model->layers[0].geometry.sinks);
  EXPECT_TRUE(model->layers[1].geometry.sinks);
  EXPECT_EQ(model->layers[1].geometry.head_dim, 64);
}

TEST(ModelFiles, FullLayersMayHaveAHeadDimAndKvHeadsOfTheirOwn) {
  const std::string config = R"({"model_type": "gemma4_text",
      "hidden_size": 2560, "num_attention_heads": 8, "num_key_value_heads": 4,
      "head_dim": 256, "global_head_dim": 512,
      "num_global_key_value_heads": 2, "attention_k_eq_v": true,
      "num_hidden_layers": 2, "dtype": "bfloat16", "sliding_window": 512,
      "layer_types": ["sliding_attention", "full_attention"]})";
  const auto model = Read(config);
  ASSERT_TRUE(model.ok()) << model.status();
  const LayerGeometry window = {8, 4, 256, 256, 512, 0, false};
  const LayerGeometry full = {8, 2, 512, 512, 0, 0, false};
  EXPECT_EQ(model->layers[0].geometry, window);
  EXPECT_EQ(model->layers[1].geometry, full);
  const auto apart = Read(absl::StrReplaceAll(config, {{"true", "false"}}));
  EXPECT_EQ(apart->layers[1].geometry.kv_heads, 4);
}

TEST(ModelFiles, LayersWithoutAttentionHaveNoCache) {
  const auto model = Read(R"({"model_type": "qwen3_next", "hidden_size": 2048,
      "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
      "num_hidden_layers": 3, "torch_dtype": "bfloat16",
      "layer_types": ["linear_attention", "linear_attention",
                      "full_attention"]})");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(WindowsOf(*model), ElementsAre(-1, -1, 0));
}

TEST(ModelFiles, AnUnknownFamilyIsReadAsLlamaWithANote) {
  const auto model =
      Read(absl::StrReplaceAll(kLlama, {{"\"llama\"", "\"newcomer\""}}));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(model->notes, ElementsAre(HasSubstr("'newcomer' is not known")));
}

struct RefusedCase {
  const char* name;
  const char* key;  // as JSON, added to Llama's
  const char* message;
};

class RefusedModel : public ::testing::TestWithParam<RefusedCase> {};

TEST_P(RefusedModel, IsNamed) {
  const auto model = Read(absl::StrReplaceAll(
      kLlama, {{"{\n", absl::StrCat("{", GetParam().key, ",\n")}}));
  ASSERT_TRUE(absl::IsUnimplemented(model.status())) << model.status();
  EXPECT_THAT(
      std::string(model.status().message()),
      AllOf(HasSubstr("/config.json: key '"), HasSubstr("model_type 'llama'"),
            HasSubstr(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, RefusedModel,
    ::testing::Values(
        RefusedCase{"Mla", "\"kv_lora_rank\": 512", "multi-head latent"},
        RefusedCase{"Chunked", "\"attention_chunk_size\": 8192", "chunked"},
        RefusedCase{"Alibi", "\"alibi\": true", "ALiBi"},
        RefusedCase{"Encoder", "\"is_encoder_decoder\": true", "encoder"},
        RefusedCase{"Blocks", "\"layers_block_type\": [\"mamba\"]",
                    "layers_block_type"},
        RefusedCase{"LayerType",
                    "\"layer_types\": [\"full_attention\", "
                    "\"full_attention\", \"full_attention\", "
                    "\"compressed_attention\"]",
                    "'compressed_attention' in layer 3"}),
    [](const auto& info) { return info.param.name; });

struct OddCase {
  const char* name;
  const char* from;  // a piece of Llama's config
  const char* to;
  const char* message;
};

class OddModel : public ::testing::TestWithParam<OddCase> {};

TEST_P(OddModel, IsAnErrorWithFileKeyAndWhatWasExpected) {
  const auto model =
      Read(absl::StrReplaceAll(kLlama, {{GetParam().from, GetParam().to}}));
  ASSERT_TRUE(absl::IsInvalidArgument(model.status())) << model.status();
  EXPECT_THAT(std::string(model.status().message()),
              AllOf(HasSubstr("/config.json: key '"),
                    HasSubstr(GetParam().message), HasSubstr("; expected ")));
}

INSTANTIATE_TEST_SUITE_P(
    Keys, OddModel,
    ::testing::Values(
        OddCase{"NoHeads", "\"num_attention_heads\": 32, ", "",
                "'num_attention_heads' is missing"},
        OddCase{"ZeroHeads", "\"num_attention_heads\": 32",
                "\"num_attention_heads\": 0", "'num_attention_heads' is 0"},
        OddCase{"TextHeads", "\"num_attention_heads\": 32",
                "\"num_attention_heads\": \"32\"",
                "'num_attention_heads' is \"32\""},
        OddCase{"HugeHeads", "\"num_attention_heads\": 32",
                "\"num_attention_heads\": 18446744073709551615",
                "'num_attention_heads' is 18446744073709551615"},
        OddCase{"HalfHeads", "\"num_attention_heads\": 32",
                "\"num_attention_heads\": 32.5", "is 32.5; expected an int"},
        OddCase{"KvHeadsNoDivisor", "\"num_key_value_heads\": 8",
                "\"num_key_value_heads\": 5",
                "'num_key_value_heads' is 5; expected a divisor of "
                "num_attention_heads = 32"},
        OddCase{"NegativeKvHeads", "\"num_key_value_heads\": 8",
                "\"num_key_value_heads\": -8", "is -8"},
        OddCase{"HiddenNoMultiple", "\"hidden_size\": 4096",
                "\"hidden_size\": 4097", "a multiple of num_attention_heads"},
        OddCase{"NoHidden", "\"hidden_size\": 4096, ", "",
                "'hidden_size' is missing"},
        OddCase{"NoLayers", "\"num_hidden_layers\": 4, ", "",
                "'num_hidden_layers' is missing"},
        OddCase{"ZeroLayers", "\"num_hidden_layers\": 4",
                "\"num_hidden_layers\": 0", "'num_hidden_layers' is 0"},
        OddCase{"NoFamily", "\"model_type\": \"llama\",", "",
                "'model_type' is missing"},
        OddCase{"TypeNotKnown", "\"bfloat16\"", "\"int8\"",
                "'torch_dtype' is \"int8\""},
        OddCase{"FewLayerTypes", "\"torch_dtype\"",
                "\"layer_types\": [\"full_attention\"], \"torch_dtype\"",
                "'layer_types' has 1 layers"},
        OddCase{"WindowMissing", "\"torch_dtype\"",
                "\"layer_types\": [\"full_attention\", \"full_attention\", "
                "\"full_attention\", \"sliding_attention\"], \"torch_dtype\"",
                "'sliding_window' is missing"},
        OddCase{"NegativeSoftcap", "\"torch_dtype\"",
                "\"attn_logit_softcapping\": -1, \"torch_dtype\"",
                "'attn_logit_softcapping' is -1"},
        OddCase{"NestedIsText", "\"torch_dtype\"",
                "\"text_config\": \"x\", \"torch_dtype\"",
                "'text_config' is \"x\"; expected an object"}),
    [](const auto& info) { return info.param.name; });

// Each ends as JSON does not, except a last byte that is white space.
TEST(ModelFiles, CutAnywhereIsAnErrorThatNamesTheFile) {
  const std::string config = kLlama;
  for (size_t kept = 0; kept < config.size(); ++kept) {
    const std::string error = ErrorOf(config.substr(0, kept));
    ASSERT_THAT(error, HasSubstr("/config.json: ")) << "kept " << kept;
    ASSERT_THAT(error, HasSubstr("expected one JSON object"));
  }
  EXPECT_THAT(ErrorOf("[1]"), HasSubstr("holds a JSON array"));
  EXPECT_THAT(ErrorOf(std::string(100000, '[')), HasSubstr("parse error"));
}

TEST(ModelFiles, AFolderWithoutConfigIsNotFound) {
  const TemporaryFolder folder;
  const auto model = ReadModelFiles(folder.path());
  EXPECT_TRUE(absl::IsNotFound(model.status())) << model.status();
  EXPECT_THAT(std::string(model.status().message()),
              HasSubstr(folder.Path("config.json")));
}

}  // namespace
}  // namespace kvforge
