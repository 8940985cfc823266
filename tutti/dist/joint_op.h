// Ops that ranks compute jointly: where they talk to each other in the middle of an op, which no row of a sharding rule
// says.
#pragma once

#include <functional>
#include <span>

#include "tutti/ops/engine/op_def.h"

namespace tutti::dist {

// Gets a call with distributed tensors below autograd, and sets its outputs, distributed tensors with the bits of the
// undivided call; or returns false, and the call goes by its sharding rule. It decides by layouts, sizes and attrs
// alone, so that all ranks decide alike. Plain tensors may stand among the inputs.
using JointFunction = std::function<bool(const OpCall& call, std::span<Tensor> outputs)>;

// From now on calls of `op` go to `function` first; a second one takes the place of the first. For the process; call it
// before the op is used on distributed tensors.
void register_joint(const OpDef& op, JointFunction function);

// For the stage of distributed tensors.
bool run_jointly(const OpCall& call, std::span<Tensor> outputs);

}  // namespace tutti::dist
