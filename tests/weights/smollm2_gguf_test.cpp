// The GGUF file of SmolLM2-135M-Instruct, compared with what the Python package gguf reads.
#include <gtest/gtest.h>

#include <map>

#include "tests/weights/support/published_models.h"
#include "tutti/core/blake2b.h"
#include "tutti/io/model_file.h"
#include "tutti/io/tokenizer_source.h"
#include "tutti/models/generation_defaults.h"
#include "tutti/tensor/tensor.h"

namespace tutti {
namespace {

constexpr const char* kModel = "smollm2-135m-instruct";
const std::string kFile = testing::published_file(kModel, "SmolLM2-135M-Instruct.Q4_1.gguf");

TEST(SmolLm2Gguf, ListsItsTensorsAndKeys) {
  TUTTI_NEEDS_PUBLISHED(kFile, kModel);
  const ModelFile file(kFile);
  EXPECT_EQ(file.format(), "gguf");
  EXPECT_EQ(file.entries().size(), 272U);
  std::map<std::string_view, int> types;
  for (const ModelTensor& entry : file.entries()) ++types[entry.type_name()];
  EXPECT_EQ(types, (std::map<std::string_view, int>{{"Q4_1", 210}, {"Q8_0", 1}, {"f32", 61}}));
  EXPECT_EQ(file.entry("token_embd.weight").sizes, (Extents{49152, 576}));
  EXPECT_EQ(file.entry("blk.17.ffn_down.weight").sizes, (Extents{576, 1536}));
  const ModelMetadata& keys = file.metadata();
  EXPECT_EQ(keys.size(), 33U);
  EXPECT_EQ(keys.at("general.architecture").text(), "llama");
  EXPECT_EQ(keys.at("llama.block_count").whole(), 30);
  EXPECT_EQ(keys.at("llama.attention.head_count_kv").whole(), 3);
  EXPECT_EQ(keys.at("llama.rope.freq_base").number(), 100000.0);
  EXPECT_EQ(keys.at("tokenizer.ggml.tokens").texts().size(), 49152U);
  EXPECT_EQ(keys.at("tokenizer.ggml.tokens").texts()[1], "<|im_start|>");
  EXPECT_EQ(keys.at("tokenizer.ggml.merges").texts().size(), 48900U);
  EXPECT_EQ(keys.at("tokenizer.ggml.token_type").wholes()[0], 3);
}

// Digests of the decoded f32 values, printed by gguf_digests.py.
TEST(SmolLm2Gguf, TensorsHaveTheValuesThatThePythonPackageDecodes) {
  TUTTI_NEEDS_PUBLISHED(kFile, kModel);
  const ModelFile file(kFile);
  const std::pair<const char*, const char*> kDigests[] = {
      {"token_embd.weight", "99a44ad963f7777b86fc8f997c06d161"},
      {"blk.0.attn_q.weight", "ee44514c7d9c3d505d2e232b77914113"},
      {"blk.17.ffn_down.weight", "a32daa58d1387b2d7696008bb546a02b"},
      {"blk.29.attn_k.weight", "9ee36bf2ad56722792d1dbfe7050c159"},
      {"output_norm.weight", "3d54e0ca25b5b1c047795de06f68117e"},
  };
  for (const auto& [name, digest] : kDigests) {
    const Tensor values = file.tensor(name);
    EXPECT_EQ(values.dtype(), DType::f32);
    Blake2b hash(16);
    hash.add({static_cast<const char*>(values.raw_data()), static_cast<size_t>(values.nbytes())});
    std::string found;
    for (const char byte : hash.finish()) found += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    EXPECT_EQ(found, digest) << name;
  }
}

TEST(SmolLm2Gguf, NamesTheEndsOfTurnsAndDocuments) {
  TUTTI_NEEDS_PUBLISHED(kFile, kModel);
  const auto tokenizer = open_tokenizer(kFile, {}, "");
  EXPECT_EQ(models::generation_defaults(ModelFile(kFile), *tokenizer).eos_token_ids,
            (std::vector<int32_t>{2, 0}));  // <|im_end|>, <|endoftext|>
}

}  // namespace
}  // namespace tutti
