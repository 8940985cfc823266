// Gemma 4: mistakes that its formulas invite, its files, and what its description must fit.
#include "tutti/models/published_gemma4.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <set>

#include "tests/models/support/family_cases.h"
#include "tests/models/support/first_weights.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "tutti/io/model_file.h"
#include "tutti/models/decoder.h"
#include "tutti/models/decoder_plan.h"
#include "tutti/models/family.h"
#include "tutti/models/published_config.h"
#include "tutti/models/published_folder.h"
#include "tutti/models/published_gguf.h"
#include "tutti/models/published_model.h"

namespace tutti::models {
namespace {

using ::tutti::testing::TemporaryFolder;

const std::vector<std::string> kFolders{"gemma4", "gemma4-keys", "gemma4-experts"};

Tensor logits_of(const std::filesystem::path& path, const TokenBatch& batch) {
  const PublishedModel published(path);
  Decoder model(published.config(), kFamilyPositions);
  published.load(model);
  return model.forward(batch);
}

// gemma4_float64.py makes each mistake in the same model; the logits of the right formulas are nearer than 2e-5.
TEST(Gemma4, IsFarFromEveryMistakeInItsFormulas) {
  std::set<std::string> faults;
  for (const std::string& folder : kFolders) {
    const SafetensorsFile expected((families_folder() / folder / "expected.safetensors").string());
    const Tensor logits = logits_of(families_folder() / folder, batch_in(expected));
    EXPECT_LT(difference(logits, expected.tensor("logits_float64")), 2e-5) << folder;
    for (const auto& entry : expected.entries()) {
      if (!entry.name.starts_with("fault.")) continue;
      EXPECT_GT(difference(logits, expected.tensor(entry.name)), 1e-2) << folder << " " << entry.name;
      faults.insert(entry.name.substr(6));
    }
  }
  for (const char* fault :
       {"no_layer_scalar", "one_plus_weight", "scale_by_head_dim", "no_value_norm", "values_of_normed_keys",
        "first_layer_shared", "rope_of_whole_head", "rope_of_part", "no_per_expert_scale", "no_root_half"})
    EXPECT_TRUE(faults.contains(fault)) << fault;
  EXPECT_GE(faults.size(), 19u);
}

DecoderConfig read_text(const std::string& text) {
  PublishedConfig file("config.json", text);
  return read_published_config(file);
}
DecoderConfig with_keys(const std::string& keys) {
  return read_text(R"({"model_type": "gemma4_text", "num_hidden_layers": 12)" + (keys.empty() ? "" : ", " + keys) +
                   "}");
}
std::string refusal(const std::string& keys) {
  const std::string message = message_of([&] { with_keys(keys); });
  return message.substr(message.find("\n") + 1);
}

TEST(Gemma4Files, HaveTheDefaultsOfTheirClass) {
  const DecoderConfig config = with_keys("");
  EXPECT_TRUE(config.tied_embeddings && config.layer_scalars && !config.zero_centered_norms);
  EXPECT_EQ(config.embedding_scale, 48);
  EXPECT_EQ(config.logits_cap, 0);
  EXPECT_EQ(config.per_layer_inputs, 256);
  for (size_t i = 0; i < 12; ++i) {
    const AttentionConfig& a = config.layers[i].attention;
    const bool is_full = i == 5 || i == 11;
    EXPECT_EQ(a.window, is_full ? 0 : 512) << i;
    EXPECT_EQ(a.head_dim, is_full ? 512 : 256) << i;
    EXPECT_EQ(a.rope, is_full ? gemma4_full_rope() : gemma4_sliding_rope()) << i;
    EXPECT_TRUE(a.query_key_norms && a.value_norms && a.scale == 1 && a.kv_heads == 4 && !a.keys_are_values);
    EXPECT_EQ(a.shared_layer, std::nullopt);
  }
  // The last layer sees all keys.
  EXPECT_EQ(read_text(R"({"model_type": "gemma4_text", "num_hidden_layers": 4})").layers[3].attention.window, 0);
  const std::string nested = R"({"model_type": "gemma4", "architectures": ["Gemma4ForConditionalGeneration"],
    "text_config": {"model_type": "gemma4_text", "num_hidden_layers": 12}, "vision_config": {}})";
  EXPECT_EQ(read_text(nested).layers, config.layers);
}

