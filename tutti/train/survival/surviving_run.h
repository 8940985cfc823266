// SurvivingRun: the steps of a run that outlives a rank (docs/surviving.md), as one rank of a team takes them.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tutti/comm/process_group.h"
#include "tutti/nn/module.h"
#include "tutti/train/survival/survival.h"
#include "tutti/train/survival/surviving_state.h"
#include "tutti/train/survival/survivors.h"

namespace tutti::train {

class SurvivingRun final : public Survival {
 public:
  // `model` has no values yet; `survivors` and `group` must outlive this. `extra_bytes`: of what a step changes beside
  // parameters and optimizer.
  SurvivingRun(Survivors& survivors, comm::ProcessGroup& group, const Config& config, const nn::Module& model,
               size_t extra_bytes);

  bool holds_state() const override { return true; }
  MasterMemory master_memory() const override;
  StateMemory state_memory() const override;
  void share_masters(const nn::Module& model) const override;

  bool is_begun() const override { return is_begun_; }
  std::optional<Left> recover(optim::Optimizer& optimizer) override;
  void begin(const TrainState& state, const optim::Optimizer& optimizer, std::span<const std::byte> extra) override;

  void note_beginning() override;
  // Says that this rank has prepared the step, and applies it when all have. Throws TeamIsOver, with masters and state
  // as before, when a rank was lost first.
  void step(std::span<const Tensor> gradients, const StepFacts& facts, optim::Optimizer& optimizer,
            std::span<const std::byte> extra) override;
  void note_save(int64_t step) override {
    if (is_first()) state_.begun_save().store(step);
  }
  int64_t begun_save() const override { return state_.begun_save().load(); }
  void note_finished(int64_t step) override;
  bool is_replaced() const override { return survivors_.is_replaced(); }
  void note_over() override {
    if (is_first()) state_.is_over().store(1);
  }
  bool is_over() const override { return state_.is_over().load() != 0; }
  void note_done() override { survivors_.job->note_done(); }

  void add_memory(MemoryStatistics& memory) const override;
  bool is_lost_at(std::string_view point, int64_t step) const override;

 private:
  void write_gradients(std::span<const Tensor> stored);
  void apply(const StepFacts& facts, optim::Optimizer& optimizer);
  // The deaths that the log does not tell of yet, and the seconds that they cost until now.
  std::vector<LostRank> untold() const;
  bool is_first() const { return survivors_.rank == 0; }

  Survivors& survivors_;
  comm::ProcessGroup& group_;
  SurvivingState state_;
  const bool is_begun_;
  const int64_t last_step_;   // of the run
  int64_t committed_ = 0;     // of the last recover() or step()
  int64_t lost_in_ = 0;       // the step in which the ranks were lost that untold() names
  size_t told_ = 0;           // the deaths that the log tells of after the next step
  int64_t cut_since_ns_ = 0;  // when the step began that was given up; 0: none was
};

}  // namespace tutti::train
