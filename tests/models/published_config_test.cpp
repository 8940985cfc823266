// A published model is loaded only into a model that computes what its config.json says: every key that changes the
// maths is compared, and nothing is loaded where one differs.
#include "tutti/models/published_config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "tests/support/message_of.h"
#include "tests/support/same_bits.h"
#include "tests/support/temporary_folder.h"
#include "tutti/io/safetensors_shards.h"
#include "tutti/models/decoder.h"
#include "tutti/models/families/qwen3.h"
#include "tutti/models/family.h"
#include "tutti/models/published_model.h"
#include "tutti/nn/published_experts.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/copy.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::models {
namespace {

using Json = std::map<std::string, std::string>;  // key -> JSON

// The keys of Qwen3-0.6B's file that are compared, with the sizes of `c`.
Json published_json(const DecoderSizes& c) {
  Json json{{"model_type", "\"qwen3\""},
            {"architectures", "[\"Qwen3ForCausalLM\"]"},
            {"hidden_size", std::to_string(c.dim)},
            {"num_hidden_layers", std::to_string(c.layers)},
            {"num_attention_heads", std::to_string(c.heads)},
            {"num_key_value_heads", std::to_string(c.kv_heads)},
            {"head_dim", std::to_string(c.head_dim)},
            {"intermediate_size", std::to_string(c.ffn_dim)},
            {"vocab_size", std::to_string(c.vocab)},
            {"tie_word_embeddings", "true"},
            {"rms_norm_eps", "1e-06"},
            {"rope_theta", "1000000"},
            {"rope_scaling", "null"},
            {"hidden_act", "\"silu\""},
            {"attention_bias", "false"},
            {"attention_dropout", "0.0"},
            {"use_sliding_window", "false"},
            {"sliding_window", "null"},
            {"max_window_layers", "28"},
            // These change no logit.
            {"torch_dtype", "\"bfloat16\""},
            {"transformers_version", "\"4.51.0\""},
            {"use_cache", "true"},
            {"initializer_range", "0.5"},
            {"bos_token_id", "151643"},
            {"eos_token_id", "[151645, 151643]"},
            {"max_position_embeddings", "40960"},
            {"output_router_logits", "true"},
            {"router_aux_loss_coef", "0.3"}};
  if (c.experts == 0) return json;
  json["model_type"] = "\"qwen3_moe\"", json["architectures"] = "[\"Qwen3MoeForCausalLM\"]",
  json["intermediate_size"] = "6144";
  json["moe_intermediate_size"] = std::to_string(c.ffn_dim);
  json["num_experts"] = std::to_string(c.experts);
  json["num_experts_per_tok"] = std::to_string(c.active_experts);
  json["norm_topk_prob"] = "true", json["decoder_sparse_step"] = "1", json["mlp_only_layers"] = "[]";
  return json;
}

std::string text_of(const Json& json) {
  std::string text;
  for (const auto& [key, value] : json) text += (text.empty() ? "{" : ", ") + ("\"" + key + "\": " + value);
  return text + "}";
}

Json changed(Json json, const Json& changes) {
  for (const auto& [key, value] : changes) {
    if (value.empty()) json.erase(key);
    else json[key] = value;
  }
  return json;
}

struct Change {
  Json json;            // what the file says instead; "" for a key that it does not have
  std::string message;  // key, value of the file, value of the model
};

struct Class {
  const char* flavor;
  int64_t dim, layers, kv_heads;  // the class's defaults
};
void PrintTo(const Class& c, std::ostream* out) { *out << c.flavor; }

// What files of either class may say otherwise, each with what the error says.
std::vector<Change> changes(const Class& of_class, const DecoderSizes& c) {
  const auto other = [](const std::string& key, const std::string& value, const auto& of_model) {
    return Change{{{key, value}}, fmt::format("{}: {}, the model has {}", key, value, of_model)};
  };
  const auto missing = [](const std::string& key, const auto& means, const auto& of_model) {
    return Change{{{key, ""}}, fmt::format("{}: not given, which means {}, the model has {}", key, means, of_model)};
  };
  const std::string type = c.experts > 0 ? "\"qwen3_moe\"" : "\"qwen3\"",
                    architecture = c.experts > 0 ? "[\"Qwen3MoeForCausalLM\"]" : "[\"Qwen3ForCausalLM\"]";
  const std::string full = "full attention in every layer";
  return {
      other("model_type", "\"llama\"", type),
      {{{"model_type", ""}, {"architectures", ""}},
       fmt::format("model_type: not given, nor are architectures, the model has {}", type)},
      other("architectures", "[\"LlamaForCausalLM\"]", architecture),
      other("architectures", "[\"Qwen3VLForConditionalGeneration\", \"Other\"]", architecture),
      {{{"architectures", "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"}},
       fmt::format("architectures: [1, 2, 3, 4, 5, 6, 7, 8, and 2 more], the model has {}", architecture)},
      {{{"model_type", fmt::format("\"{}\"", std::string(5000, 'x'))}},
       fmt::format("model_type: \"{}\"..., the model has {}", std::string(60, 'x'), type)},
      other("hidden_size", "33", c.dim),
      missing("hidden_size", of_class.dim, c.dim),
      other("num_hidden_layers", "3", c.layers),
      missing("num_hidden_layers", of_class.layers, c.layers),
      other("num_attention_heads", "4", c.heads),
      missing("num_attention_heads", 32, c.heads),
      other("num_key_value_heads", "2", c.kv_heads),
      missing("num_key_value_heads", of_class.kv_heads, c.kv_heads),
      {{{"num_key_value_heads", "null"}}, "num_key_value_heads: not given, which means 2, the model has 1"},
      other("head_dim", "17", c.head_dim),
      {{{"head_dim", "null"}, {"hidden_size", "48"}}, "head_dim: not given, which means 24, the model has 16"},
      other("vocab_size", "321", c.vocab),
      missing("vocab_size", 151936, c.vocab),
      other("tie_word_embeddings", "false", true),
      missing("tie_word_embeddings", false, true),
      other("rms_norm_eps", "1e-05", 1e-6),
      other("rope_theta", "10000", "1000000"),
      missing("rope_theta", "10000", "1000000"),
      {{{"rope_theta", "500000.0"}}, "rope_theta: 500000, the model has 1000000"},
      {{{"rope_theta", ""}, {"rope_parameters", "{\"rope_type\": \"default\", \"rope_theta\": 10000.0}"}},
       "rope_parameters.rope_theta: 10000, the model has 1000000"},
      {{{"rope_theta", ""}, {"rope_parameters", "{\"full_attention\": {\"rope_theta\": 2}}"}},
       "rope_parameters.full_attention.rope_theta: 2, the model has 1000000"},
      {{{"rope_theta", ""}, {"rope_parameters", "{\"rope_type\": \"default\"}"}},
       "rope_theta: not given, which means 10000, the model has 1000000"},
      {{{"rope_parameters", "{\"rope_theta\": 10000.0}"}}, "rope_parameters.rope_theta: 10000, the model has 1000000"},
      // An object rope_scaling replaces rope_parameters, and the base with them.
      {{{"rope_theta", ""},
        {"rope_parameters", "{\"rope_theta\": 1000000}"},
        {"rope_scaling", "{\"type\": \"default\"}"}},
       "rope_theta: not given, which means 10000, the model has 1000000"},
      {{{"rope_parameters", "{\"rope_theta\": 1000000, \"rope_type\": \"llama3\"}"}},
       "rope_parameters.rope_type: \"llama3\", the model has \"default\""},
      {{{"rope_scaling", "{\"rope_type\": \"yarn\", \"factor\": 4.0}"}},
       "rope_scaling.rope_type: \"yarn\", the model has \"default\""},
      {{{"rope_scaling", "{\"type\": \"linear\", \"factor\": 8}"}},
       "rope_scaling.type: \"linear\", the model has \"default\""},
      {{{"rope_scaling", "{\"type\": \"unheard of\"}"}},
       "rope_scaling.type: \"unheard of\", the model has \"default\""},
      {{{"rope_parameters", "{\"rope_theta\": 1000000, \"partial_rotary_factor\": 0.25}"}},
       "rope_parameters.partial_rotary_factor: 0.25, the model has 1"},
      {{{"partial_rotary_factor", "0.5"}}, "partial_rotary_factor: 0.5, the model has 1"},
      other("hidden_act", "\"gelu\"", "\"silu\""),
      other("attention_bias", "true", false),
      other("attention_dropout", "0.1", 0),
      {{{"layer_types", "[\"full_attention\", \"sliding_attention\"]"}},
       "layer_types: \"sliding_attention\", the model has " + full},
      {{{"layer_types", "[\"full_attention\"]"}}, "layer_types: 1 entries, the model has 2 layers"},
      {{{"quantization_config", "{\"quant_method\": \"fp8\", \"bits\": 8}"}},
       "quantization_config: quant_method = \"fp8\", the model has weights of floats"},
      {{{"compression_config", "{}"}}, "compression_config: an object, the model has weights of floats"},
  };
}

std::vector<Change> changes_of_dense() {
  const std::string full = "full attention in every layer";
  return {
      {{{"head_dim", ""}}, "head_dim: not given, which means 128, the model has 16"},
      {{{"intermediate_size", "65"}}, "intermediate_size: 65, the model has 64"},
      {{{"intermediate_size", ""}}, "intermediate_size: not given, which means 22016, the model has 64"},
      {{{"use_sliding_window", "true"}, {"sliding_window", "4"}, {"max_window_layers", "1"}},
       "use_sliding_window: true, with sliding_window = 4 from layer 1 on, the model has " + full},
      {{{"use_sliding_window", "true"}, {"sliding_window", ""}, {"max_window_layers", "0"}},
       "use_sliding_window: true, with sliding_window = 4096 from layer 0 on, the model has " + full},
  };
}

std::vector<Change> changes_of_experts() {
  const std::string full = "full attention in every layer";
  return {
      {{{"head_dim", ""}, {"hidden_size", "34"}}, "head_dim: not given, which means 17, the model has 16"},
      {{{"moe_intermediate_size", "25"}}, "moe_intermediate_size: 25, the model has 24"},
      {{{"moe_intermediate_size", ""}}, "moe_intermediate_size: not given, which means 768, the model has 24"},
      {{{"num_experts", "7"}}, "num_experts: 7, the model has 6"},
      {{{"num_experts", ""}}, "num_experts: not given, which means 128, the model has 6"},
      {{{"num_experts", ""}, {"num_local_experts", "7"}}, "num_local_experts: 7, the model has 6"},
      {{{"num_experts", "7"}, {"num_local_experts", "6"}}, "num_experts: 7, the model has 6"},
      {{{"num_experts_per_tok", "3"}}, "num_experts_per_tok: 3, the model has 2"},
      {{{"num_experts_per_tok", ""}}, "num_experts_per_tok: not given, which means 8, the model has 2"},
      {{{"norm_topk_prob", "false"}}, "norm_topk_prob: false, the model has true"},
      {{{"norm_topk_prob", ""}}, "norm_topk_prob: not given, which means false, the model has true"},
      {{{"decoder_sparse_step", "2"}}, "decoder_sparse_step: 2, the model has 1"},
      {{{"mlp_only_layers", "[0]"}}, "mlp_only_layers: [0], the model has experts in every layer"},
      {{{"use_sliding_window", "true"}, {"sliding_window", "4"}, {"max_window_layers", "28"}},
       "use_sliding_window: true, with sliding_window = 4 from layer 0 on, the model has " + full},
  };
}

class PublishedConfigs : public ::testing::TestWithParam<Class> {
 protected:
  PublishedConfigs() : config(qwen3_sizes(GetParam().flavor)), original(qwen3(config), 8) {
    seed_all(7);
    nn::initialize(original);
    nn::save_published(original.state_dict(), folder / "model.safetensors");
  }

