// The backward kernel of attention.
#pragma once

#include "tutti/ops/engine/op_def.h"

namespace tutti::attention {

// Inputs g, q, k, v, o, lse, first_key, last_key and maybe a mask; outputs dq, dk, dv.
void kernel_backward(const OpCall& call, std::span<const Tensor> outputs);

}  // namespace tutti::attention
