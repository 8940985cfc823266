// Replicas that divide what they store (outer_dp_sharding_strategy = optim): each stores a piece of the part of the
// copies that they have in common, and they gather the pieces, in the dtype of use, after each step.
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "tutti/parallel/copy_source.h"
#include "tutti/parallel/group_parameters.h"

namespace tutti::parallel {

class ReplicaPieces {
 public:
  // Collective over the replicas. `parameters` must outlive this.
  explicit ReplicaPieces(const GroupParameters& parameters);

  // Starts to gather the pieces of this rank's part of some parameters; one output per replica. Collective.
  Gather begin_some(const std::vector<size_t>& which) const;

  // Whether the whole part of the present masters is there, and whether it is at least on its way.
  bool is_finished() const;
  bool is_begun() const;
  // Starts to gather the pieces of all parameters. Collective.
  void begin();
  // Waits for it.
  void finish();
  // This rank's part of the copies, the pieces one after another, as finish() left it. It is kept.
  const Tensor& bytes() const { return std::get<Joined>(state_).bytes; }

 private:
  struct Missing {};
  struct Joining {
    Tensor bytes;
    Gather gather;
  };
  struct Joined {
    Tensor bytes;
    std::vector<int64_t> versions;
  };
  Gather begin_into(const std::vector<size_t>& which, const Tensor& into) const;

  const GroupParameters& parameters_;
  const std::shared_ptr<comm::ProcessGroup> replicas_;
  std::variant<Missing, Joining, Joined> state_;
};

}  // namespace tutti::parallel