  // Loads the folder, with such a config.json, into a new model. "no error" when it was loaded.
  std::string load(const Json& json) const { return load_text(text_of(json)); }
  std::string load_text(const std::string& text) const {
    folder.write("config.json", text);
    Decoder model(qwen3(config), 8);
    const std::string message = message_of([&] { EXPECT_TRUE(load_published(model, folder.path())); });
    const bool is_loaded = message == "no error";
    for (const nn::NamedParameter& p : model.named_parameters())
      EXPECT_EQ(p.parameter.is_materialized(), is_loaded) << p.name;
    if (is_loaded) expect_loaded(model);
    return message;
  }
  void expect_loaded(const Decoder& model) const {
    const nn::StateDict got = model.state_dict(), expected = original.state_dict();
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) expect_same_bits(got[i].second, expected[i].second, got[i].first);
  }
  std::vector<Change> all_changes() const {
    std::vector<Change> all = changes(GetParam(), config);
    for (const Change& c : config.experts > 0 ? changes_of_experts() : changes_of_dense()) all.push_back(c);
    return all;
  }

  const tutti::testing::TemporaryFolder folder;
  const DecoderSizes config;
  Decoder original;
};
INSTANTIATE_TEST_SUITE_P(Of, PublishedConfigs,
                         ::testing::Values(Class{"tiny", 4096, 32, 32}, Class{"tiny_moe", 2048, 24, 4}),
                         [](const auto& info) { return std::string(info.param.flavor); });

