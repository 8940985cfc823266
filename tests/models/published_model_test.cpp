// A folder of Hugging Face's and a GGUF file of one model are the same model.
#include "tutti/models/published_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "tests/models/support/family_cases.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "tutti/io/gguf_writer.h"
#include "tutti/models/decoder.h"
#include "tutti/models/gguf_names.h"
#include "tutti/nn/published_experts.h"
#include "tutti/ops.h"

namespace tutti::models {
namespace {

namespace fs = std::filesystem;

class GgufModels : public ::testing::TestWithParam<std::string> {
 protected:
  fs::path folder() const { return families_folder() / GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(, GgufModels, ::testing::ValuesIn(family_cases("model.gguf")), name_of_case);

// llama.cpp's converter wrote them, from the weights in bf16 to f32.
TEST_P(GgufModels, HoldTheTensorsOfTheFolder) {
  const PublishedModel gguf(folder() / "model.gguf"), hf(folder());
  EXPECT_EQ(gguf.config().dim, hf.config().dim);
  EXPECT_EQ(gguf.config().vocab, hf.config().vocab);
  EXPECT_EQ(gguf.config().tied_embeddings, hf.config().tied_embeddings);
  EXPECT_NEAR(gguf.config().norm_eps, hf.config().norm_eps, 1e-12);
  ASSERT_EQ(gguf.config().layers.size(), hf.config().layers.size());
  Decoder a(gguf.config(), 8), b(hf.config(), 8);
  gguf.load(a), hf.load(b);
  const nn::StateDict got = a.state_dict(), expected = b.state_dict();
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].first, expected[i].first);
    EXPECT_EQ(difference(got[i].second, expected[i].second), 0) << got[i].first;
  }
}

TEST_P(GgufModels, HaveTheLogitsOfTheFormulas) {
  const SafetensorsFile expected((folder() / "expected.safetensors").string());
  const PublishedModel gguf(folder() / "model.gguf");
  Decoder model(gguf.config(), kFamilyPositions);
  gguf.load(model);
  // Files hold the divisors of angles in f32, which turns an angle of 9,000 by 0.0005.
  const double most = expected.contains("positions") ? 5e-4 : 2e-5;
  EXPECT_LT(difference(model.forward(batch_in(expected)), expected.tensor("logits_float64")), most);
}

// Nothing is copied where a file holds numbers in the dtype of use.
TEST_P(GgufModels, AreUsedWhereTheyLieWhenTheyAreFrozen) {
  const SafetensorsFile expected((folder() / "expected.safetensors").string());
  const TokenBatch batch = batch_in(expected);
  const PublishedModel published(folder());
  Decoder frozen(published.config(), kFamilyPositions), trained(published.config(), kFamilyPositions);
  frozen.to(DType::bf16), trained.to(DType::bf16);
  published.load(frozen, {.freeze = true}), published.load(trained);
  for (const nn::NamedParameter& p : frozen.named_parameters()) {
    EXPECT_FALSE(p.parameter.requires_grad()) << p.name;
    if (p.name.find("experts") != std::string::npos) continue;  // which files hold one by one
    EXPECT_TRUE(p.parameter.master().storage()->is_read_only()) << p.name;
    EXPECT_EQ(p.parameter.dtype(), DType::bf16) << p.name;
  }
  EXPECT_EQ(difference(frozen.forward(batch), trained.forward(batch)), 0);
}

TEST(GgufNames, AreThoseOfThisLibraryAndBack) {
  for (const auto& [gguf, name] : std::initializer_list<std::pair<std::string, std::string>>{
           {"token_embd.weight", "model.embed_tokens.weight"},
           {"output.weight", "lm_head.weight"},
           {"blk.11.attn_q.bias", "model.layers.11.self_attn.q_proj.bias"},
           {"blk.0.ffn_down_exps.weight", "model.layers.0.mlp.experts.w2"},
           {"blk.3.ffn_gate_inp.weight", "model.layers.3.mlp.gate.weight"}}) {
    EXPECT_EQ(name_of_gguf(gguf), name);
    EXPECT_EQ(gguf_name_of(name), gguf);
  }
  // Experts beside a dense feed-forward have names of their own.
  for (const auto& [gguf, name] : std::initializer_list<std::pair<std::string, std::string>>{
           {"per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight"},
           {"blk.2.layer_output_scale.weight", "model.layers.2.layer_scalar"},
           {"blk.2.inp_gate.weight", "model.layers.2.per_layer_input_gate.weight"},
           {"blk.2.proj.weight", "model.layers.2.per_layer_projection.weight"},
           {"blk.2.ffn_gate_inp.weight", "model.layers.2.moe.gate.weight"},
           {"blk.2.ffn_gate_inp.scale", "model.layers.2.moe.gate.scale"},
           {"blk.2.ffn_down_exps.scale", "model.layers.2.moe.gate.per_expert_scale"},
           {"blk.2.ffn_down_exps.weight", "model.layers.2.moe.experts.w2"},
           {"blk.2.post_ffw_norm_1.weight", "model.layers.2.post_feedforward_layernorm_1.weight"}}) {
    EXPECT_EQ(name_of_gguf(gguf, true, true), name);
    EXPECT_EQ(gguf_name_of(name, true), gguf);
  }
  for (const char* unknown :
       {"", "blk.", "blk.x.attn_q.weight", "blk.-1.attn_q.weight", "blk.1attn_q.weight", "blk.1.", "blk.1.attn_q",
        "blk.00.attn_q.weight", "blk.1.attn_q.scale", "blk.1.attn_z.weight", "blk.99999999999999999999.attn_q.weight"})
    EXPECT_EQ(name_of_gguf(unknown), std::nullopt) << unknown;
}

// A small file whose keys a test changes.
class ChangedGguf {
 public:
  explicit ChangedGguf(const std::string& from) : file_((families_folder() / from / "model.gguf").string()) {}
  std::string message(const std::string& key, std::optional<MetadataValue> value,
                      const std::string& without = "") const {
    ModelMetadata metadata;
    for (const auto& [name, old] : file_.metadata().entries()) {
      if (name != key) metadata.set(name, old);
      else if (value) metadata.set(name, *value);
    }
    if (value && !file_.metadata().contains(key)) metadata.set(key, *value);
    std::vector<ModelTensor> entries;
    for (const ModelTensor& entry : file_.entries())
      if (entry.name != without) entries.push_back(entry);
    const std::string path = folder_ / "changed.gguf";
    const auto writer = create_model_file(path, "gguf", entries, metadata);
    for (const ModelTensor& entry : writer->entries()) writer->write_bytes(entry.name, file_.entry(entry.name).bytes);
    writer->commit();
    return message_of([&] {
      const PublishedModel published(path);
      Decoder model(published.config(), 8);
      published.load(model);
    });
  }

