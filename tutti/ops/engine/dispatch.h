// apply(): the single entry point of op calls, and the stages that a call passes through.
//
// A tensor carries the bits of the stages it takes part in; a thread adds and masks bits. A call is passed to the
// stages from the highest bit down, each of which handles it or passes it on; without any bit it runs eagerly. A stage
// gets its bit when it is registered, and says only where it belongs: what autograd records, sharding may split, a
// trace may keep, and kernels run.
#pragma once

#include <span>
#include <string>

#include "tutti/ops/engine/op_def.h"

namespace tutti {

// Where a stage stands among the others, from the kernels up. Each place has room for kStagesPerPlace stages.
enum class StagePlace : uint8_t { kernels, capture, sharding, autograd };
inline constexpr int kStagesPerPlace = 4;
// The bits of all stages of a place, registered or not.
constexpr StageMask mask_of(StagePlace place) {
  return static_cast<StageMask>(((1u << kStagesPerPlace) - 1) << (kStagesPerPlace * static_cast<int>(place)));
}

// A dispatch stage; lives as long as the process. Called from any thread.
class Stage {
 public:
  virtual ~Stage() = default;
  // Computes `outputs`, usually by calling apply() again with this stage excluded.
  virtual void handle(const OpCall& call, std::span<Tensor> outputs) = 0;
};

// Registers `stage` under `name`, which must outlive it, and returns the bit that tensors and threads carry in order to
// pass their calls through it. Of the stages of one place, those that were registered first come first. UsageError when
// the place is full or the name is taken. May be called from any thread.
StageMask register_stage(const char* name, StagePlace place, Stage* stage);
// The names of the stages whose bits are in `mask`, as in "autograd, capture", from the highest down.
std::string stage_names(StageMask mask);

// Runs `op`: checks the number of inputs, infers shapes and dtypes, and dispatches. `outputs` has op.num_outputs
// elements.
void apply(const OpDef& op, std::span<const Tensor> inputs, const Attrs& attrs, std::span<Tensor> outputs);

// Shorthands for ops with one output.
Tensor apply1(const OpDef& op, std::span<const Tensor> inputs, const Attrs& attrs = {});
template <class... T>
Tensor call_op(const OpDef& op, const Attrs& attrs, const T&... inputs) {
  const Tensor list[] = {inputs...};
  return apply1(op, list, attrs);
}

// Adds stages to, or removes them from, every call on this thread while the scope lives.
class StageScope {
 public:
  StageScope(StageMask add, StageMask remove);
  ~StageScope();
  StageScope(const StageScope&) = delete;
  StageScope& operator=(const StageScope&) = delete;

 private:
  StageMask added_, removed_;
};
StageMask removed_stages();  // of this thread
// Replaces the set of stages that are removed from calls on this thread.
class ReplaceRemovedScope {
 public:
  explicit ReplaceRemovedScope(StageMask removed);
  ~ReplaceRemovedScope();
  ReplaceRemovedScope(const ReplaceRemovedScope&) = delete;
  ReplaceRemovedScope& operator=(const ReplaceRemovedScope&) = delete;

 private:
  StageMask previous_;
};

// Must run before the inputs that `call` writes are written: increments their versions. UsageError when one cannot be
// written because its memory is read-only or its elements overlap. For stages.
void begin_writes(const OpCall& call);
// Must run when the outputs are complete: rebinds the inputs that the op declares in OpDef::becomes. For stages.
void finish_rebinding(const OpCall& call, std::span<const Tensor> outputs);
// Whether writing `target` elementwise could change elements of `x` that are read later. Only address ranges are
// compared, so two tensors that interleave without overlapping count as well, which merely costs a copy.
bool is_tangled(const Tensor& target, const Tensor& x);

// Runs the op's kernel directly, without any stage. For stages and tests.
void run_eager(const OpCall& call, std::span<Tensor> outputs);
// Runs the op's reference kernel, with the same contract as run_eager().
void run_reference(const OpCall& call, std::span<Tensor> outputs);

}  // namespace tutti
