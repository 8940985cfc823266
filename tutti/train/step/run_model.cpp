#include "tutti/train/step/run_model.h"

#include "tutti/models/decoder.h"
#include "tutti/models/family.h"
#include "tutti/models/published_model.h"

namespace tutti::train {

std::unique_ptr<models::LanguageModel> build_model(const Config& config) {
  const ModelConfig& m = config.model;
  std::unique_ptr<models::LanguageModel> model = std::make_unique<models::Decoder>(
      m.path.empty() ? models::flavor_named(m.name, m.flavor) : models::PublishedModel(m.path).config(),
      models::ModelOptions{.max_positions = config.data.sequence_length, .dropout = m.dropout});
  if (config.training.mixed_precision_param == "bfloat16") model->to(DType::bf16);
  return model;
}

models::ForwardOptions forward_options(const Config& config) {
  return {.checkpoint_blocks = config.activation_checkpoint.mode == "full",
          .loss_max_bytes = config.training.loss_max_bytes};
}

}  // namespace tutti::train
