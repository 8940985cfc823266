// The trainer: trains a model as described by a Config.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "tutti/train/config/config.h"
#include "tutti/train/fresh_start.h"

namespace tutti::comm {
class ProcessGroup;
}

namespace tutti::train {

struct Survivors;

struct TrainerOptions {
  FreshStart fresh = {};                // whether to move an old run aside instead of resuming it
  std::string cache_folder;             // for tokenizers and tokenized data; empty: no cache
  comm::ProcessGroup* group = nullptr;  // null: one rank
  bool quiet = false;                   // no status lines
  Survivors* survivors = nullptr;       // the ranks of `group`, where they outlive one of them (survivors.h)
  int64_t stop_at = 0;  // save and return after this step as after a stop signal; 0: only when all steps are taken
};

struct TrainerResult {
  int64_t step = 0;  // last step taken
  float loss = 0;
  std::optional<double> val_bits_per_byte, val_auc;  // of the last validation
  bool interrupted = false;
};

// Trains until config.training.steps, options.stop_at or a stop signal, saving as configured. All ranks must call it.
// The losses, gradient norms and checkpoints have the same bits for every number of ranks and threads.
TrainerResult train(const Config& config, const TrainerOptions& options);

}  // namespace tutti::train
