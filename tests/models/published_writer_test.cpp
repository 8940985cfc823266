// The config.json that is written of a decoder is read as that decoder.
#include "tutti/models/published_writer.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/models/support/family_cases.h"
#include "tests/support/message_of.h"
#include "tutti/models/family.h"
#include "tutti/models/published_config.h"
#include "tutti/models/published_model.h"

namespace tutti::models {
namespace {

DecoderConfig read_text(const std::string& text) {
  PublishedConfig file("config.json", text);
  return read_published_config(file);
}

void expect_same(const DecoderConfig& got, const DecoderConfig& expected) {
  EXPECT_EQ(got.family, expected.family);
  EXPECT_EQ(got.dim, expected.dim);
  EXPECT_EQ(got.vocab, expected.vocab);
  EXPECT_EQ(got.tied_embeddings, expected.tied_embeddings);
  EXPECT_EQ(got.norm_eps, expected.norm_eps);
  EXPECT_EQ(got.zero_centered_norms, expected.zero_centered_norms);
  EXPECT_EQ(got.embedding_scale, expected.embedding_scale);
  EXPECT_EQ(got.logits_cap, expected.logits_cap);
  EXPECT_EQ(got.layers, expected.layers) << expected.name();
}

TEST(PublishedWriter, DescribesEveryFlavorOfEveryFamily) {
  for (const auto& [name, family] : family_table()) {
    for (const DecoderConfig& config : family->flavors())
      expect_same(read_text(published_config_json(config, DType::bf16)), config);
  }
}

class WrittenConfigs : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(, WrittenConfigs, ::testing::ValuesIn(family_cases("config.json")), name_of_case);

TEST_P(WrittenConfigs, AreReadAsTheDecoderThatTheyDescribe) {
  const DecoderConfig config = read_published_config((families_folder() / GetParam() / "config.json").string());
  expect_same(read_text(published_config_json(config, DType::f32)), config);
}

// A GGUF file has epsilon in f32 and divisors in the place of llama3 scaling.
TEST(PublishedWriter, WritesTheNumbersThatGgufFilesMean) {
  const PublishedModel gguf(families_folder() / "llama-llama3" / "model.gguf");
  const DecoderConfig written = read_text(published_config_json(gguf.config(), DType::f32));
  const DecoderConfig meant = read_published_config((families_folder() / "llama-llama3" / "config.json").string());
  EXPECT_EQ(written.norm_eps, meant.norm_eps);
  EXPECT_EQ(written.layers, meant.layers);
}

TEST(PublishedWriter, WritesKeysAsTransformersDoes) {
  DecoderConfig config = flavor_named("llama", "3.2-1B");
  const std::string text = published_config_json(
      config, DType::bf16, {.positions = 131072, .bos_token = 128000, .pad_token = {}, .eos_tokens = {128001, 128008}});
  for (const char* line : {
           "{\n  \"architectures\": [\"LlamaForCausalLM\"],\n  \"attention_bias\": false,\n",
           "\n  \"bos_token_id\": 128000,\n  \"dtype\": \"bfloat16\",\n  \"eos_token_id\": [128001,128008],\n",
           "\n  \"max_position_embeddings\": 131072,\n",
           "\n  \"pad_token_id\": null,\n  \"rms_norm_eps\": 1e-05,\n  \"rope_parameters\": {\n    \"factor\": 32.0,\n",
           "\n    \"rope_theta\": 500000.0,\n    \"rope_type\": \"llama3\"\n  },\n  \"rope_scaling\": {\n",
           "\n  \"rope_theta\": 500000.0,\n  \"tie_word_embeddings\": true,\n  \"torch_dtype\": \"bfloat16\",\n",
           "\n  \"vocab_size\": 128256\n}\n",
       })
    EXPECT_NE(text.find(line), std::string::npos) << text << "\nexpected: " << line;
}

TEST(PublishedWriter, RefusesADecoderThatTheKeysOfItsFamilyDoNotDescribe) {
  const auto refused = [](const char* family, const char* flavor, auto change) {
    DecoderConfig config = flavor_named(family, flavor);
    change(config);
    return message_of([&] { published_config_json(config, DType::f32); });
  };
  EXPECT_EQ(refused("llama", "tiny", [](DecoderConfig& c) { c.layers[1].attention.window = 7; }),
            "a config.json of the family llama does not describe llama tiny:\n"
            "  layer 1, window of keys: 7, written as 0");
  EXPECT_EQ(refused("qwen2", "2.5-0.5B",
                    [](DecoderConfig& c) {
                      c.layers.resize(1);
                      c.layers[0].attention.qkv_bias = false, c.layers[0].feed_forward.bias = true;
                    }),
            "a config.json of the family qwen2 does not describe qwen2 2.5-0.5B:\n"
            "  layer 0, biases of q, k and v: false, written as true\n"
            "  layer 0, biases of the feed-forward: true, written as false");
  EXPECT_EQ(refused("llama", "tiny",
                    [](DecoderConfig& c) {
                      for (LayerConfig& layer : c.layers) layer.attention.rope.divisors = {1, 1, 1, 1, 2, 1, 3, 1};
                    }),
            "a config.json of the family llama does not describe llama tiny:\n"
            "  layer 0, rotary angles: base 1000000, divided by 1 1 1 1 2 1 3 1, written as base 1000000\n"
            "  layer 1, rotary angles: base 1000000, divided by 1 1 1 1 2 1 3 1, written as base 1000000");
}

}  // namespace
}  // namespace tutti::models
