// fully_shard: parameters, gradients and optimizer state divided over data-parallel ranks (FSDP), docs/fsdp.md.
//
//   for (auto& block : *model.layers) fully_shard(*block, {.mesh = mesh});
//   const ShardedModule sharded = fully_shard(model, {.mesh = mesh});   // the parameters that no block has taken
//   nn::initialize(model);                                              // each rank draws what it stores
//   const auto optimizer = optim::make_adamw(model.named_parameters());
//   parallel::Shards shards(8, &group, nn::leaves_of(optimizer->parameters()));
//   ... a training loop as with whole parameters (shards.h) ...
//
// Each rank stores, steps and saves its rows of every parameter: the master, a distributed tensor. Forward and backward
// read whole parameters, in the dtype of use. Ranks of one host read one copy of them, in pages that they share, and
// nothing is gathered; other ranks gather a group when it is read, and may give it back between forward and backward.
// The bits are those of one rank.
//
// All ranks make the same calls in the same order. One thread of a rank uses a sharded module.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tutti/dist/device_mesh.h"
#include "tutti/dist/spec.h"
#include "tutti/nn/module.h"

namespace tutti::parallel {

class ShardGroup;

// Whether a rank gives whole copies back after forward and gathers them again for backward; or a number of ranks, among
// which they are then kept.
using ReshardAfterForward = std::variant<bool, int64_t>;

// How replicas of divided parameters keep masters, reduced gradients and optimizer state.
enum class OuterDpSharding : uint8_t {
  no_shard,  // each replica has them as it has the parameters
  optim,     // all ranks of the mesh divide them
};
// Parses "no_shard" or "optim". UsageError for another text.
OuterDpSharding parse_outer_dp_sharding(std::string_view text);

struct FullyShardOptions {
  // The data-parallel ranks, for a model that parallelize_module() has divided the slice of its mesh that they are: one
  // dim, over which parameters are divided; or two with names, the first of which holds replicas (HSDP). Null: all
  // ranks of the world.
  dist::Mesh mesh = {};
  // Whether a rank gives the copies of this module's parameters back after forward and gathers them again for backward.
  // Ranks that share pages have nothing to give back. Unset: yes, but for the module at the root of the tree. A number
  // n, which divides that of the ranks: after forward each rank keeps 1/n of the copies, and backward gathers them
  // among n neighbours, such as those of a host. 1 is false and all ranks are true; another number is refused where
  // ranks share pages.
  std::optional<ReshardAfterForward> reshard_after_forward = {};
  // With a mesh of two dims: `optim` has each rank store, step and save a piece of what its shard of the first dim's
  // replicas would, while copies are divided over the second dim only. After each step replicas gather the pieces of
  // their part, in the dtype of use, and keep it. Where all ranks of the mesh share memory they read one copy and
  // nothing is gathered.
  OuterDpSharding outer_dp_sharding_strategy = OuterDpSharding::no_shard;
  // The dim that is cut, -ndim to ndim - 1; unset: 0. Any size can be cut over any number of ranks: the last ones may
  // store less, or nothing.
  std::function<int(const nn::NamedParameter&)> shard_dim = {};
  // Memory for the whole master of a parameter, of its sizes and dtype, in which each rank has its part: for ranks that
  // share memory, which may hold values already (docs/surviving.md). Unset: each rank has its part in memory of its
  // own, or in the pages of the copy.
  std::function<Tensor(const nn::NamedParameter&)> memory = {};
  // Parameters that every rank keeps whole.
  std::vector<nn::Parameter> ignored_params = {};
};

// A handle to the shard group that fully_shard() made.
class ShardedModule {
 public:
  // Names of the parameters of this module's own group.
  const std::vector<std::string>& parameters() const;
  // Whether the ranks read the same pages.
  bool is_shared() const;
  // Whether whole copies are there.
  bool is_unsharded() const;
  int64_t stored_bytes() const;  // of the masters on this rank
  int64_t copy_bytes() const;    // of the whole copies
  // The same for this group and those of all modules below it together.
  int64_t all_stored_bytes() const;
  int64_t all_copy_bytes() const;
  // The memory of pages that this rank gives to the copies that ranks read together; 0: they share none.
  int64_t shared_page_bytes() const;