 private:
  const ModelFile file_;
  const tutti::testing::TemporaryFolder folder_;
};

TEST(GgufDecoder, RefusesWhatIsNotComputedHere) {
  const ChangedGguf llama("llama-llama3"), mixture("qwen3_moe");
  const auto expect = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message << "\nexpected: " << part;
  };
  EXPECT_EQ(llama.message("general.name", "any"), "no error");
  expect(llama.message("general.architecture", "gpt-j"),
         "general.architecture is \"gpt-j\"; expected one of: gemma2, ");
  expect(llama.message("llama.block_count", {}), "llama.block_count");
  expect(llama.message("llama.block_count", uint32_t{1'000'000}), "llama.block_count is 1000000, and the file has");
  expect(llama.message("llama.embedding_length", "long"), "llama.embedding_length");
  expect(llama.message("llama.rope.scaling.type", "longrope"), "expected none, linear or yarn");
  expect(llama.message("llama.attention.sliding_window", uint32_t{4}), "llama.attention.sliding_window");
  expect(llama.message("llama.rope.dimension_count", uint32_t{4}), "llama.rope.dimension_count");
  const ChangedGguf gemma("gemma3");
  expect(gemma.message("gemma3.attention.sliding_window_pattern", std::vector<bool>{true, false}),
         "has 2 elements; expected 7, one for each layer");
  expect(gemma.message("gemma3.attention.sliding_window_pattern", uint32_t{0}), "sliding_window_pattern");
  // All layers slide, or other ones, where the file says so; the tensors are the same.
  EXPECT_EQ(gemma.message("gemma3.attention.sliding_window_pattern", std::vector<bool>(7, true)), "no error");
  EXPECT_EQ(gemma.message("gemma3.attention.sliding_window_pattern", uint32_t{3}), "no error");
  expect(gemma.message("gemma3.final_logit_softcapping", -1.0F), "logits capped at -1; expected a number other than 0");
  const ChangedGguf gemma4("gemma4"), beside("gemma4-experts");
  EXPECT_EQ(gemma4.message("general.name", "any"), "no error");
  EXPECT_EQ(beside.message("general.name", "any"), "no error");
  expect(gemma4.message("gemma4.feed_forward_length", std::vector<int32_t>{9, 9}),
         "'gemma4.feed_forward_length' has 2 elements; expected 6, one for each layer");
  expect(beside.message("gemma4.attention.head_count_kv", std::vector<int32_t>{3, 3, 0}), "head_count_kv");
  expect(gemma4.message("gemma4.attention.shared_kv_layers", uint32_t{6}),
         "shared_kv_layers' is 6; expected less than the 6 layers");
  expect(gemma4.message("gemma4.attention.shared_kv_layers", uint32_t{5}),
         "shared_kv_layers' is 5, and layer 1 has no layer of its kind before them");
  expect(gemma4.message("gemma4.attention.key_length_swa", {}), "gemma4.attention.key_length_swa");
  expect(gemma4.message("gemma4.rope.dimension_count_swa", uint32_t{4}), "'gemma4.rope.dimension_count_swa' is");
  expect(gemma4.message("gemma4.attention.value_length_swa", uint32_t{4}), "'gemma4.attention.value_length_swa' is");
  // Without layer_output_scale nothing is multiplied: other layers lack it.
  expect(gemma4.message("general.name", "any", "blk.2.attn_k.weight"), "missing: model.layers.2.self_attn.k_proj");
  expect(gemma4.message("general.name", "any", "blk.3.layer_output_scale.weight"),
         "missing: model.layers.3.layer_scalar");
  // Values are keys in layers that see all keys alone, and in all of them; elsewhere the tensor is missing.
  for (const char* layer : {"0", "1", "2", "3"})
    expect(gemma4.message("", {}, fmt::format("blk.{}.attn_v.weight", layer)),
           fmt::format("missing: model.layers.{}.self_attn.v_proj.weight", layer));
  expect(beside.message("", {}, "blk.1.attn_v.weight"), "missing: model.layers.1.self_attn.v_proj.weight");
  expect(gemma4.message("", {}, "rope_freqs.weight"),
         "changed.gguf: the tensor rope_freqs.weight is missing, by which the rotary frequencies of layer 1 are "
         "divided, as it sees all keys; convert the model again");
  // No layer is divided by it where all slide.
  EXPECT_EQ(gemma4.message("gemma4.attention.sliding_window_pattern", std::vector<bool>(6, true), "rope_freqs.weight")
                .find("rope_freqs"),
            std::string::npos);
  for (const char* key : {"gemma4.rope.freq_base", "gemma4.rope.freq_base_swa"})
    expect(gemma4.message(key, 0.0F), fmt::format("'{}' is 0; expected a positive number", key));
  expect(gemma.message("gemma3.rope.freq_base_swa", -1.0F), "'gemma3.rope.freq_base_swa' is -1; expected a positive");
  expect(beside.message("gemma4.expert_used_count", uint32_t{6}), "layer 0: 6 of 5 experts for each token");
  expect(ChangedGguf("gemma2").message("gemma2.attn_logit_softcapping", -1.0F), "layer 0: scores times");
  expect(ChangedGguf("qwen2").message("qwen2.expert_count", uint32_t{4}),
         "mixtures of experts of the architecture qwen2");
  expect(llama.message("llama.attention.head_count", uint32_t{5}), "5 query heads cannot share");
  expect(mixture.message("qwen3moe.expert_used_count", uint32_t{99}), "experts for each token");
  expect(llama.message("llama.attention.causal", false), "llama.attention.causal");
  expect(llama.message("llama.attention.layer_norm_rms_epsilon", std::nanf("")), "an epsilon of norms of nan");
  expect(llama.message("llama.feed_forward_length", uint32_t{1} << 30), "1073741824 hidden features");
  expect(llama.message("", {}, "blk.0.attn_k.weight"), "missing: model.layers.0.self_attn.k_proj.weight");
  expect(llama.message("", {}, "blk.0.ffn_norm.weight"), "missing: model.layers.0.post_attention_layernorm.weight");
}

