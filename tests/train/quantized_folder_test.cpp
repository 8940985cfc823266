// Folders of codes: heads that repeat the embedding.
#include "tutti/train/quantized_folder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "tutti/models/decoder.h"
#include "tutti/models/family.h"
#include "tutti/models/published_folder.h"
#include "tutti/models/published_writer.h"
#include "tutti/nn/code_entries.h"
#include "tutti/nn/quantize.h"
#include "tutti/nn/state_dict.h"
#include "tutti/runtime/atomic_file.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::train {
namespace {

namespace fs = std::filesystem;

// A model whose description says that the head is a weight of its own; it has the values of the embedding.
void write_repeated_head(const fs::path& folder) {
  models::DecoderConfig config = models::flavor_named("llama", "tiny");
  config.tied_embeddings = false;
  fs::create_directory(folder);
  write_file_atomically((folder / "config.json").string(), models::published_config_json(config, DType::f32));
  models::Decoder model(config, 8);
  seed_all(3);
  nn::initialize(model);
  nn::StateDict state = model.state_dict();
  const auto value = [&](std::string_view name) {
    for (const auto& [key, tensor] : state)
      if (key == name) return tensor;
    throw std::runtime_error("no such entry");
  };
  const Tensor head = value("lm_head.weight"), table = value("model.embed_tokens.weight");
  ASSERT_EQ(head.extents(), table.extents());
  std::memcpy(head.raw_data(), table.raw_data(), static_cast<size_t>(table.nbytes()));
  nn::save(model, (folder / "model.safetensors").string());
}

TEST(QuantizedFolder, AHeadThatRepeatsTheEmbeddingIsNotLost) {
  const testing::TemporaryFolder work;
  write_repeated_head(work / "model");
  const models::PublishedModel source(work / "model");
  EXPECT_FALSE(source.config().tied_embeddings);
  write_quantized_folder(source, work / "model", work / "codes", {.kind = "int8"}, {});
  const models::PublishedModel written(work / "codes");
  EXPECT_TRUE(written.config().tied_embeddings) << "the head is stored once, as numbers";
  models::Decoder model(written.config(), 8);
  written.load(model);
  const nn::StateDict state = model.state_dict();
  const auto holds = [&](std::string_view part) {
    return std::any_of(state.begin(), state.end(),
                       [&](const auto& entry) { return entry.first.find(part) != std::string::npos; });
  };
  EXPECT_TRUE(holds("layers.0.") && holds(".weight.int8"));
  EXPECT_FALSE(holds("lm_head.weight.int8"));
  // Codes for which the folder has no place are an error.
  models::Decoder own_head(source.config(), 8);
  source.load(own_head);
  nn::quantize_(own_head, {.kind = nn::Quantization::int8});
  models::WriteOptions options{};
  options.quantization = nn::Quantization::int8;
  options.codes = nn::code_entries(own_head);
  EXPECT_NE(message_of([&] {
              models::write_published_folder(source, work / "more", options);
            }).find("the source has no weight of its own for the codes 'lm_head.weight.int8'"),
            std::string::npos);
}

}  // namespace
}  // namespace tutti::train