TEST(Gemma4Files, NameTheHeadsOfLayersInEitherSpelling) {
  const DecoderConfig global = with_keys(
      R"("attention_k_eq_v": true, "global_head_dim": 64, "num_global_key_value_heads": 2, "final_logit_softcapping": 30)");
  const DecoderConfig by_layer = with_keys(
      R"("attention_k_eq_v": true, "final_logit_softcapping": 30.0, "per_layer_config": {
        "5": {"head_dim": 64, "num_key_value_heads": 2}, "11": {"head_dim": 64, "num_key_value_heads": 2}})");
  EXPECT_EQ(global.layers, by_layer.layers);
  EXPECT_EQ(global.layers[5].attention.kv_heads, 2);
  EXPECT_TRUE(global.layers[5].attention.keys_are_values && !global.layers[4].attention.keys_are_values);
  // Without keys that are values the number of heads is that of all layers.
  EXPECT_EQ(with_keys(R"("num_global_key_value_heads": 2)").layers[5].attention.kv_heads, 4);
}

TEST(Gemma4Files, ShareKeysOfTheLastLayerOfTheKind) {
  const DecoderConfig config = with_keys(R"("num_kv_shared_layers": 5, "use_double_wide_mlp": true)");
  for (size_t i = 0; i < 12; ++i) {
    const LayerConfig& layer = config.layers[i];
    EXPECT_EQ(layer.attention.shared_layer, i < 7 ? std::nullopt : std::optional<int64_t>(i == 11 ? 5 : 6)) << i;
    EXPECT_EQ(layer.feed_forward.hidden_dim, i < 7 ? 9216 : 18432) << i;
  }
}

TEST(Gemma4Files, AreRefusedWhereTheyAskForSomethingElse) {
  EXPECT_EQ(refusal(R"("num_kv_shared_layers": 7)"),
            "  num_kv_shared_layers: 7, expected fewer: layer 5 has no layer of its kind before them");
  EXPECT_EQ(refusal(R"("num_kv_shared_layers": 12)"), "  num_kv_shared_layers: 12, expected 0 to 11 of 12 layers");
  EXPECT_EQ(refusal(R"("sliding_window": 0)"), "  sliding_window: 0, expected a number of keys");
  EXPECT_EQ(refusal(R"("enable_moe_block": true, "num_experts": 8, "top_k_experts": 2)"),
            "  moe_intermediate_size: not given, expected a number, as enable_moe_block is true");
  EXPECT_EQ(refusal(R"("vocab_size_per_layer_input": 5)"), "  vocab_size_per_layer_input: 5, expected 262144");
  EXPECT_EQ(refusal(R"("use_bidirectional_attention": "all")"),
            "  use_bidirectional_attention: \"all\", expected null or \"vision\"");
  EXPECT_EQ(with_keys(R"("use_bidirectional_attention": "vision")").layers, with_keys("").layers);
  EXPECT_EQ(refusal(R"("hidden_activation": "silu")"), "  hidden_activation: \"silu\", expected \"gelu_pytorch_tanh\"");
  EXPECT_EQ(refusal(R"("per_layer_config": {"12": {"head_dim": 8}})"),
            "  per_layer_config.12: an object, expected one of 12 layers");
  EXPECT_EQ(refusal(R"("per_layer_config": {"3": {"sliding_window": 8}})"),
            "  per_layer_config.3.sliding_window: 8, expected head_dim and num_key_value_heads alone");
  EXPECT_EQ(refusal(R"("rope_scaling": {"rope_type": "linear", "factor": 8})"),
            "  rope_scaling: an object, expected null, as rope_parameters has the angles");
}

std::string with_angles(const std::string& full, const std::string& more) {
  return R"("rope_parameters": {"full_attention": )" + full + more + "}";
}
const std::string kFullAngles = R"({"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6})",
                  kSlidingAngles = R"(, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4})";

TEST(Gemma4Files, NameTheAnglesOfBothKindsOfLayers) {
  EXPECT_EQ(with_keys(with_angles(kFullAngles, kSlidingAngles)).layers, with_keys("").layers);
  EXPECT_EQ(with_keys(R"("rope_parameters": null)").layers, with_keys("").layers);
  EXPECT_EQ(refusal(with_angles(kFullAngles, "")),
            "  rope_parameters.sliding_attention: not given, expected an object, as rope_parameters is given");
  EXPECT_EQ(refusal(R"("rope_parameters": {"sliding_attention": {}, "full_attentoin": {}})"),
            "  rope_parameters.full_attention: not given, expected an object, as rope_parameters is given\n"
            "  rope_parameters.full_attentoin: an object, expected full_attention and sliding_attention alone");
  EXPECT_EQ(refusal(with_angles(kFullAngles, kSlidingAngles + R"(, "rope_theta": 5)")),
            "  rope_parameters.rope_theta: 5, expected full_attention and sliding_attention alone");
  const std::string of_all = refusal(R"("rope_parameters": {"rope_type": "default", "rope_theta": 5})");
  for (const char* line :
       {"  rope_parameters.full_attention: not given", "  rope_parameters.sliding_attention: not given",
        "  rope_parameters.rope_type: \"default\", expected full_attention and sliding_attention alone",
        "  rope_parameters.rope_theta: 5, expected full_attention and sliding_attention alone"})
    EXPECT_NE(of_all.find(line), std::string::npos) << of_all;
  EXPECT_NE(message_of([] { with_keys(R"("rope_parameters": 3)"); }).find("rope_parameters: is 3, expected an object"),
            std::string::npos);
}