TEST_P(PublishedConfigs, EveryKeyThatChangesTheMathsIsRefusedWithBothValues) {
  const Json agrees = published_json(config);
  ASSERT_EQ(load(agrees), "no error");
  for (const Change& change : all_changes()) {
    const std::string message = load(changed(agrees, change.json));
    EXPECT_NE(
        message.find("config.json describes another model than qwen3 " + config.flavor + ", which is unchanged:\n"),
        std::string::npos)
        << message;
    EXPECT_NE(message.find("\n  " + change.message + "\n"), std::string::npos)
        << message << "\nexpected: " << change.message;
  }
}

// A key that is read and never changed above would be one without a test.
TEST_P(PublishedConfigs, EveryKeyThatIsReadHasATest) {
  std::set<std::string> tested;
  for (const Change& change : all_changes()) {
    for (const auto& [key, _] : change.json) tested.insert(key);
  }
  const Json agrees = changed(published_json(config), {{"use_sliding_window", "true"}, {"sliding_window", "4"}});
  PublishedConfig published(folder.write("config.json", text_of(agrees)));
  family_named("qwen3").read(published, &original.config());
  for (const std::string& key : published.keys()) EXPECT_TRUE(tested.contains(key)) << key;
  EXPECT_GT(published.keys().size(), 18u);
}

