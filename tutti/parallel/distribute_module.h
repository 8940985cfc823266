// Modules whose parameters are distributed tensors.
//
//   parallel::distribute_module(mlp, mesh, [](const std::string& name, const nn::Parameter&) -> dist::Placements {
//     if (name == "up.weight") return {dist::shard(0)};
//     if (name == "down.weight") return {dist::shard(1)};
//     return {};  // replicated
//   });
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tutti/dist/dtensor.h"
#include "tutti/nn/module.h"

namespace tutti::parallel {

// The placements of the parameter of that full name, one per mesh dim; empty: replicated.
using PartitionFunction = std::function<dist::Placements(const std::string& name, const nn::Parameter& parameter)>;
// Gets the tensors among the arguments of the module's forward, and may replace them: by distributed ones, for example.
using InputFunction = std::function<void(std::vector<Tensor>& inputs, const dist::Mesh& mesh)>;
// Gets the result of the module's forward, and returns what takes its place.
using OutputFunction = std::function<Tensor(const Tensor& output, const dist::Mesh& mesh)>;

// Makes every parameter of the module and all below it a distributed tensor, with the values that this rank has, which
// must be those of all ranks of the mesh: as after nn::initialize() with one seed, or after loading one file. A tied
// weight stays tied. Call it before gradients, hooks and optimizers are set up. The functions run before and after
// forward whenever the module is called as a child, or by nn::call(). UsageError for a parameter that is not
// materialized, and for placements that its sizes do not have; nothing has changed then.
void distribute_module(nn::Module& module, const dist::Mesh& mesh, const PartitionFunction& partition = {},
                       const InputFunction& input = {}, const OutputFunction& output = {});

}  // namespace tutti::parallel
