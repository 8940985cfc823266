// The experts of a run: their loads are counted over all ranks, and balanced once a step.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "tutti/train/step/expert_load.h"

namespace tutti::nn {
class Module;
struct NamedMoE;
}  // namespace tutti::nn
namespace tutti::comm {
class ProcessGroup;
}

namespace tutti::train {

class ExpertBalance {
 public:
  // Balances the layers of experts of `model`, which must outlive this. `group`: the ranks that share the batch and its
  // tokens, null: one rank. A coefficient of 0 leaves the biases as they are (optim/expert_balance.h).
  ExpertBalance(nn::Module& model, double coefficient, comm::ProcessGroup* group);
  ~ExpertBalance();

  // Call before the first forward of a step: what a step that was given up has counted is forgotten.
  void begin_step();
  // Call when all shards of the step have run and before the optimizer changes anything. Adds the counts of the ranks
  // and moves the biases of all routers, equally on every rank; returns the loads. Collective; a model without experts
  // communicates nothing.
  std::vector<ExpertLoad> finish_step();

  // The state that the next step needs of this one, and its loads: of a run that outlives a rank. Empty for a model
  // without experts. `loads` are those of finish_step(), or none before the first step.
  std::vector<std::byte> record(std::span<const ExpertLoad> loads) const;
  // The biases of a record again, and its loads.
  std::vector<ExpertLoad> restore(std::span<const std::byte> record);

 private:
  const std::vector<nn::NamedMoE> layers_;
  const double coefficient_;
  comm::ProcessGroup* const group_;
};

}  // namespace tutti::train