  // Makes the copies whole ahead of the read that would do it. Collective.
  void unshard() const;
  // Gives copies that are not shared back.
  void reshard() const;
  void set_reshard_after_forward(bool on) const;

  // How many groups are gathered ahead, by default 1; 0: none. The order is that of the round before, in forward and in
  // backward, so that no lists are needed. Each takes the memory of two copies of a group. It counts for all groups of
  // the model, and is the same on all ranks.
  void set_prefetch(int groups) const;
  // Which modules' copies are gathered ahead, in this order, from the moment that forward of this module begins, or its
  // backward, instead of the number of groups that set_prefetch() says: several in a list overlap more, and each takes
  // the memory of its copies until it is read. What is whole or on its way is left out, and what no one reads is
  // dropped when the next shard begins (shards.h). An empty list is as before. Ranks that share pages gather nothing,
  // and compiled functions gather in an order of their own. The same on all ranks, and after the whole model was
  // sharded. UsageError, naming it and those that can be, for a module that fully_shard() was not called for.
  void set_modules_to_forward_prefetch(std::span<nn::Module* const> modules) const;
  void set_modules_to_backward_prefetch(std::span<nn::Module* const> modules) const;

 private:
  friend ShardedModule fully_shard(std::span<nn::Module* const> modules, const FullyShardOptions& options);
  friend class UnshardedScope;
  explicit ShardedModule(std::shared_ptr<ShardGroup> group) : group_(std::move(group)) {}
  std::shared_ptr<ShardGroup> group_;
};

// Shards all parameters of the module and those below it that no earlier call has taken; they become one group. So call
// it from the inside out: for every block, then for the whole. Names stay. Values are kept where there are some;
// parameters without memory get memory for the rows of this rank only. Make Shards, optimizers and compiled functions
// afterwards, and choose dtypes of use before (Module::to). Collective.
//
// Parameters that parallelize_module() has divided are divided further: each rank stores its rows of its part, and
// forward reads the part. Their dims are cut by halving, not as torch.chunk does.
//
// Modules inside may have been sharded over some of the ranks, such as experts that the others divide
// (expert_parallel.h).
//
// The calls of all ranks are compared before anything changes: modules, options, and what becomes of each parameter.
// UsageError for a mesh of more than two dims or of two without names, and a rank outside of it, which each rank finds
// by itself; on every rank of the mesh, naming parameter or module, when the calls differ, and when one rank refuses
// its own: for a scalar, a reshard_after_forward that has no meaning, a parameter that is distributed over the same
// dims or over a mesh that has another origin, a dim that it does not have, and when the module, or one that it lies
// in, was sharded before.
//
// Parameters that had no values have none afterwards, and reads of them are refused, until nn::initialize() or loading
// weights has written them. Forward runs what ranks do around it, such as giving copies back, when the module is called
// as a child or by nn::call(). A program that calls forward() itself has the same bits: copies are made whole when they
// are read, stay until backward has the gradients, and no list of modules is gathered ahead.
ShardedModule fully_shard(nn::Module& module, const FullyShardOptions& options = {});
// Several modules whose parameters become one group: the copies are gathered before the first of the list and given
// back after its last: name them in the order in which they run.
ShardedModule fully_shard(std::span<nn::Module* const> modules, const FullyShardOptions& options = {});

// While this lives, all parameters of the model stay whole: for code that does not run alike on all ranks, such as
// sampling on one of them. Making it is collective.
class UnshardedScope {
 public:
  explicit UnshardedScope(const ShardedModule& root);
  ~UnshardedScope();
  UnshardedScope(const UnshardedScope&) = delete;
  UnshardedScope& operator=(const UnshardedScope&) = delete;

 private:
  std::shared_ptr<ShardGroup> root_;
};

}  // namespace tutti::parallel