TEST(Gemma4Files, AreRefusedByTheNamesOfNumbersWithoutAngles) {
  const auto of_full = [](const char* numbers) {
    return with_angles(fmt::format(R"({{"rope_type": "proportional", {}}})", numbers), kSlidingAngles);
  };
  const std::string full = "  rope_parameters.full_attention.";
  EXPECT_EQ(refusal(of_full(R"("partial_rotary_factor": 2)")),
            full + "partial_rotary_factor: 2, expected a number from 0 to 1");
  EXPECT_EQ(refusal(of_full(R"("partial_rotary_factor": -0.5)")),
            full + "partial_rotary_factor: -0.5, expected a number from 0 to 1");
  EXPECT_EQ(refusal(of_full(R"("factor": 0)")), full + "factor: 0, expected a positive number");
  EXPECT_EQ(refusal(of_full(R"("rope_theta": 0)")), full + "rope_theta: 0, expected a positive number");
  EXPECT_EQ(refusal(with_angles(kFullAngles, R"(, "sliding_attention": {"rope_theta": -1})")),
            "  rope_parameters.sliding_attention.rope_theta: -1, expected a positive number");
  // They are named as well where a model is there to compare with.
  const Decoder model(flavor_named("gemma4", "tiny"), 8);
  std::string text = published_config_json(model.config(), DType::f32);
  const std::string part = "\"partial_rotary_factor\": 0.25";
  ASSERT_NE(text.find(part), std::string::npos);
  PublishedConfig file("config.json", text.replace(text.find(part), part.size(), "\"partial_rotary_factor\": 2"));
  family_named("gemma4").read(file, &model.config());
  const std::string message = message_of([&] { file.check("gemma4 tiny"); });
  EXPECT_NE(message.find(full + "partial_rotary_factor: 2, the model has a number from 0 to 1"), std::string::npos)
      << message;
}

// A head of which no pair turns is a head all the same.
TEST(Gemma4Files, MayTurnNoPairOfAHead) {
  const TemporaryFolder work;
  DecoderConfig config = flavor_named("gemma4", "tiny");
  for (LayerConfig& layer : config.layers) {
    if (layer.attention.window == 0) layer.attention.rope.rotary_factor = 0;
  }
  write_first_weights(config, DType::f32, work / "model");
  write_published_gguf(PublishedModel(work / "model"), work / "model.gguf");
  const ModelFile gguf(work / "model.gguf");
  const Tensor divisors = gguf.tensor("rope_freqs.weight");
  ASSERT_EQ(divisors.numel(), 16);
  for (int64_t i = 0; i < 16; ++i) EXPECT_EQ(divisors.data<float>()[i], 1e30F);
  write_published_folder(PublishedModel(work / "model.gguf"), work / "back");
  EXPECT_TRUE(PublishedModel(work / "back").config().layers == PublishedModel(work / "model").config().layers);
  EXPECT_EQ(PublishedModel(work / "back").config().layers[1].attention.rope.rotary_factor, 0);
}

TEST(Gemma4Parts, AreCheckedByTheDescription) {
  const auto refused = [](const std::function<void(DecoderConfig&)>& change) {
    DecoderConfig config = flavor_named("gemma4", "tiny");
    change(config);
    return message_of([&] { validate(config); });
  };
  EXPECT_EQ(refused([](DecoderConfig& c) { c.layers[3].attention.shared_layer = 3; }),
            "gemma4 tiny, layer 3: keys and values of layer 3; expected an earlier layer");
  EXPECT_EQ(refused([](DecoderConfig& c) { c.layers[3].attention.shared_layer = 2; }),
            "gemma4 tiny, layer 3: keys and values of layer 2, which has none of its own");
  EXPECT_EQ(refused([](DecoderConfig& c) { c.layers[3].attention.shared_layer = 0; }),
            "gemma4 tiny, layer 3: 1 heads of 32 elements and a window of 0 for keys and values of layer 0, which has "
            "1 heads of 16 elements and a window of 24");
  EXPECT_EQ(refused([](DecoderConfig& c) { c.per_layer_inputs = 1 << 24; }),
            "gemma4 tiny: 16777216 features of each layer's input; expected 0 to 4194304 for 4 layers");
  EXPECT_EQ(refused([](DecoderConfig& c) {
              c.layers[1].experts_beside = {.hidden_dim = 4, .experts = 2, .active_experts = 1};
              c.layers[1].output_norms = false;
            }),
            "gemma4 tiny, layer 1: experts beside a feed-forward without norms of outputs; expected a dense "
            "feed-forward with norms of outputs");
}

