// References of the functional collectives: what the result is, told over the tensors of all ranks in one place.
//
// The ranks exchange their inputs as bytes and each computes its own result with plain loops; reductions go over the
// halving tree of the ranks in double, integers in 64 bits. So a reference runs on all ranks at once, as its op does.
#pragma once

#include "tutti/ops/engine/op_def.h"

namespace tutti::comm::functional {

void reduce_to_root_reference(const OpCall& call, std::span<const Tensor> outputs);
void all_to_all_v_reference(const OpCall& call, std::span<const Tensor> outputs);
void all_to_all_v_padded_reference(const OpCall& call, std::span<const Tensor> outputs);

}  // namespace tutti::comm::functional
