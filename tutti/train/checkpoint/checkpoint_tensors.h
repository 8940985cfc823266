// The tensors of a checkpoint, whatever part of them a rank has: files hold them whole, in global coordinates.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tutti/nn/module.h"
#include "tutti/optim/optimizer.h"
#include "tutti/parallel/tensor_box.h"
#include "tutti/train/checkpoint/digest.h"

namespace tutti {
class SafetensorsShards;
}
namespace tutti::comm {
class ProcessGroup;
}

namespace tutti::train {

// Tensors under their names; distributed ones stand for the part that this rank stores.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

// The masters of all parameters, and all persistent buffers, which are the same on every rank.
NamedTensors tensors_of(const nn::Module& model);
NamedTensors state_of(const optim::Optimizer& optimizer);

// Boxes of which each rank has its own, as those of embedding tables; the same names on all ranks.
using TensorBoxes = std::vector<parallel::TensorBox>;

// Writes a file, all ranks together: of a distributed tensor each writes what it stores, of a box its own unless that
// is a copy, and of others an equal share of the rows, which must then be the same on all ranks. Where not all ranks
// see what rank 0 creates, it writes alone and is sent what others store. Collective; errors are those of
// on_all_ranks(). Null group: one rank.
void write_tensors(const std::filesystem::path& path, const NamedTensors& tensors,
                   const std::map<std::string, std::string>& metadata, comm::ProcessGroup* group,
                   const TensorBoxes& boxes = {});
// Copies the elements that this rank stores out of a file. UsageError, before anything is copied, is up to the caller:
// see check_content().
void read_tensors(const SafetensorsShards& file, const NamedTensors& tensors, const TensorBoxes& boxes = {});
// UsageError, listing all differences, unless the file holds these tensors with their shapes and dtypes, and nothing
// else.
void check_content(const SafetensorsShards& file, const NamedTensors& tensors, const TensorBoxes& boxes = {});

// The digests of all tensors of the files, each of which may be several beside an index (io/safetensors_shards.h), of
// whose blocks each rank reads an equal share. Where the ranks see different files, as on hosts without a common file
// system, each reads all of its own, and gets none when it has none. Collective; errors are those of on_all_ranks().
Digests digests_of_files(const std::vector<std::filesystem::path>& paths, comm::ProcessGroup* group);

}  // namespace tutti::train
