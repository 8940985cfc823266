// apply(): the one way an op is called, and the stages a call passes.
//
// A tensor carries the bits of the stages it takes part in, a thread has bits it adds and bits it masks; when none is
// left the call runs eagerly. Stages are asked from the highest bit down; each handles the call or passes it on.
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

// Installs `stage` for `bit` (0 to 15, one stage each). InternalError when the place is taken.
void install_stage(StageBit bit, Stage* stage);

// Runs `op`. Checks the number of inputs, infers, dispatches. `outputs` has op.num_outputs places.
void apply(const OpDef& op, std::span<const Tensor> inputs, const Attrs& attrs, std::span<Tensor> outputs);

// The common forms.
Tensor apply1(const OpDef& op, std::span<const Tensor> inputs, const Attrs& attrs = {});
template <class... T>
Tensor call_op(const OpDef& op, const Attrs& attrs, const T&... inputs) {
  const Tensor list[] = {inputs...};
  return apply1(op, list, attrs);
}

// Thread modes: stages added to or taken from every call on this thread while the scope lives.
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
// Sets exactly which stages are taken from calls on this thread.
class ReplaceRemovedScope {
 public:
  explicit ReplaceRemovedScope(StageMask removed);
  ~ReplaceRemovedScope();
  ReplaceRemovedScope(const ReplaceRemovedScope&) = delete;
  ReplaceRemovedScope& operator=(const ReplaceRemovedScope&) = delete;

 private:
  StageMask previous_;
};

// What comes before the inputs that `call` writes are written: their versions rise. UsageError when one cannot be
// written: read-only memory, or elements that are the same memory. For stages.
void begin_writes(const OpCall& call);
// What comes after the outputs are there: inputs that the op declares so become them. For stages.
void finish_rebinding(const OpCall& call, std::span<const Tensor> outputs);
// Whether `x` reads memory that writing `target` changes, other than element by element. Ranges decide: two tensors that
// interleave without meeting count too, which costs a copy and no more.
bool is_tangled(const Tensor& target, const Tensor& x);

// Runs the op's own kernel now, without any stage. For stages and tests.
void run_eager(const OpCall& call, std::span<Tensor> outputs);
// Runs the op's reference kernel; same contract as run_eager.
void run_reference(const OpCall& call, std::span<Tensor> outputs);

}  // namespace tutti
