// apply(): the single entry point of op calls, and the stages that a call passes through.
//
// A tensor carries the bits of the stages it takes part in; a thread adds and masks bits. A call is passed to the stages from
// the highest bit down, each of which handles it or passes it on; without any bit it runs eagerly.
#pragma once

#include <span>

#include "tutti/ops/engine/op_def.h"

namespace tutti {

enum class StageBit : int { capture = 4, dtensor = 8, autograd = 12 };
constexpr StageMask mask_of(StageBit bit) { return static_cast<StageMask>(1u << static_cast<int>(bit)); }

// A dispatch stage; lives as long as the process. Called from any thread.
class Stage {
 public:
  virtual ~Stage() = default;
  // Computes `outputs`, usually by calling apply() again with this stage excluded.
  virtual void handle(const OpCall& call, std::span<Tensor> outputs) = 0;
};

// Installs `stage` for `bit` (0 to 15, one stage each). InternalError when the bit is already in use.
void install_stage(StageBit bit, Stage* stage);

// Runs `op`: checks the number of inputs, infers shapes and dtypes, and dispatches. `outputs` has op.num_outputs elements.
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
// Whether writing `target` elementwise could change elements of `x` that are read later. Only address ranges are compared, so two
// tensors that interleave without overlapping count as well, which merely costs a copy.
bool is_tangled(const Tensor& target, const Tensor& x);

// Runs the op's kernel directly, without any stage. For stages and tests.
void run_eager(const OpCall& call, std::span<Tensor> outputs);
// Runs the op's reference kernel, with the same contract as run_eager().
void run_reference(const OpCall& call, std::span<Tensor> outputs);

}  // namespace tutti
