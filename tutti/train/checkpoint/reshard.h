// Checkpoints rewritten in another number of files. The tensors and their digests stay; any run on any layout loads any
// of them.
#pragma once

#include <cstdint>
#include <filesystem>

#include "tutti/train/checkpoint/digest.h"

namespace tutti::train {

struct Resharded {
  int64_t step = 0;
  size_t model_files = 1, optimizer_files = 1;
  Digests digests;
};

// Writes the newest checkpoint of a run folder, or a step folder, to the new folder `to`: the model in `files` files
// beside an index, the optimizer's state in as many or as it has tensors. Everything is written to a folder of another
// name, which no other process writes to, synced, read back, compared with the digests of the checkpoint, and renamed.
// UsageError when `to` exists or its folder does not, and for a number of files that is not 1 to that of the model's
// tensors; EnvironmentError naming what is damaged or cannot be written: nothing is left then. Of several that write
// the same folder at once the first one that is done wins, and the others throw a UsageError.
Resharded reshard_checkpoint(const std::filesystem::path& from, const std::filesystem::path& to, int64_t files);

}  // namespace tutti::train
