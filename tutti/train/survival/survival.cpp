#include "tutti/train/survival/survival.h"

#include "tutti/optim/optimizer.h"
#include "tutti/train/survival/planted_loss.h"
#include "tutti/train/survival/surviving_run.h"

namespace tutti::train {

Survival::MasterMemory Survival::master_memory() const { return nullptr; }
Survival::StateMemory Survival::state_memory() const { return nullptr; }

void Survival::step(std::span<const Tensor> gradients, const StepFacts& facts, optim::Optimizer& optimizer,
                    std::span<const std::byte>) {
  optimizer.step(gradients, facts.lr, facts.grad_scale);
}

void Survival::may_be_lost_at(std::string_view point, int64_t step) const {
  if (is_lost_at(point, step)) lose_this_rank();
}

std::string state_left_in(const Survivors* survivors) { return survivors == nullptr ? "" : survivors->job->text(); }

std::unique_ptr<Survival> make_survival(Survivors* survivors, comm::ProcessGroup* group, const Config& config,
                                        const nn::Module& model, size_t extra_bytes) {
  if (survivors == nullptr) return std::make_unique<Survival>();
  return std::make_unique<SurvivingRun>(*survivors, *group, config, model, extra_bytes);
}

}  // namespace tutti::train
