// [model]: the keys with their defaults.
#include "tutti/models/family.h"
#include "tutti/train/config/section.h"

namespace tutti::train {
namespace {

std::vector<std::string> model_names() {
  std::vector<std::string> names = models::family_names();
  names.emplace_back(kDlrm);
  return names;
}

std::vector<Field> model_keys() {
  return {
      {TUTTI_KEY(model, std::string, name, "qwen3"),
       .doc = "family of language models, or dlrm: a click model (docs/click_models.md)", .unit = "",
       .rule = one_of(model_names()), .resuming = Resuming::fixed},
      {TUTTI_KEY(model, std::string, flavor, "quickstart"),
       .doc = "named size of the model, such as quickstart or 0.6B", .unit = "", .resuming = Resuming::fixed,
       .only_of = ModelKind::language},
      {TUTTI_KEY(model, std::string, path, ""),
       .doc =
           "a published model, a folder with config.json or a GGUF file, whose description the run takes in the place "
           "of name and flavor; checkpoint.initial_load_path loads its weights",
       .unit = "", .resuming = Resuming::fixed, .only_of = ModelKind::language},
      {TUTTI_KEY(model, double, dropout, 0.0),
       .doc = "probability with which training drops an element of what an attention or feed-forward layer adds. The "
              "masks depend "
              "on seed, step and virtual shard, not on the number of ranks",
       .unit = "", .rule = between(0, 1), .resuming = Resuming::fixed, .only_of = ModelKind::language},
      {TUTTI_KEY(model, double, load_balance_coeff, 1e-3),
       .doc = "by how much a step moves the bias of an expert's router toward equal loads, in a model with experts; 0: "
              "not at all",
       .unit = "", .rule = at_least(0), .resuming = Resuming::fixed, .only_of = ModelKind::language},
  };
}

}  // namespace

TUTTI_SECTION(model, ModelConfig, 0) = {
    .name = "model",
    .doc = "The model.",
    .keys = model_keys,
};

}  // namespace tutti::train
