// [checkpoint]: the keys with their defaults.
#include "tutti/train/config/section.h"

namespace tutti::train {
namespace {

std::vector<Field> checkpoint_keys() {
  return {
      {TUTTI_KEY(checkpoint, int64_t, every, 500), .doc = "steps between checkpoints; 0: only at the end",
       .unit = "steps", .rule = at_least(0)},
      {TUTTI_KEY(checkpoint, int64_t, keep_latest, 3),
       .doc = "how many checkpoints are kept; older ones are deleted, those of earlier starts included; -1: all",
       .unit = "checkpoints", .rule = at_least_or_rest(1)},
      {TUTTI_KEY(checkpoint, bool, async, false),
       .doc = "write checkpoints while training continues, from a copy of weights and optimizer state that takes as "
              "much memory again",
       .unit = ""},
      {TUTTI_KEY(checkpoint, std::string, initial_load_path, ""),
       .doc = "weights to start from: a run, a checkpoint folder, the folder of a published model, or a .safetensors "
              "file or index",
       .unit = "", .resuming = Resuming::told},
  };
}

}  // namespace

TUTTI_SECTION(checkpoint, CheckpointConfig, 10) = {
    .name = "checkpoint",
    .doc = "Saving checkpoints, and starting from saved weights.",
    .keys = checkpoint_keys,
};

}  // namespace tutti::train
