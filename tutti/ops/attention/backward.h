// The backward kernel of attention.
#pragma once

#include "tutti/ops/engine/op_def.h"

namespace tutti::attention {

// Inputs g, q, k, v, o, lse, first_key, last_key and maybe a mask; outputs dq, dk, dv.
void kernel_backward(const OpCall& call, std::span<const Tensor> outputs);
// See OpDef::room.
int64_t room_of_backward(const OpCall& call, int64_t threads);

}  // namespace tutti::attention
