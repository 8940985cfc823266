#include "tutti/train/step/run_model.h"

#include "tutti/core/error.h"
#include "tutti/models/decoder.h"
#include "tutti/models/family.h"
#include "tutti/models/published_model.h"
#include "tutti/models/published_writer.h"
#include "tutti/runtime/atomic_file.h"
#include "tutti/runtime/json_document.h"
#include "tutti/train/config/model_kind.h"

namespace tutti::train {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLongestPath = 1 << 16;

// The folder of a run in which its description is kept, and beside it the model.path that it is of.
struct Kept {
  explicit Kept(const fs::path& run) : folder(run / "model"), source(folder / "source") {}
  bool is_of(const std::string& path) const {
    return fs::is_regular_file(source) && read_regular_file(source.string(), kLongestPath) == path;
  }
  fs::path folder, source;
};

models::DecoderConfig description_of(const ModelConfig& m, const fs::path& run) {
  TUTTI_CHECK(m.name != kDlrm, "model.name is '{}', a click model, which has no tokens; expected a language model",
              kDlrm);
  if (m.path.empty()) return models::flavor_named(m.name, m.flavor);
  const Kept kept(run);
  models::DecoderConfig config =
      models::published_description(!run.empty() && kept.is_of(m.path) ? kept.folder : fs::path(m.path));
  config.flavor = fs::path(m.path).filename().string();
  return config;
}

}  // namespace

std::unique_ptr<models::LanguageModel> build_model(const Config& config) {
  return build_model(config, fs::path(config.run.dir) / config.run.name);
}

std::unique_ptr<models::LanguageModel> build_model(const Config& config, const fs::path& run) {
  std::unique_ptr<models::LanguageModel> model = std::make_unique<models::Decoder>(
      description_of(config.model, run),
      models::ModelOptions{.max_positions = config.data.sequence_length, .dropout = config.model.dropout});
  if (config.training.mixed_precision_param == "bfloat16") model->to(DType::bf16);
  return model;
}

void keep_description(const Config& config, const fs::path& run) {
  if (config.model.path.empty()) return;
  const Kept kept(run);
  const models::DecoderConfig description = models::published_description(config.model.path);
  fs::create_directories(kept.folder);
  write_file_atomically((kept.folder / "config.json").string(), models::published_config_json(description, DType::f32));
  write_file_atomically(kept.source.string(), config.model.path);
}

models::ForwardOptions forward_options(const Config& config) {
  return {.checkpoint_blocks = config.activation_checkpoint.mode == "full",
          .loss_max_bytes = config.training.loss_max_bytes};
}

}  // namespace tutti::train
