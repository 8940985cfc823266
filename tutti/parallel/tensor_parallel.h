// Tensor and sequence parallelism: a model stays as it is written, and a plan, which is data, says how the ranks of a
// mesh divide its modules (docs/tensor_parallel.md).
//
//   const dist::Mesh mesh = dist::init_device_mesh("cpu", {4}, {.names = {"tp"}});
//   parallel::parallelize_module(block, mesh, {{"mlp.up", parallel::ColwiseParallel{}},
//                                              {"mlp.down", parallel::RowwiseParallel{}}});
//   nn::initialize(block);   // each rank draws what it stores
//
// Styles are those of PyTorch. Modules are written for the sizes of the whole, and their results stay distributed
// tensors unless a style says use_local_output. In strict mode losses and gradients have the bits of one rank.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tutti/dist/dtensor.h"
#include "tutti/nn/module.h"

namespace tutti::parallel {

// Layouts are placements on the one dim of the mesh. A plain tensor where a style expects an input is this rank's part
// in `input_layouts`; a distributed one is moved there from its own layout.

// nn::Linear: weight and bias are cut by output features; nn::Embedding: the table is cut by columns. The input becomes
// Replicate.
struct ColwiseParallel {
  Placement input_layouts = dist::replicate();
  Placement output_layouts = dist::shard(-1);
  bool use_local_output = false;
};

// nn::Linear: the weight is cut by input features, and the bias, which every rank has, is added once; nn::Embedding:
// the table is cut by rows (vocabulary parallelism), and the input becomes Replicate. The terms of the result are added
// by the ranks: as all_reduce into Replicate, as reduce_scatter into a shard.
struct RowwiseParallel {
  std::optional<Placement> input_layouts = {};  // unset: Shard(-1), for an Embedding Replicate
  Placement output_layouts = dist::replicate();
  bool use_local_output = false;
};

// Norms, dropout, anything that treats tokens alike: parameters are on every rank, activations are cut along
// `sequence_dim`.
struct SequenceParallel {
  int sequence_dim = 1;
  bool use_local_output = false;
};

// Where the tensors among the arguments of forward, in their order, are brought before it runs. Unset ones stay as they
// are, and so do those that no entry is for.
struct PrepareModuleInput {
  std::vector<std::optional<Placement>> input_layouts = {};
  std::vector<std::optional<Placement>> desired_input_layouts = {};
  bool use_local_output = false;  // forward gets the parts
};

// Where the result of forward is brought.
struct PrepareModuleOutput {
  std::optional<Placement> output_layouts = {};  // of a plain result
  Placement desired_output_layouts = dist::replicate();
  bool use_local_output = false;
};

struct PrepareModuleInputOutput {
  PrepareModuleInput input = {};
  PrepareModuleOutput output = {};
};

using ParallelStyle = std::variant<ColwiseParallel, RowwiseParallel, SequenceParallel, PrepareModuleInput,
                                   PrepareModuleOutput, PrepareModuleInputOutput>;
std::string_view name_of(const ParallelStyle& style);

// The style of the modules whose full names match a pattern, in which * stands for any characters but a dot:
// "layers.*.mlp.up". "" is the module itself.
struct PlanEntry {
  std::string pattern;
  ParallelStyle style;
};
using ParallelPlan = std::vector<PlanEntry>;

// Divides the module, and all below it, over the ranks of a mesh of one dim: parameters become distributed tensors as
// the plan says, and Replicate where it says nothing; so do buffers. Parameters without values get memory for the part
// of this rank only; those that have values must have those of all ranks. Distributed tensors that the plan does not
// name, such as experts (expert_parallel.h), stay as they are. A tied weight stays tied. Call it before gradients,
// hooks and optimizers are set up. Collective. Enables loss parallelism (loss_parallel.h).
//
// Frozen parameters (Parameter::freeze) stay frozen, and a rank reads its part where the whole is. Of those that hold
// quantized blocks a rank has whole rows, or, for RowwiseParallel, as many blocks of each row, where the cuts are
// borders of the tree of the product (numerics contract, N12): elsewhere the layer is computed as a ColwiseParallel
// one, from inputs that are gathered. So any number of ranks can divide them with the bits of one rank.
//
// UsageError, before anything changes: for a mesh of several dims or without this rank, a pattern that no module
// matches (with the nearest name), a style for a module that it does not fit, two styles that place one parameter
// differently, and in strict mode for a mesh whose ranks cannot cut a sum at borders of its tree (numerics contract,
// N3), naming the module and the largest legal degree; and on all ranks when their plans or modules differ.
void parallelize_module(nn::Module& module, const dist::Mesh& mesh, const ParallelPlan& plan);
// The same style for the module itself.
void parallelize_module(nn::Module& module, const dist::Mesh& mesh, const ParallelStyle& style);

// The largest number of ranks, a power of two, over which the plan can divide the module in strict mode.
int64_t largest_parallel_degree(nn::Module& module, const ParallelPlan& plan);

}  // namespace tutti::parallel