TEST_P(PublishedConfigs, EveryDifferenceIsToldAtOnce) {
  const std::string message = load(
      changed(published_json(config), {{"rms_norm_eps", "1e-5"}, {"rope_theta", "5e5"}, {"hidden_act", "\"relu\""}}));
  for (const char* line :
       {"\n  rms_norm_eps: 1e-05, the model has 1e-06\n", "\n  rope_theta: 500000, the model has 1000000\n",
        "\n  hidden_act: \"relu\", the model has \"silu\"\n"})
    EXPECT_NE(message.find(line), std::string::npos) << message;
  EXPECT_NE(message.find("load the weights into a flavor that computes what the file says (model.flavor)"),
            std::string::npos)
      << message;
}

// Other spellings of the same model, and keys that change nothing.
TEST_P(PublishedConfigs, EveryOtherSpellingOfTheSameModelLoads) {
  const Json agrees = published_json(config);
  std::vector<Json> spellings = {
      {{"rope_theta", ""},
       {"rope_scaling", ""},
       {"rope_parameters", "{\"rope_type\": \"default\", \"rope_theta\": 1000000.0}"}},
      {{"rope_theta", ""},
       {"rope_scaling", ""},
       {"rope_parameters", "{\"full_attention\": {\"rope_type\": \"default\", \"rope_theta\": 1e6}}"}},
      {{"rope_parameters", "{\"rope_theta\": 1e6, \"partial_rotary_factor\": 1.0}"}},
      {{"rope_scaling", "{\"type\": \"default\"}"}},
      {{"rope_scaling", "{}"}},
      {{"rms_norm_eps", ""}},
      {{"rms_norm_eps", "0.000001"}},
      {{"hidden_act", "\"swish\""}},
      {{"hidden_act", ""}},
      {{"attention_bias", ""},
       {"attention_dropout", ""},
       {"use_sliding_window", ""},
       {"sliding_window", ""},
       {"max_window_layers", ""}},
      {{"attention_dropout", "0"}},
      {{"use_sliding_window", "false"}, {"sliding_window", "4"}, {"max_window_layers", "0"}},
      {{"use_sliding_window", "true"}, {"sliding_window", "null"}, {"max_window_layers", "0"}},
      {{"layer_types", "[\"full_attention\", \"full_attention\"]"}},
      {{"torch_dtype", ""}, {"dtype", "\"float32\""}},
      {{"eos_token_id", "151645"}},
      {{"initializer_range", "7"}, {"max_position_embeddings", "1"}, {"pretraining_tp", "2"}},
      {{"quantization_config", "null"}},
      {{"model_type", ""}},
      {{"architectures", ""}},
      {{"architectures", "null"}},
  };
  if (config.experts == 0)
    spellings.push_back({{"use_sliding_window", "true"}, {"sliding_window", "4"}, {"max_window_layers", "2"}});
  if (config.experts == 0) spellings.push_back({{"num_experts", "7"}, {"norm_topk_prob", "false"}});
  if (config.experts > 0)
    spellings.push_back({{"intermediate_size", "1"}, {"decoder_sparse_step", ""}, {"mlp_only_layers", "null"}});
  if (config.experts > 0) spellings.push_back({{"num_experts", ""}, {"num_local_experts", "6"}});
  if (config.experts > 0) spellings.push_back({{"head_dim", ""}});
  for (const Json& spelling : spellings) EXPECT_EQ(load(changed(agrees, spelling)), "no error") << text_of(spelling);
  // Files of models with several parts nest the keys; what they do not nest stands at the top.
  Json nested = agrees, top = {{"architectures", nested["architectures"]},
                               {"model_type", "\"several\""},
                               {"hidden_size", "7"},
                               {"tie_word_embeddings", "true"}};
  nested.erase("architectures"), nested.erase("tie_word_embeddings");
  top["text_config"] = text_of(nested);
  EXPECT_EQ(load(top), "no error");
  nested["rope_theta"] = "3", top["text_config"] = text_of(nested);
  EXPECT_NE(load(top).find("rope_theta: 3, the model has 1000000"), std::string::npos);
}

