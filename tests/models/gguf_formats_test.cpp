// Which format each tensor of a file has: the choices of llama.cpp.
#include "tutti/models/gguf_formats.h"

#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "tutti/models/decoder_parameters.h"
#include "tutti/models/family.h"
#include "tutti/models/gguf_names.h"

namespace tutti::models {
namespace {

DecoderConfig llama(int64_t layers, int64_t dim = 256, bool tied = true) {
  return decoder_of("llama", {.flavor = "x",
                              .dim = dim,
                              .layers = layers,
                              .heads = 4,
                              .kv_heads = 2,
                              .ffn_dim = 512,
                              .vocab = 300,
                              .tied_embeddings = tied,
                              .head_dim = dim / 4,
                              .rope_theta = 1e4});
}

using Chosen = std::map<std::string, BlockFormat>;
Chosen chosen(const DecoderConfig& config, GgufFormats& formats, DType dtype = DType::bf16) {
  Chosen all;
  for (const DecoderParameter& p : decoder_parameters(config)) {
    const std::string name = gguf_name_of(p.name, config.layers.front().output_norms).value();
    all[name] = formats.choose(name, {.name = p.name, .sizes = p.sizes, .dtype = dtype});
  }
  return all;
}
Chosen chosen(const DecoderConfig& config, FileType type) {
  GgufFormats formats(config, type);
  return chosen(config, formats);
}

// The layers in which the part has the format.
std::vector<int64_t> layers_with(const Chosen& all, const std::string& part, BlockFormat format) {
  std::vector<int64_t> layers;
  for (int64_t i = 0; i < 100; ++i) {
    const auto found = all.find(fmt::format("blk.{}.{}.weight", i, part));
    if (found != all.end() && found->second == format) layers.push_back(i);
  }
  return layers;
}

TEST(GgufFormats, TypesOfOneFormatHaveItButForTheHead) {
  for (const auto& [type, format] : {std::pair(FileType::q4_0, BlockFormat::q4_0),
                                     {FileType::q4_1, BlockFormat::q4_1},
                                     {FileType::q5_0, BlockFormat::q5_0},
                                     {FileType::q5_1, BlockFormat::q5_1},
                                     {FileType::q6_k, BlockFormat::q6_k},
                                     {FileType::q8_0, BlockFormat::q8_0}}) {
    const BlockFormat head = type == FileType::q8_0 ? BlockFormat::q8_0 : BlockFormat::q6_k;
    for (const bool tied : {true, false}) {
      const Chosen all = chosen(llama(9, 256, tied), type);
      for (const auto& [name, found] : all) {
        const bool is_norm = name.find("norm") != std::string::npos;
        const bool is_head = name == (tied ? "token_embd.weight" : "output.weight");
        EXPECT_EQ(name_of(found), name_of(is_norm ? BlockFormat::f32 : is_head ? head : format)) << name;
      }
    }
  }
}

TEST(GgufFormats, SomeLayersHaveMoreBits) {
  const std::vector<int64_t> near_the_ends = {0, 1, 4, 7, 10, 13, 14, 15};
  for (const auto& [type, format] :
       {std::pair(FileType::q4_k_m, BlockFormat::q4_k), {FileType::q5_k_m, BlockFormat::q5_k}}) {
    const Chosen all = chosen(llama(16), type);
    EXPECT_EQ(layers_with(all, "attn_v", BlockFormat::q6_k), near_the_ends);
    EXPECT_EQ(layers_with(all, "ffn_down", BlockFormat::q6_k), near_the_ends);
    EXPECT_EQ(layers_with(all, "attn_v", format).size(), 8);
    EXPECT_EQ(layers_with(all, "ffn_down", format).size(), 8);
    for (const char* part : {"attn_q", "attn_k", "attn_output", "ffn_gate", "ffn_up"})
      EXPECT_EQ(layers_with(all, part, format).size(), 16) << part;
    EXPECT_EQ(all.at("token_embd.weight"), BlockFormat::q6_k);
    // An eighth of few layers is none, and the last is in the last eighth.
    const Chosen few = chosen(llama(2, 256, false), type);
    EXPECT_EQ(layers_with(few, "attn_v", BlockFormat::q6_k), (std::vector<int64_t>{1}));
    EXPECT_EQ(few.at("token_embd.weight"), format);
    EXPECT_EQ(few.at("output.weight"), BlockFormat::q6_k);
  }
}

TEST(GgufFormats, EightyLayersOfSharedValuesHaveMoreBitsThere) {
  const Chosen all = chosen(llama(80), FileType::q4_k_m);
  EXPECT_EQ(layers_with(all, "attn_v", BlockFormat::q4_k).size(), 0);
  EXPECT_EQ(layers_with(all, "attn_v", BlockFormat::q5_k).size() + layers_with(all, "attn_v", BlockFormat::q6_k).size(),
            80);
  EXPECT_GT(layers_with(all, "attn_v", BlockFormat::q5_k).size(), 30);
  EXPECT_EQ(layers_with(chosen(llama(79), FileType::q4_k_m), "attn_v", BlockFormat::q5_k).size(), 0);
}

TEST(GgufFormats, ModelsOfEightExpertsHaveMoreBitsInAttention) {
  for (const int64_t experts : {8, 4}) {
    DecoderConfig config = llama(4);
    config.family = "mixtral";
    for (LayerConfig& layer : config.layers)
      layer.feed_forward = {.hidden_dim = 512, .experts = experts, .active_experts = 2};
    for (const FileType type : {FileType::q4_0, FileType::q4_k_m, FileType::q5_k_m}) {
      const Chosen all = chosen(config, type);
      const size_t expected = experts == 8 ? 4 : 0;
      EXPECT_EQ(layers_with(all, "attn_v", BlockFormat::q8_0).size(), expected);
      EXPECT_EQ(layers_with(all, "attn_k", BlockFormat::q8_0).size(), expected);
      EXPECT_EQ(layers_with(all, "attn_output", BlockFormat::q5_k).size(),
                type == FileType::q5_k_m || (type == FileType::q4_k_m && experts == 8) ? 4 : 0);
      EXPECT_EQ(all.at("blk.2.ffn_gate_inp.weight"), BlockFormat::f32);
      EXPECT_EQ(layers_with(all, "ffn_down_exps", BlockFormat::q6_k),
                type == FileType::q4_0 ? std::vector<int64_t>{} : (std::vector<int64_t>{2, 3}));
    }
  }
}

// Layers that see all keys take them as values: the others are counted.
TEST(GgufFormats, LayersWithoutValuesAreNotCounted) {
  DecoderConfig config = llama(16);
  for (size_t i = 0; i < 16; i += 2) config.layers[i].attention.keys_are_values = true;
  EXPECT_EQ(layers_with(chosen(config, FileType::q4_k_m), "attn_v", BlockFormat::q6_k),
            (std::vector<int64_t>{1, 7, 13, 15}));  // 0, 3, 6 and 7 of 8
}

TEST(GgufFormats, RowsThatAreNoWholeBlocksHaveSmallerOnes) {
  DecoderConfig config = llama(4, 192);
  GgufFormats formats(config, FileType::q4_k_m);
  const Chosen all = chosen(config, formats);
  EXPECT_EQ(all.at("token_embd.weight"), BlockFormat::q8_0);
  EXPECT_EQ(all.at("blk.0.attn_q.weight"), BlockFormat::q5_0);
  EXPECT_EQ(all.at("blk.3.attn_v.weight"), BlockFormat::q8_0);
  EXPECT_EQ(all.at("blk.0.ffn_down.weight"), BlockFormat::q4_k);  // its rows have 512
  EXPECT_EQ(formats.notes(),
            (std::vector<std::string>{
                "22 of the matrices are Q5_0 instead of Q4_K, as rows are no whole blocks of 256: blk.0.attn_q.weight, "
                "blk.0.attn_k.weight, blk.0.attn_v.weight and 19 more.",
                "3 of the matrices are Q8_0 instead of Q6_K, as rows are no whole blocks of 256: token_embd.weight, "
                "blk.2.attn_v.weight, blk.3.attn_v.weight."}));
  EXPECT_EQ(chosen(config, FileType::q5_k_m).at("blk.0.attn_q.weight"), BlockFormat::q5_1);
  EXPECT_EQ(chosen(config, FileType::q6_k).at("blk.0.attn_q.weight"), BlockFormat::q8_0);
  EXPECT_EQ(chosen(config, FileType::q4_0).at("token_embd.weight"), BlockFormat::q8_0);
  config = llama(1, 48);
  for (const FileType type : {FileType::q4_0, FileType::q5_1, FileType::q8_0, FileType::q4_k_m, FileType::q6_k}) {
    EXPECT_EQ(chosen(config, type).at("token_embd.weight"), BlockFormat::f16);
    EXPECT_EQ(chosen(config, type).at("blk.0.ffn_up.weight"), BlockFormat::f16);
  }
}

TEST(GgufFormats, QuantizedSourcesAreRoundedForTheSecondTime) {
  const DecoderConfig config = llama(1);
  GgufFormats formats(config, FileType::q6_k);
  const auto choose = [&](BlockFormat stored) {
    return formats.choose(
        "blk.0.attn_q.weight",
        {.name = "model.layers.0.self_attn.q_proj.weight", .sizes = {256, 256}, .dtype = DType::f32, .blocks = stored});
  };
  EXPECT_EQ(choose(BlockFormat::q6_k), BlockFormat::q6_k);
  EXPECT_EQ(formats.notes(), std::vector<std::string>{});
  EXPECT_EQ(choose(BlockFormat::q4_1), BlockFormat::q6_k);
  EXPECT_EQ(formats.notes(),
            (std::vector<std::string>{
                "1 of the matrices is rounded for the second time: the source has them in other quantized formats. "
                "Convert the model that was not quantized, if there is one."}));
}

TEST(GgufFormats, SomeTensorsStayAsTheyAre) {
  const DecoderConfig config = llama(1);
  const SourceWeight weight{
      .name = "model.per_layer_model_projection.weight", .sizes = {256, 256}, .dtype = DType::bf16};
  GgufFormats quantized(config, FileType::q4_k_m), plain(config, FileType::f16), same(config, {});
  EXPECT_EQ(quantized.choose("per_layer_model_proj.weight", weight), BlockFormat::bf16);
  EXPECT_EQ(plain.choose("per_layer_model_proj.weight", weight), BlockFormat::f16);
  EXPECT_EQ(same.choose("per_layer_model_proj.weight", weight), BlockFormat::bf16);
  EXPECT_EQ(message_of([&] { same.choose("x.weight", {.name = "x", .sizes = {2, 2}, .dtype = DType::f64}); }),
            "x is f64, which llama.cpp does not compute with; name a type, such as f32, bf16, f16 or q8_0");
}

TEST(FileTypes, HaveTheNamesThatUsersWrite) {
  for (const std::string& name : file_type_names()) EXPECT_EQ(row_of(file_type_from_name(name)).name, name);
  EXPECT_EQ(file_type_names().size(), 11);
  EXPECT_EQ(file_type_of(DType::bf16), FileType::bf16);
  EXPECT_EQ(file_type_of(DType::f64), std::nullopt);
  EXPECT_NE(message_of([] { file_type_from_name("q4_k"); }).find("q4_k_m"), std::string::npos);
}

}  // namespace
}  // namespace tutti::models
