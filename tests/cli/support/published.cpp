#include "tests/cli/support/published.h"

#include <filesystem>

#include "tutti/models/bert.h"
#include "tutti/models/decoder.h"
#include "tutti/models/family.h"
#include "tutti/nn/state_dict.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::test {
namespace {

// tiny-tp4 of the family llama.
constexpr const char* kDecoder =
    R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 8,
  "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 512, "vocab_size": 2048, "tie_word_embeddings": true, "rms_norm_eps": 1e-06,
  "rope_theta": 1000000, "max_position_embeddings": 512})";
constexpr const char* kEncoder =
    R"({"architectures": ["BertModel"], "model_type": "bert", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
  "intermediate_size": 16, "vocab_size": 4096, "max_position_embeddings": 64, "hidden_act": "gelu"})";

void save_random(nn::Module& model, const std::filesystem::path& folder) {
  seed_all(3);
  nn::initialize(model);
  nn::save(model, (folder / "model.safetensors").string());
}

}  // namespace

void write_published_decoder(const Workplace& work) {
  const std::filesystem::path folder = work.folder() / "published";
  std::filesystem::create_directory(folder);
  work.write("published/config.json", kDecoder);
  models::Decoder model(models::flavor_named("llama", "tiny-tp4"), 8);
  save_random(model, folder);
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
    std::filesystem::copy_file(work.folder() / "tokenizer" / file, folder / file);
}

void write_published_encoder(const Workplace& work) {
  const std::filesystem::path folder = work.folder() / "encoder";
  std::filesystem::create_directory(folder);
  work.write("encoder/config.json", kEncoder);
  models::Bert model(models::read_bert_config((folder / "config.json").string()));
  save_random(model, folder);
  std::filesystem::copy_file(TUTTI_SOURCE_DIR "/tests/io/tokenizers/bert.json", folder / "tokenizer.json");
}

}  // namespace tutti::test
