#include "tutti/train/step/run_model.h"

#include "tutti/models/decoder.h"
#include "tutti/models/family.h"
#include "tutti/models/published_model.h"
#include "tutti/models/published_writer.h"
#include "tutti/runtime/atomic_file.h"

namespace tutti::train {

namespace {

namespace fs = std::filesystem;

constexpr const char* kOwnModel = "model";

models::DecoderConfig description_of(const ModelConfig& m, const fs::path& run) {
  if (m.path.empty()) return models::flavor_named(m.name, m.flavor);
  const fs::path own = run / kOwnModel;
  models::DecoderConfig config =
      models::published_description(!run.empty() && fs::exists(own) ? own : fs::path(m.path));
  config.flavor = fs::path(m.path).filename().string();
  return config;
}

}  // namespace

std::unique_ptr<models::LanguageModel> build_model(const Config& config, const fs::path& run) {
  const ModelConfig& m = config.model;
  std::unique_ptr<models::LanguageModel> model = std::make_unique<models::Decoder>(
      description_of(m, run), models::ModelOptions{.max_positions = config.data.sequence_length, .dropout = m.dropout});
  if (config.training.mixed_precision_param == "bfloat16") model->to(DType::bf16);
  return model;
}

void save_run_description(const Config& config, const fs::path& run) {
  if (config.model.path.empty()) return;
  const models::DecoderConfig description = models::published_description(config.model.path);
  fs::create_directories(run / kOwnModel);
  write_file_atomically((run / kOwnModel / "config.json").string(),
                        models::published_config_json(description, DType::f32));
}

models::ForwardOptions forward_options(const Config& config) {
  return {.checkpoint_blocks = config.activation_checkpoint.mode == "full",
          .loss_max_bytes = config.training.loss_max_bytes};
}

}  // namespace tutti::train
