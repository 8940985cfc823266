// The ranks of a run as data-parallel ranks, each of which may be several tensor-parallel ones that divide the model
// among them, and which may divide experts.
#pragma once

#include <memory>
#include <string>

#include "tutti/train/config/data_degrees.h"

namespace tutti {
class Tensor;
}
namespace tutti::comm {
class ProcessGroup;
}
namespace tutti::dist {
class DeviceMesh;
using Mesh = std::shared_ptr<const DeviceMesh>;
}  // namespace tutti::dist
namespace tutti::models {
class LanguageModel;
struct ForwardOptions;
struct TokenBatch;
}  // namespace tutti::models

namespace tutti::train {

struct TensorRanks {
  dist::Mesh mesh = {};  // of the ranks that divide the model; null: one
  // When the model is divided, the ranks that have the same part of it: as a group, and as a mesh of dp_replicate (if
  // there are replicas) and dp_shard.
  std::shared_ptr<comm::ProcessGroup> data = {};
  dist::Mesh storage = {};
  // When neighbouring ranks divide the experts, or the tokens that come to them, those (of which there may be one), and
  // the ranks that have the same experts; these divide them further if the mesh `expert_storage` is there, of
  // dp_replicate (if there are replicas) and efsdp.
  dist::Mesh experts = {};
  std::shared_ptr<comm::ProcessGroup> expert_replicas = {};
  dist::Mesh expert_storage = {};

  // The ranks that may run forwards of different rows at different times, for evaluation and samples; others run those
  // of the rank that they help. `group` are all ranks.
  comm::ProcessGroup* evaluators(comm::ProcessGroup* group) const;
};

// Divides the model as configured; does nothing where the degree is 1. Collective; before optimizers are made and
// values are drawn.
TensorRanks divide_model(models::LanguageModel& model, const ParallelismConfig& config, comm::ProcessGroup* group);

// Losses as a plain tensor, whole on every rank of the mesh, from a batch that each of them has. Null: the model is not
// divided.
Tensor losses_of(const models::LanguageModel& model, const models::TokenBatch& batch, const Tensor& labels,
                 const models::ForwardOptions& options, const dist::Mesh& mesh);

}  // namespace tutti::train
