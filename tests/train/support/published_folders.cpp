#include "tests/train/support/published_folders.h"

#include "tutti/models/bert.h"
#include "tutti/models/decoder.h"
#include "tutti/models/family.h"
#include "tutti/models/published_writer.h"
#include "tutti/nn/state_dict.h"
#include "tutti/runtime/atomic_file.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::train {
namespace {

constexpr const char* kEncoder =
    R"({"architectures": ["BertModel"], "model_type": "bert", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
  "intermediate_size": 16, "vocab_size": 4096, "max_position_embeddings": 64, "hidden_act": "gelu"})";

void save_random(nn::Module& model, const std::filesystem::path& folder) {
  seed_all(3);
  nn::initialize(model);
  nn::save(model, (folder / "model.safetensors").string());
}

}  // namespace

void write_decoder_folder(const std::filesystem::path& folder, const std::string& flavor) {
  const models::DecoderConfig config = models::flavor_named("llama", flavor);
  write_file_atomically((folder / "config.json").string(), models::published_config_json(config, DType::f32));
  models::Decoder model(config, 8);
  save_random(model, folder);
}

void write_encoder_folder(const std::filesystem::path& folder) {
  write_file_atomically((folder / "config.json").string(), kEncoder);
  models::Bert model(models::read_bert_config((folder / "config.json").string()));
  save_random(model, folder);
  std::filesystem::copy_file(TUTTI_SOURCE_DIR "/tests/io/tokenizers/bert.json", folder / "tokenizer.json");
}

}  // namespace tutti::train
