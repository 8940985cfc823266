// The files of Gemma 2 and 3: what their keys mean, what is fixed without keys, and what is refused.
#include "tutti/models/published_gemma.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/models/support/family_cases.h"
#include "tests/models/support/first_weights.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "tutti/models/decoder.h"
#include "tutti/models/family.h"
#include "tutti/models/published_config.h"
#include "tutti/models/published_folder.h"
#include "tutti/models/published_gguf.h"
#include "tutti/ops/binary.h"

namespace tutti::models {
namespace {

DecoderConfig read_text(const std::string& text) {
  PublishedConfig file("config.json", text);
  return read_published_config(file);
}
DecoderConfig gemma2_with(const std::string& keys) {
  return read_text(R"({"model_type": "gemma2", "num_hidden_layers": 4)" + (keys.empty() ? "" : ", " + keys) + "}");
}
DecoderConfig gemma3_with(const std::string& keys) {
  return read_text(R"({"model_type": "gemma3_text", "num_hidden_layers": 12)" + (keys.empty() ? "" : ", " + keys) +
                   "}");
}
std::string refusal(const std::function<void()>& read) {
  const std::string message = message_of(read);
  return message.substr(message.find("\n") + 1);
}

TEST(Gemma2Files, HaveTheDefaultsOfTheirClass) {
  const DecoderConfig config = gemma2_with("");
  EXPECT_TRUE(config.tied_embeddings && config.zero_centered_norms);
  EXPECT_EQ(config.embedding_scale, 48);
  EXPECT_EQ(config.logits_cap, 30);
  for (size_t i = 0; i < 4; ++i) {
    const AttentionConfig& a = config.layers[i].attention;
    EXPECT_EQ(a.scale, 1.0 / 16);
    EXPECT_EQ(a.score_cap, 50);
    EXPECT_EQ(a.window, i % 2 == 0 ? 4096 : 0);
    EXPECT_FALSE(a.query_key_norms);
    EXPECT_TRUE(config.layers[i].output_norms);
  }
  EXPECT_EQ(gemma2_with(R"("attn_logit_softcapping": null)").layers[0].attention.score_cap, 0);
  EXPECT_EQ(gemma2_with(R"("final_logit_softcapping": null)").logits_cap, 0);
  // The class asks layer_types, and no pattern.
  EXPECT_EQ(gemma2_with(R"("sliding_window_pattern": 3)").layers, config.layers);
}

TEST(Gemma3Files, TurnSlidingLayersByAnotherBase) {
  const DecoderConfig config = gemma3_with(R"("rope_scaling": {"rope_type": "linear", "factor": 8.0})");
  for (size_t i = 0; i < 12; ++i) {
    const AttentionConfig& a = config.layers[i].attention;
    const bool is_full = i == 5 || i == 11;
    EXPECT_EQ(a.window, is_full ? 0 : 4096) << i;
    EXPECT_EQ(a.rope.theta, is_full ? 1e6 : 1e4) << i;
    EXPECT_EQ(a.rope.type, is_full ? RopeType::linear : RopeType::plain) << i;
    EXPECT_TRUE(a.query_key_norms);
    EXPECT_EQ(a.score_cap, 0);
  }
  EXPECT_EQ(gemma3_with(R"("rope_theta": 5, "rope_local_base_freq": 7)").layers[5].attention.rope.theta, 5);
  EXPECT_EQ(gemma3_with(R"("rope_theta": 5, "rope_local_base_freq": 7)").layers[4].attention.rope.theta, 7);
  EXPECT_EQ(gemma3_with(R"("sliding_window_pattern": 3)").layers[2].attention.window, 0);
  const std::string nested = R"({"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"],
    "text_config": {"model_type": "gemma3_text", "num_hidden_layers": 12}, "vision_config": {}})";
  EXPECT_EQ(read_text(nested).layers, gemma3_with("").layers);
}

TEST(GemmaFiles, AreRefusedWhereTheyAskForSomethingElse) {
  EXPECT_EQ(refusal([] { gemma2_with(R"("hidden_activation": "gelu")"); }),
            "  hidden_activation: \"gelu\", expected \"gelu_pytorch_tanh\"");
  EXPECT_EQ(refusal([] { gemma2_with(R"("attn_logit_softcapping": 0)"); }),
            "  attn_logit_softcapping: 0, expected a positive number, or null");
  EXPECT_EQ(refusal([] { gemma3_with(R"("attn_logit_softcapping": 50)"); }),
            "  attn_logit_softcapping: 50, expected null");
  EXPECT_EQ(refusal([] { gemma3_with(R"("sliding_window": null)"); }),
            "  sliding_window: null, expected a number of keys");
  EXPECT_EQ(refusal([] { gemma3_with(R"("sliding_window_pattern": 0)"); }),
            "  sliding_window_pattern: 0, expected 1 or more");
  EXPECT_EQ(refusal([] { gemma3_with(R"("query_pre_attn_scalar": -1)"); }),
            "  query_pre_attn_scalar: -1, expected a positive number");
  EXPECT_EQ(refusal([] { gemma3_with(R"("use_bidirectional_attention": true)"); }),
            "  use_bidirectional_attention: true, expected false");
  EXPECT_EQ(refusal([] { gemma3_with(R"("rope_parameters": {"rope_type": "default", "rope_theta": 5})"); }),
            "  rope_parameters: an object for all layers, expected an object for each kind of layer");
  EXPECT_EQ(refusal([] { gemma3_with(R"("rope_scaling": {"rope_type": "dynamic", "factor": 2})"); }),
            "  rope_scaling.rope_type: \"dynamic\", expected \"default\", \"linear\", \"llama3\", \"yarn\" or "
            "\"proportional\"");
  EXPECT_EQ(refusal([] { gemma3_with(R"("rope_theta": 0)"); }), "  rope_theta: 0, expected a positive number");
  EXPECT_EQ(refusal([] { gemma3_with(R"("rope_local_base_freq": -2)"); }),
            "  rope_local_base_freq: -2, expected a positive number");
  EXPECT_EQ(refusal([] { gemma3_with(R"("rope_scaling": {"rope_type": "linear", "factor": 0})"); }),
            "  rope_scaling.factor: 0, expected a positive number");
  EXPECT_NE(message_of([] { gemma3_with(R"("rope_parameters": {"full_attention": 3})"); }).find("expected an object"),
            std::string::npos);
}

