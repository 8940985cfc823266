// Checkpoints of a run: checkpoint/step-<N>/ with
//   model.safetensors      parameters under their names (those of Hugging Face's Qwen3)
//   optimizer.safetensors  state.<parameter>.<what>
//   state.json             where the run stood, what its numbers depend on, digests (checkpoint_state.h)
// A checkpoint is written into a folder whose name begins with ".tmp-", synced, and renamed when whole; one that goes gets
// such a name before it is deleted. Whatever kills the writer, a folder named step-<N> is complete.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tutti/nn/module.h"
#include "tutti/optim/optimizer.h"
#include "tutti/train/checkpoint_folder.h"
#include "tutti/train/checkpoint_state.h"

namespace tutti::train {

// Writes step-<state.step> and deletes all but the `keep_latest` newest (0 keeps all). EnvironmentError, and the folder
// as it was, when the disk is full.
void save_checkpoint(const std::filesystem::path& folder, const nn::Module& model, const optim::Optimizer& optimizer,
                     const TrainState& state, int64_t keep_latest);

// state.json of a step folder; UsageError and EnvironmentError as parse_state_json, or when it is that of another step.
SavedState read_state(const std::filesystem::path& step_folder);
// Fills model and optimizer. With nothing changed, UsageError when names or shapes differ from the model's, and
// EnvironmentError when a tensor is not the one that was saved.
TrainState load_checkpoint(const std::filesystem::path& step_folder, const nn::Module& model, optim::Optimizer& optimizer);
// Only the parameters, from a step folder or a .safetensors file.
void load_model(const std::filesystem::path& path, const nn::Module& model);

struct DigestedTensor {
  std::string name;
  DType dtype;
  Extents sizes;
  std::string digest;
};
// Of a run folder (its newest checkpoint) or a step folder; sorted by name.
std::vector<DigestedTensor> digest_checkpoint(const std::filesystem::path& path);

// Reads every tensor of such a folder and compares its digest with the one in state.json, which has a digest of its own.
// Returns the digests; EnvironmentError naming those that are missing, unknown or changed.
Digests verify_checkpoint(const std::filesystem::path& path);

}  // namespace tutti::train
