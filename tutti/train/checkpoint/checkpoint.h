// Checkpoints of a run: checkpoint/step-<N>/ with
//   model.safetensors      parameters under their names (those of Hugging Face's Qwen3)
//   optimizer.safetensors  the optimizer's state under the names state.<parameter>.<name of the state>
//                          (either may be several files beside an index, io/safetensors_shards.h, see reshard.h)
//   state.json             the position of the run, the inputs its numbers depend on, digests (checkpoint_state.h)
// A checkpoint is written to a folder whose name begins with ".tmp-", synced, and renamed once it is complete; before
// it is deleted, it gets such a name again. So even if the process is killed, a folder named step-<N> is complete.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tutti/nn/module.h"
#include "tutti/optim/optimizer.h"
#include "tutti/train/checkpoint/checkpoint_folder.h"
#include "tutti/train/checkpoint/checkpoint_state.h"
#include "tutti/train/checkpoint/checkpoint_tensors.h"

namespace tutti::models {
class LanguageModel;
}
namespace tutti::parallel {
class ShardedTables;
}

namespace tutti::train {

// Writes step-<state.step> and deletes all but the `keep_latest` newest checkpoints (0 or less keeps all). The ranks of
// `group`, all of which must call it, write the files together, each what it stores; null: one rank. The bytes do not
// depend on how parameters are divided. `tables`: embedding tables of the model that ranks divide, which belong to it
// with their states; their bytes do not depend on the plan. EnvironmentError on all ranks when the disk is full; the
// folder is then unchanged.
void save_checkpoint(const std::filesystem::path& folder, const nn::Module& model, const optim::Optimizer& optimizer,
                     const TrainState& state, int64_t keep_latest, comm::ProcessGroup* group = nullptr,
                     const parallel::ShardedTables* tables = nullptr);
// The tensors of a file.
struct FileTensors {
  NamedTensors tensors;
  TensorBoxes boxes = {};
};
// UsageError for tables without values, which would be saved as zeros.
void check_values(const parallel::ShardedTables* tables);
// What both files of a checkpoint hold: parameters, and the states of optimizers.
std::pair<FileTensors, FileTensors> files_of(const nn::Module& model, const optim::Optimizer& optimizer,
                                             const parallel::ShardedTables* tables);
// The same for tensors that stand for those of a model and its optimizer.
void save_tensors(const std::filesystem::path& folder, const FileTensors& model, const FileTensors& optimizer,
                  const TrainState& state, int64_t keep_latest, comm::ProcessGroup* group);

// Loads a checkpoint, of any number of ranks and layout, into model and optimizer, its count of steps included; each
// rank of `group` reads what it stores. UsageError when names or shapes differ from the model's, and EnvironmentError
// when a tensor is not the one that was saved; model and optimizer are then unchanged.
TrainState load_checkpoint(const std::filesystem::path& step_folder, const nn::Module& model,
                           optim::Optimizer& optimizer, comm::ProcessGroup* group = nullptr,
                           parallel::ShardedTables* tables = nullptr);
// Loads only the parameters, from a step folder or a .safetensors file, whose dtypes may be others than f32. Errors as
// nn::load().
void load_model(const std::filesystem::path& path, nn::Module& model);
// Loads the weights that a run starts from: those of a run's newest checkpoint or of a step folder, or those of a
// published model (models/published_model.h), whose config.json must describe `model`. Returns what the user should
// know of it, "" when there is nothing. Errors as nn::load(), and UsageError listing what config.json says otherwise;
// the model is then unchanged.
std::string load_first_weights(const std::filesystem::path& path, models::LanguageModel& model);
// Writes the model of a run folder's newest checkpoint, or of a step folder, as a .safetensors file with the names of
// published models: those of the checkpoint, but for experts (nn/published_experts.h).
void export_model(const std::filesystem::path& path, const std::filesystem::path& file);

struct DigestedTensor {
  std::string name;
  DType dtype;
  Extents sizes;
  std::string digest;
};
// The digests of a run folder's newest checkpoint, or of a step folder, sorted by name.
std::vector<DigestedTensor> digest_checkpoint(const std::filesystem::path& path);

// The checkpoint that a user's path names: a step folder itself, or the newest one of a run. UsageError when there is
// none.
std::filesystem::path resolve_checkpoint(const std::filesystem::path& path);
// EnvironmentError, naming the tensors, unless those of a step folder are there with these digests. Collective.
void check_digests(const std::filesystem::path& step_folder, const Digests& saved, comm::ProcessGroup* group = nullptr);

// Reads every tensor of such a folder and compares its digest with the one in state.json, which has a digest of its
// own. Returns the digests. EnvironmentError, naming the tensors that are missing, unknown or changed.
Digests verify_checkpoint(const std::filesystem::path& path);

}  // namespace tutti::train