TEST(GemmaFiles, AreComparedWithTheModelThatTheyAreLoadedInto) {
  const Decoder model(flavor_named("gemma3", "tiny"), 8);
  PublishedConfig file("config.json", published_config_json(flavor_named("gemma3", "tiny-tp4"), DType::f32));
  family_named("gemma3").read(file, &model.config());
  const std::string message = message_of([&] { file.check("gemma3 tiny"); });
  EXPECT_NE(message.find("\n  vocabulary: 2048, the model has 320\n"), std::string::npos) << message;
  EXPECT_NE(message.find("\n  layer 0, query heads: 8, the model has 2\n"), std::string::npos) << message;
}

// The scale of scores is in no GGUF file: llama.cpp knows the models of 27B by their number of layers.
TEST(GemmaGguf, ScalesScoresOfTheLargestModelsByTheirDims) {
  for (const auto& [family, layers] : {std::pair("gemma2", 46), std::pair("gemma3", 62)}) {
    DecoderConfig config = flavor_named(family, "tiny");
    const LayerConfig even = config.layers[0], odd = config.layers[1];
    config.layers.clear();
    for (int i = 0; i < layers; ++i) {
      const bool is_full = std::string(family) == "gemma2" ? i % 2 == 1 : i % 6 == 5;
      config.layers.push_back(is_full ? odd : even);
      config.layers.back().attention.head_dim = 8;
      config.layers.back().attention.scale = 1 / std::sqrt(config.dim / 2.0);  // and not by 8
    }
    const tutti::testing::TemporaryFolder work;
    write_first_weights(config, DType::f32, work / "model");
    write_published_gguf(PublishedModel(work / "model"), work / "model.gguf");
    const DecoderConfig read = PublishedModel(work / "model.gguf").config();
    EXPECT_NEAR(read.layers[3].attention.scale, 0.25, 1e-9) << family;
    config.layers.pop_back();
    write_first_weights(config, DType::f32, work / "shorter");
    EXPECT_NE(message_of([&] {
                write_published_gguf(PublishedModel(work / "shorter"), work / "shorter.gguf");
              }).find("layer 0, scale of scores: 0.25, written as 0.353553"),
              std::string::npos);
  }
}

TEST(GemmaParts, AreCheckedByTheDescription) {
  DecoderConfig config = flavor_named("mixtral", "tiny");
  config.layers[1].feed_forward.bias = true;
  EXPECT_EQ(message_of([&] { validate(config); }), "mixtral tiny, layer 1: experts with biases are not supported");
  config = flavor_named("gemma2", "tiny");
  config.embedding_scale = 0;
  EXPECT_EQ(
      message_of([&] { validate(config); }),
      "gemma2 tiny: embeddings times 0, logits capped at 30; expected a number other than 0, and a positive one or "
      "0 for no cap");
}

// Norms are stored as 1 + weight, under names of their own, and queries are not in pair layout.
TEST(GemmaGguf, HoldsWhatNormsMultiplyBy) {
  const ModelFile gguf((families_folder() / "gemma3" / "model.gguf").string());
  const PublishedModel folder(families_folder() / "gemma3"), model(families_folder() / "gemma3" / "model.gguf");
  for (const auto& [name, own] : {std::pair("output_norm", "model.norm"),
                                  {"blk.3.attn_norm", "model.layers.3.input_layernorm"},
                                  {"blk.3.post_attention_norm", "model.layers.3.post_attention_layernorm"},
                                  {"blk.3.ffn_norm", "model.layers.3.pre_feedforward_layernorm"},
                                  {"blk.3.post_ffw_norm", "model.layers.3.post_feedforward_layernorm"},
                                  {"blk.3.attn_q_norm", "model.layers.3.self_attn.q_norm"}}) {
    const std::string weight = std::string(own) + ".weight";
    const Tensor stored = gguf.tensor(std::string(name) + ".weight");
    EXPECT_LT(difference(add(cast(folder.file().tensor(weight), DType::f32), 1.0), stored), 1e-7) << name;
    EXPECT_LT(difference(model.file().tensor(weight), folder.file().tensor(weight)), 1e-6) << name;
  }
}

}  // namespace
}  // namespace tutti::models
