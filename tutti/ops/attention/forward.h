// The forward kernels of attention: tiles of queries against blocks of keys (key_tree.h). Inputs q, k, v, first_key,
// last_key and maybe a mask.
#pragma once

#include "tutti/ops/engine/op_def.h"

namespace tutti::attention {

// Outputs o [B, Sq, Hq, D] and lse [B, Sq, Hq].
void kernel(const OpCall& call, std::span<const Tensor> outputs);
// Outputs m, l [B, Sq, Hq, 1] and o [B, Sq, Hq, D], not divided by l.
void kernel_partial(const OpCall& call, std::span<const Tensor> outputs);

}  // namespace tutti::attention
