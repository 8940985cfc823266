#include "tutti/train/step/run_model.h"

namespace tutti::train {

std::unique_ptr<models::LanguageModel> build_model(const Config& config) {
  auto model = models::make_model(config.model.name, config.model.flavor,
                                  {.max_positions = config.data.sequence_length, .dropout = config.model.dropout});
  if (config.training.mixed_precision_param == "bfloat16") model->to(DType::bf16);
  return model;
}

models::ForwardOptions forward_options(const Config& config) {
  return {.checkpoint_blocks = config.activation_checkpoint.mode == "full",
          .loss_max_bytes = config.training.loss_max_bytes};
}

}  // namespace tutti::train