TEST(Gemma4Parts, BeginWhereKeysAreComputed) {
  Decoder model(flavor_named("gemma4", "tiny"), 8);
  nn::initialize(model);
  const Tensor ids = Tensor::of(std::vector<int32_t>{1, 2, 3}), places = Tensor::of(std::vector<int32_t>{0, 1, 2}),
               first = Tensor::of(std::vector<int32_t>{0, 0, 0});
  const TokenBatch batch{ids, places, first, 1};
  EXPECT_EQ(message_of([&] { model.blocks(model.embed(batch), batch, 2, 4); }),
            "blocks 2 to 4 of gemma4 tiny: block 2 reads the keys and values of block 0; expected a span that begins "
            "at it or before");
}

// Files of some models hold what layers with shared keys do not compute.
TEST(Gemma4Files, MayHoldProjectionsThatLayersDoNotHave) {
  const TemporaryFolder work;
  const DecoderConfig config = flavor_named("gemma4", "tiny");
  write_first_weights(config, DType::f32, work / "model");
  nn::StateDict state;
  const ModelFile file(work / "model/model.safetensors");
  for (const ModelTensor& entry : file.entries()) state.emplace_back(entry.name, file.tensor(entry.name));
  state.emplace_back("model.layers.3.self_attn.k_proj.weight", Tensor::of(std::vector<float>{1, 2, 3}));
  state.emplace_back("model.layers.3.self_attn.k_norm.weight", Tensor::of(std::vector<float>{1, 2, 3}));
  std::filesystem::create_directory(work / "more");
  std::filesystem::copy_file(work / "model/config.json", work / "more/config.json");
  write_safetensors(work / "more/model.safetensors", state, {{"format", "pt"}});
  Decoder model(config, 8);
  EXPECT_NO_THROW(PublishedModel(work / "more").load(model));
  EXPECT_NO_THROW(write_published_folder(PublishedModel(work / "more"), work / "copy"));
  state.emplace_back("model.layers.1.self_attn.x_proj.weight", Tensor::of(std::vector<float>{1}));
  write_safetensors(work / "more/model.safetensors", state, {{"format", "pt"}});
  EXPECT_NE(message_of([&] { PublishedModel(work / "more").load(model); }).find("unexpected: model.layers.1"),
            std::string::npos);
}

// Experts are two tensors of a layer, and the scalars of layers are copied with the weights.
TEST(Gemma4Files, AreWrittenAsTheyWereRead) {
  const TemporaryFolder work;
  for (const std::string& folder : kFolders) {
    const ModelFile original(families_folder() / folder);
    write_published_folder(PublishedModel(families_folder() / folder), work / folder);
    const ModelFile written(work / folder);
    ASSERT_EQ(written.entries().size(), original.entries().size()) << folder;
    for (const ModelTensor& entry : original.entries()) {
      ASSERT_TRUE(written.contains(entry.name)) << entry.name;
      EXPECT_EQ(written.entry(entry.name).dtype, entry.dtype) << entry.name;
      EXPECT_EQ(difference(written.tensor(entry.name), original.tensor(entry.name)), 0) << entry.name;
    }
    EXPECT_TRUE(PublishedModel(work / folder).config().layers ==
                PublishedModel(families_folder() / folder).config().layers);
  }
}

TEST(Gemma4Plan, NamesTheHeadsThatBoundIt) {
  const auto refused = [](const char* flavor, int64_t ranks) {
    return message_of([&] { check_tensor_parallel(flavor_named("gemma4", flavor), ranks); });
  };
  EXPECT_NE(refused("31B", 8).find("expected a power of two up to 4, for degrees are bounded by 4 key/value heads (4)"),
            std::string::npos)
      << refused("31B", 8);
  EXPECT_NE(refused("26B-A4B", 4).find("up to 2"), std::string::npos);
  EXPECT_NE(refused("26B-A4B", 4).find("2 key/value heads (2)"), std::string::npos);
  EXPECT_NE(refused("E2B", 2).find("up to 1, for degrees are bounded by 1 key/value head (1)"), std::string::npos);
  EXPECT_EQ(largest_tensor_parallel_degree(flavor_named("gemma4", "E4B")), 2);
  EXPECT_EQ(largest_tensor_parallel_degree(flavor_named("gemma4", "31B")), 4);
}

}  // namespace
}  // namespace tutti::models
