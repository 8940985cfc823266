// Survival: how a run takes its steps so that it outlives a rank (docs/surviving.md).
//
// Every run has one, and nobody asks which: Survival itself is that of a run that ends with its ranks. It keeps nothing
// and steps the optimizer; SurvivingRun is the other one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/train/report/metrics.h"
#include "tutti/train/survival/step_facts.h"

namespace tutti {
class Tensor;
struct MemoryStatistics;
}  // namespace tutti
namespace tutti::comm {
class ProcessGroup;
}
namespace tutti::nn {
class Module;
struct NamedParameter;
}  // namespace tutti::nn
namespace tutti::optim {
class Optimizer;
}

namespace tutti::train {

struct Config;
struct Survivors;
struct TrainState;

class Survival {
 public:
  using MasterMemory = std::function<Tensor(const nn::NamedParameter&)>;
  using StateMemory = std::function<Tensor(const nn::NamedParameter&, std::string_view)>;
  // The state that the team before has left.
  struct Left {
    StepFacts facts;                   // of the last step that is committed
    std::span<const std::byte> extra;  // what was given with it
    std::vector<LostRank> lost;        // ranks that the log does not tell of yet
    bool is_unfinished = false;        // whether the step is neither logged nor saved
  };

  virtual ~Survival() = default;

  // Whether masters and the optimizer's state lie in memory that outlives the rank, and are stepped block by block.
  virtual bool holds_state() const { return false; }
  // That memory, for fully_shard() and for the optimizer; null: each allocates its own.
  virtual MasterMemory master_memory() const;
  virtual StateMemory state_memory() const;
  // Parameters that are not divided: all ranks read the same masters.
  virtual void share_masters(const nn::Module&) const {}

  // Whether a team before has left the state of the run.
  virtual bool is_begun() const { return false; }
  // Finishes the step that the team before has committed; nothing where there was no team before. Collective.
  virtual std::optional<Left> recover(optim::Optimizer&) { return std::nullopt; }
  // The first values are in the masters and the optimizer's state. `extra` is what a step changes beside them. Nothing
  // where a team before has left the run. Collective.
  virtual void begin(const TrainState&, const optim::Optimizer&, std::span<const std::byte> /*extra*/) {}

  // A step begins; what comes before is committed.
  virtual void note_beginning() {}
  // Takes a step. Collective.
  virtual void step(std::span<const Tensor> gradients, const StepFacts& facts, optim::Optimizer& optimizer,
                    std::span<const std::byte> extra);
  // A checkpoint of the step is begun; and the last one that was, 0: none.
  virtual void note_save(int64_t /*step*/) {}
  virtual int64_t begun_save() const { return 0; }
  // All that follows the step is done, and the log tells of the ranks that recover() has returned.
  virtual void note_finished(int64_t /*step*/) {}
  // Whether another team goes on after this step.
  virtual bool is_replaced() const { return false; }
  // All steps are taken, and what follows them is done.
  virtual void note_over() {}
  virtual bool is_over() const { return false; }
  // The same is true of every rank, so that none is missed any more.
  virtual void note_done() {}

  // Adds the pages that the ranks give in equal parts to what this rank has.
  virtual void add_memory(MemoryStatistics&) const {}

  // Whether this rank is to be lost at a point of a step (planted_loss.h).
  virtual bool is_lost_at(std::string_view /*point*/, int64_t /*step*/) const { return false; }
  void may_be_lost_at(std::string_view point, int64_t step) const;
};

// The state with which a team before has left the run in the memory of `survivors`, as state.json; "" where none has,
// or where there are no survivors.
std::string state_left_in(const Survivors* survivors);

// For the ranks of `group`. `survivors`: they outlive one of them; null: they do not. `model` has no values yet.
// `extra_bytes`: of what a step changes beside parameters and optimizer.
std::unique_ptr<Survival> make_survival(Survivors* survivors, comm::ProcessGroup* group, const Config& config,
                                        const nn::Module& model, size_t extra_bytes);

}  // namespace tutti::train
