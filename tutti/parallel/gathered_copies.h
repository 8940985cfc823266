// Copies of this rank's own, which ranks that share no memory gather from each other's parts: one collective for all
// parameters of a group.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tutti/parallel/copy_source.h"
#include "tutti/parallel/group_parameters.h"
#include "tutti/parallel/replica_pieces.h"

namespace tutti::parallel {

class GatheredCopies final : public CopySource {
 public:
  // `name` is the group's, for traces. `reshard_degree`: among how many ranks copies are kept after forward.
  // `begin_all_pieces` is called where pieces of replicas are needed: it starts them for all groups of the model.
  // `parameters` must outlive this. Collective.
  GatheredCopies(GroupParameters& parameters, const std::string& name, int64_t reshard_degree,
                 std::function<void()> begin_all_pieces);

  bool is_whole() const override;
  // Does nothing where copies are whole and up to date, or on their way.
  void begin() override;
  void finish() override;
  void drop() override;
  void release() override;
  void release_but_own_part() override;
  bool has_neighbours() const override { return neighbours_ != nullptr; }
  bool has_own_part() const override { return std::holds_alternative<Kept>(state_); }
  void forget_neighbours() override;
  void begin_pieces() override;

 private:
  struct GivenBack {};
  struct Whole {};
  struct Kept {  // this rank's part of the copies, of those versions of its masters, between forward and backward
    Tensor bytes;
    std::vector<int64_t> versions;
  };
  struct Gathering {
    Gather gather;
    bool is_over_older;  // whole copies of older masters are there meanwhile
  };
  void join_pieces();
  Tensor own_bytes();
  void write(const std::vector<Tensor>& parts_of_ranks);

  GroupParameters& parameters_;
  const char* const start_label_;  // in traces
  const std::function<void()> begin_all_pieces_;
  std::shared_ptr<comm::ProcessGroup> ranks_;       // those of the parameters; null: this rank stores all
  std::optional<ReplicaPieces> pieces_;             // of this rank's part, where replicas store them
  std::shared_ptr<comm::ProcessGroup> neighbours_;  // that keep copies together, if not all ranks and not each its own
  std::variant<GivenBack, Whole, Kept, Gathering> state_;
};

}  // namespace tutti::parallel