TEST_P(PublishedConfigs, WhatIsNoConfigurationIsRefused) {
  const Json agrees = published_json(config);
  for (const auto& [text, message] : std::map<std::string, std::string>{
           {"", "config.json"},
           {"[]", "config.json"},
           {text_of(changed(agrees, {{"text_config", "3"}})), "text_config: is 3, expected an object"},
           {text_of(changed(agrees, {{"rope_theta", "\"1e6\""}})), "rope_theta: is \"1e6\", expected a number"},
           {text_of(changed(agrees, {{"hidden_size", "32.5"}})), "hidden_size: is 32.5, expected a whole number"},
           {text_of(changed(agrees, {{"hidden_act", "3"}})), "hidden_act: is 3, expected a string"},
           {text_of(changed(agrees, {{"rope_scaling", "\"linear\""}})),
            "rope_scaling: is \"linear\", expected an object"},
           {text_of(changed(agrees, {{"num_attention_heads", "0"}, {"head_dim", "null"}})),
            "num_attention_heads: 0, the model has 2"},
           {text_of(changed(agrees, {{"attention_bias", "1"}})), "attention_bias: is 1, expected true or false"}}) {
    const std::string told = load_text(text);
    EXPECT_NE(told.find(message), std::string::npos) << told << "\nexpected: " << message;
  }
}

