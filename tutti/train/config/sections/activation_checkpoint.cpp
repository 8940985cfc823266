// [activation_checkpoint]: the keys with their defaults, and their rules with other keys.
#include "tutti/train/config/section.h"

namespace tutti::train {
namespace {

std::vector<Field> activation_checkpoint_keys() {
  return {
      {TUTTI_KEY(activation_checkpoint, std::string, mode, "none"),
       .doc =
           "full: keep only the inputs of each block and recompute the block in backward; memory_budget: recompute as "
           "memory_budget says, requires training.compile",
       .unit = "", .rule = one_of({"none", "full", "memory_budget"}), .only_of = ModelKind::language},
      {TUTTI_KEY(activation_checkpoint, double, memory_budget, 0.5),
       .doc =
           "0: recompute as much as possible; 1: recompute only what is nearly free; values between trade memory for "
           "time",
       .unit = "", .rule = between(0, 1), .only_of = ModelKind::language},
  };
}

void check_activation_checkpoint(const Config& config, Faults& faults) {
  faults.check(config.activation_checkpoint.mode != "memory_budget" || config.training.compile,
               "activation_checkpoint.mode is 'memory_budget' and training.compile is false; the budget is the "
               "compiler's: set training.compile = true, or mode = 'full'");
}

}  // namespace

TUTTI_SECTION(activation_checkpoint, ActivationCheckpointConfig, 8) = {
    .name = "activation_checkpoint",
    .doc = "Recomputation of activations in the backward, which saves memory and costs time.",
    .keys = activation_checkpoint_keys,
    .check = check_activation_checkpoint,
};

}  // namespace tutti::train
