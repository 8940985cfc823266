// Checkpoints of a run: checkpoint/step-<N>/ with
//   model.safetensors      parameters under their names (those of Hugging Face's Qwen3)
//   optimizer.safetensors  state.<parameter>.<what>
//   state.json             step, tokens_seen, next_row, optimizer_steps, seed, format, digests (name -> hash of each tensor)
// A checkpoint is written into a folder whose name begins with ".tmp-", synced, and renamed when whole: whatever kills
// the writer, a folder named step-<N> is complete, and the one before stays.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tutti/nn/module.h"
#include "tutti/optim/optimizer.h"

namespace tutti::train {

struct TrainState {
  int64_t step = 0;         // steps taken
  int64_t tokens_seen = 0;
  int64_t next_row = 0;     // global row that the next step begins with
  int64_t optimizer_steps = 0;
  uint64_t seed = 0;
};

// Writes step-<state.step> and deletes all but the `keep_latest` newest (0 keeps all). EnvironmentError, and the folder
// as it was, when the disk is full.
void save_checkpoint(const std::filesystem::path& folder, const nn::Module& model, const optim::Optimizer& optimizer,
                     const TrainState& state, int64_t keep_latest);

// Complete checkpoints in ascending order of step.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& folder);
std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& folder);
// Deletes what killed writers left behind.
void remove_unfinished(const std::filesystem::path& folder);

// Fills model and optimizer. With nothing changed, UsageError when names or shapes differ from the model's, and
// EnvironmentError when a tensor is not the one that was saved.
TrainState load_checkpoint(const std::filesystem::path& step_folder, const nn::Module& model, optim::Optimizer& optimizer);
// Only the parameters, from a step folder or a .safetensors file.
void load_model(const std::filesystem::path& path, const nn::Module& model);

// One tensor of a checkpoint; the hash is of dtype, shape and all elements, whatever the layout that wrote it.
struct TensorDigest {
  std::string name;
  DType dtype;
  Extents sizes;
  uint64_t hash;
};
// Of a run folder (its newest checkpoint) or a step folder; sorted by name.
std::vector<TensorDigest> digest_checkpoint(const std::filesystem::path& path);

// Reads every tensor of such a folder and compares its hash with the one in state.json. Returns the number of tensors;
// EnvironmentError naming those that are missing, unknown or changed.
int64_t verify_checkpoint(const std::filesystem::path& path);

}  // namespace tutti::train
