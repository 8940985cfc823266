// The reference of attention: loops in double precision. Inputs and outputs are those of the kernels.
#pragma once

#include "tutti/ops/engine/op_def.h"

namespace tutti::attention {

void reference(const OpCall& call, std::span<const Tensor> outputs);
void reference_partial(const OpCall& call, std::span<const Tensor> outputs);
void reference_backward(const OpCall& call, std::span<const Tensor> outputs);

}  // namespace tutti::attention
