#include "tests/models/support/first_weights.h"

#include <fstream>

#include "tutti/models/published_writer.h"
#include "tutti/nn/state_dict.h"
#include "tutti/ops/cast.h"

namespace tutti::models {

void write_first_weights(const DecoderConfig& config, DType dtype, const std::filesystem::path& folder,
                         const std::function<void(Decoder&)>& change) {
  std::filesystem::create_directory(folder);
  std::ofstream(folder / "config.json") << published_config_json(config, dtype, {.positions = 512});
  Decoder model(config, 8);
  nn::initialize(model);
  change(model);
  nn::StateDict state;
  for (const auto& [name, tensor] : model.state_dict())
    state.emplace_back(name, name.ends_with("expert_bias") ? tensor : cast(tensor, dtype));
  nn::save_published(state, (folder / "model.safetensors").string());
}

}  // namespace tutti::models