// The file, its folder, the index of several files and its folder; config.json is beside each, or nowhere, which is
// told.
TEST_P(PublishedConfigs, AreReadBesideAFileAnIndexAndInAFolder) {
  const tutti::testing::TemporaryFolder divided;
  write_safetensors_shards(divided / "model.safetensors", nn::published(original.state_dict()), {{"format", "pt"}}, 3);
  const std::pair<std::string, std::string> places[] = {{folder.path(), folder.path()},
                                                        {folder / "model.safetensors", folder.path()},
                                                        {divided.path(), divided.path()},
                                                        {divided / "model.safetensors.index.json", divided.path()},
                                                        {divided / "model.safetensors", divided.path()}};
  for (const auto& [path, home] : places) {
    const std::string file = home + "/config.json";
    std::filesystem::remove(file);
    Decoder model(qwen3(config), 8), with(qwen3(config), 8), without(qwen3(config), 8);
    EXPECT_FALSE(load_published(without, path)) << path;
    expect_loaded(without);
    std::ofstream(file) << text_of(published_json(config));
    EXPECT_TRUE(load_published(with, path)) << path;
    expect_loaded(with);
    std::ofstream(file) << text_of(changed(published_json(config), {{"rope_theta", "3"}}));
    EXPECT_NE(message_of([&] { load_published(model, path); }).find("rope_theta: 3"), std::string::npos) << path;
  }
}

// Published files of tied models often hold the head once more, and older ones the frequencies of the angles.
TEST_P(PublishedConfigs, ATiedHeadInTheFileMustBeTheEmbedding) {
  const std::string file = folder / "model.safetensors", head = "lm_head.weight",
                    embedding = "model.embed_tokens.weight";
  folder.write("config.json", text_of(published_json(config)));
  const auto load_with = [&](const std::vector<std::pair<std::string, Tensor>>& more, std::string_view without = "") {
    nn::StateDict state = nn::published(original.state_dict());
    std::erase_if(state, [&](const auto& entry) { return entry.first == without; });
    state.insert(state.end(), more.begin(), more.end());
    std::filesystem::remove(file);
    write_safetensors(file, state);
    Decoder model(qwen3(config), 8);
    const std::string message = message_of([&] { load_published(model, folder.path()); });
    if (message == "no error") expect_loaded(model);
    else
      for (const nn::NamedParameter& p : model.named_parameters())
        EXPECT_FALSE(p.parameter.is_materialized()) << p.name;
    return message;
  };
  Tensor tied;
  for (const auto& [name, value] : original.state_dict()) {
    if (name == embedding) tied = clone(value);
  }
  EXPECT_EQ(load_with({{head, tied}}), "no error");
  EXPECT_EQ(load_with({{head, tied}}, embedding), "no error");
  EXPECT_EQ(load_with({{"model.rotary_emb.inv_freq", Tensor::of<float>({1, 2})},
                       {"model.layers.1.self_attn.rotary_emb.inv_freq", Tensor::of<float>({3})}}),
            "no error");
  Tensor other = clone(tied);
  other.data<float>()[other.numel() - 1] += 1;
  EXPECT_NE(load_with({{head, other}})
                .find("lm_head.weight: the source holds other values than for model.embed_tokens.weight, and the "
                      "module has one tensor for both"),
            std::string::npos);
  EXPECT_NE(load_with({{head, cast(tied, DType::bf16)}}).find("lm_head.weight: the source holds other values"),
            std::string::npos);
  EXPECT_NE(load_with({{head, Tensor::of<float>({1})}})
                .find("lm_head.weight: the source holds [1] f32, the module needs [320, 32] of floats"),
            std::string::npos);
  EXPECT_NE(load_with({{head, Tensor::of<float>({1})}}, embedding).find("lm_head.weight: the source holds [1] f32"),
            std::string::npos);
  EXPECT_NE(load_with({{"lm_head.bias", tied}}).find("unexpected: lm_head.bias"), std::string::npos);
  EXPECT_NE(load_with({}, embedding).find("missing: model.embed_tokens.weight"), std::string::npos);
}

}  // namespace
}  // namespace tutti::models
