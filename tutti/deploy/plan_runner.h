// Runs a plan: what an Executable does, for plans that draw no random numbers. Their collectives run in the groups of
// the thread (BoundGroupsScope).
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "tutti/deploy/plan.h"
#include "tutti/plan/control_step.h"
#include "tutti/tensor/tensor.h"

namespace tutti::deploy {

// Immutable once constructed; may be called by any number of threads at once.
class PlanRunner {
 public:
  // The kernels of the plan are set, and check_plan() has accepted it.
  explicit PlanRunner(Plan plan);
  ~PlanRunner();

  // Runs the plan on the memory of its sources, of which it may write what is no constant; returns its results. into:
  // empty, or per result a dense tensor, which then holds it. Throws what the ops throw; the ops before have then
  // written, and none after.
  std::vector<Tensor> run(std::span<const Tensor> sources, std::span<const Tensor> into = {}) const;
  const Plan& plan() const { return plan_; }
  int64_t arena_bytes() const { return arena_bytes_; }

 private:
  struct Frame;
  // Ordered calls return while what they have started goes on; the first step that touches an output waits for it.
  struct Wait {
    size_t step, output;
  };
  void plan_waits();
  void wait(const std::vector<Wait>& waits, Frame& frame) const;
  void plan_memory();
  void run_steps(Frame& frame) const;
  std::unique_ptr<Frame> take_frame() const;
  Tensor tensor_of(const graph::Value& v, const Frame& frame) const;
  void run_step(size_t index, Frame& frame) const;
  void run_kernel(const graph::KernelStep& step, const Frame& frame) const;
  void run_call(size_t index, const graph::CallStep& step, Frame& frame) const;
  void run_control(const graph::CallStep& step, std::span<const Tensor> inputs, const Frame& frame) const;
  void run_with_blocks(const graph::CallStep& step, const OpCall& call, std::span<const Tensor> outputs,
                       const Frame& frame) const;
  [[noreturn]] void refuse_zero(const graph::KernelStep& kernel) const;

  Plan plan_;
  std::vector<int64_t> arena_offsets_;                               // per buffer; -1: not in the arena
  std::vector<bool> is_result_;                                      // made buffers that the caller gets
  std::vector<std::unique_ptr<const graph::ControlStep>> controls_;  // of the plan
  std::vector<std::string> group_of_;     // per step: of an ordered call; empty when the plan has none
  std::vector<std::vector<Wait>> waits_;  // per step, and behind the last; empty when the plan has no ordered call
  std::vector<int32_t> only_result_;      // per buffer: the one result that is all of it; -1: none, or several
  int64_t arena_bytes_ = 0;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Frame>> frames_;  // of calls that have ended
};

}  // namespace tutti::deploy