TEST(PublishedModels, NeedADescription) {
  const tutti::testing::TemporaryFolder folder;
  fs::copy_file(families_folder() / "llama" / "model.safetensors", folder / "model.safetensors");
  EXPECT_NE(message_of([&] { PublishedModel published(folder.path()); }).find("has no config.json beside its weights"),
            std::string::npos);
  for (const auto& [text, message] : std::initializer_list<std::pair<std::string, std::string>>{
           {R"({"model_type": "mamba"})",
            "model_type: \"mamba\"; expected one of: gemma2, gemma3_text, gemma4_text, llama, "},
           {R"({})", "model_type: not given, nor are architectures"},
           {R"({"model_type": "llama", "hidden_act": "gelu", "rope_scaling": {"type": "dynamic"}})",
            "rope_scaling.type"},
           {R"({"model_type": "llama", "hidden_act": "gelu"})", "hidden_act: \"gelu\", expected \"silu\""},
           {R"({"model_type": "llama", "rope_scaling": {"type": "longrope"}})",
            "rope_scaling.type: \"longrope\", expected \"default\", \"linear\", \"llama3\", \"yarn\" or "
            "\"proportional\""},
           {R"({"model_type": "llama", "quantization_config": {"quant_method": "gptq"}})", "quant_method = \"gptq\""},
           {R"({"model_type": "llama", "num_hidden_layers": 9000000000})", "num_hidden_layers: 9000000000"},
           {R"({"model_type": "llama", "num_hidden_layers": 0})", "num_hidden_layers: 0"},
           {R"({"model_type": "llama", "num_hidden_layers": 99999})",
            "config.json describes 99999 layers, and the file has"},
           {R"({"model_type": "llama", "rms_norm_eps": -1})", "an epsilon of norms of -1"},
           {R"({"model_type": "llama", "intermediate_size": 9000000000})", "9000000000 hidden features"},
           {R"({"model_type": "llama", "hidden_size": -64})", "model dim -64, vocabulary 32000"}}) {
    folder.write("config.json", text);
    const std::string told = message_of([&] { PublishedModel published(folder.path()); });
    EXPECT_NE(told.find("config.json"), std::string::npos) << told;
    EXPECT_NE(told.find(message), std::string::npos) << told << "\nexpected: " << message;
  }
}

}  // namespace
}  // namespace tutti::models
