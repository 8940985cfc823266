// LastingRun: the steps of a run that outlives a rank (docs/surviving.md), as one rank of a team takes them.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "tutti/comm/process_group.h"
#include "tutti/nn/module.h"
#include "tutti/optim/optimizer.h"
#include "tutti/runtime/allocator.h"
#include "tutti/train/config/config.h"
#include "tutti/train/report/metrics.h"
#include "tutti/train/survival/lasting_state.h"
#include "tutti/train/survival/survivors.h"

namespace tutti::train {

class LastingRun {
 public:
  // `model` has no values yet; `survivors` and `group` must outlive this. `extra_bytes`: of what a step changes beside
  // parameters and optimizer.
  LastingRun(Survivors& survivors, comm::ProcessGroup& group, const Config& config, const nn::Module& model,
             size_t extra_bytes);

  // Memory for masters, for fully_shard(), and for the optimizer's state.
  std::function<Tensor(const nn::NamedParameter&)> master_memory() const;
  optim::StateMemory state_memory() const;
  // Parameters that are not divided: all ranks read the same masters.
  void share_masters(const nn::Module& model) const;

  // Whether a team before has left the state of the run.
  bool is_begun() const { return is_begun_; }
  // The first values are in the masters and the optimizer's state. Collective.
  void begin(const StepFacts& facts, const std::string& text, std::span<const std::byte> extra);
  // Finishes the step that the team before has committed, and returns its record. Collective.
  StepFacts recover(optim::Optimizer& optimizer);
  // What was given with the step that recover() has returned.
  std::span<const std::byte> recovered_extra() const { return state_.extra(committed_); }

  // A step: says that this rank has prepared it, and applies it when all have. Throws TeamIsOver, with masters and
  // state as before, when a rank was lost first. Collective.
  void step(std::span<const Tensor> gradients, const StepFacts& facts, optim::Optimizer& optimizer,
            std::span<const std::byte> extra);

  // The step begins; what comes before is committed.
  void note_beginning();
  // All that follows the last step is done; the log tells of the first `told` deaths.
  void note_finished(int64_t step, size_t told);
  // A checkpoint of the step is begun.
  void note_save(int64_t step) {
    if (is_first()) state_.begun_save().store(step);
  }
  int64_t begun_save() const { return state_.begun_save().load(); }
  void note_over() { state_.is_over().store(1); }
  bool is_over() const { return state_.is_over().load() != 0; }
  int64_t finished() const { return state_.finished().load(); }
  bool is_replaced() const { return survivors_.is_replaced(); }

  // The deaths that the log does not tell of yet, and the seconds that they cost until now.
  std::vector<LostRank> untold() const;
  size_t told() const { return static_cast<size_t>(state_.told_deaths().load()); }
  // The pages that the ranks give in equal parts, added to what this rank has.
  void add_memory(MemoryStatistics& memory) const;

 private:
  void write_gradients(std::span<const Tensor> stored);
  void apply(const StepFacts& facts, optim::Optimizer& optimizer);
  bool is_first() const { return survivors_.rank == 0; }

  Survivors& survivors_;
  comm::ProcessGroup& group_;
  LastingState state_;
  const bool is_begun_;
  int64_t committed_ = 0;     // of the last recover() or step()
  int64_t lost_in_ = 0;       // the step in which the ranks were lost that untold() names
  int64_t cut_since_ns_ = 0;  // when the step began that was given up; 0: none was
};

}  // namespace tutti::train
