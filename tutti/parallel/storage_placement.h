// Storage placements: which rows of a parameter a rank stores, steps and saves, while forward reads the whole
// (docs/fsdp.md).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/dist/spec.h"
#include "tutti/tensor/tensor.h"

namespace tutti::comm {
class ProcessGroup;
}

namespace tutti::parallel {

class ShardGroup;

// Attached to a leaf that fully_shard() has divided over data ranks: the layout of what the leaf is on this rank,
// [S(d)] on a mesh of one dim, or [R, S(d)] on one of two, whose first dim then holds replicas, or [S(d), S(d)] whose
// second dim cuts first, where those divide further what they store. Where the leaf itself is a distributed tensor
// (tensor_parallel.h), that is the layout of this rank's part of it, and the master is placed on the dims of both
// meshes.
struct StoragePlacement final : TensorExtension {
  StoragePlacement(const dist::DTensorSpec& spec, dist::Mesh mesh, Tensor master, std::weak_ptr<ShardGroup> group,
                   std::function<void(const Tensor&)> finished)
      : spec(&spec),
        mesh(std::move(mesh)),
        master(std::move(master)),
        group(std::move(group)),
        finished(std::move(finished)) {}

  const dist::DTensorSpec* spec;
  dist::Mesh mesh;                                   // of the data ranks
  Tensor master;                                     // a distributed tensor
  std::weak_ptr<ShardGroup> group;                   // that the parameter belongs to
  std::function<void(const Tensor& leaf)> finished;  // called when a backward has its gradient
};

// The one of a leaf; null: every rank stores the whole.
const StoragePlacement* storage_placement_of(const Tensor& leaf);
void set_storage_placement(const Tensor& leaf, std::unique_ptr<StoragePlacement> placement);

// fully_shard() gives a parameter another leaf: marks the one of before, so that who holds it still can say so.
void mark_replaced(const Tensor& leaf, std::string parameter);
// UsageError, naming the parameter, when `leaf` was one before fully_shard() sharded its parameter. `what` holds it:
// "Shards".
void check_is_current(const Tensor& leaf, std::string_view what = "Shards");

// Which part of each parameter the data ranks keep of its gradient. Rank r of the group is replica r / shards, and
// keeps part r % shards. Where all ranks divide what they store, there are as many shards as ranks.
class GradientPlacements {
 public:
  // The parts of one parameter: indices of `dim`, per part. No ranges: every rank keeps the whole.
  struct Cut {
    int dim = 0;
    std::vector<dist::Range> ranges = {};
    bool is_cut() const { return !ranges.empty(); }
  };
  // Every rank keeps the whole of all.
  GradientPlacements(size_t parameters, int rank, int ranks) : cuts_(parameters), rank_(rank), ranks_(ranks) {}
  // As the placements of the leaves say, for the ranks of `group`; null: one rank. UsageError, naming the parameter,
  // where a mesh does not have the group's ranks in its order, or not the dims of the other parameters' meshes.
  GradientPlacements(const std::vector<Tensor>& leaves, const comm::ProcessGroup* group);

  const Cut& of(size_t parameter) const { return cuts_[parameter]; }
  int shards() const { return shards_; }
  int replicas() const { return ranks_ / shards_; }
  int shard() const { return rank_ % shards_; }
  int replica() const { return rank_ / shards_; }
  // The ranks that keep this rank's part; null: none but this one.
  comm::ProcessGroup* replica_group() const { return replica_group_; }
  // The sizes of this rank's part of a parameter of those sizes.
  Extents part_sizes(size_t parameter, Extents sizes) const;

 private:
  std::vector<Cut> cuts_;
  int rank_ = 0, ranks_ = 1, shards_ = 1;
  comm::ProcessGroup* replica_group_ = nullptr;
};

}  // namespace tutti::parallel
