#include "tutti/symm/ops/one_shot_all_reduce.h"

#include "tutti/codegen/combine.h"
#include "tutti/symm/ops/published.h"

namespace tutti::comm::symm {

void reduce_in_one_pass(OpCall& call, const Tensor& input, const Tensor& output) {
  // 1. Everybody's input is complete.
  const Published inputs(call, input);
  if (input.numel() == 0) return;
  // 2. Reduce all of it, in rank order.
  combine(call.record.reduce, input.dtype(), inputs.at(0), {}, input.numel(),
          static_cast<std::byte*>(output.raw_data()));
  // 3. Nobody reads any more: inputs may change.
  call.finish();
}

Tensor one_shot_all_reduce(const Tensor& input, const SymmGroup& group, const ReduceOp& op) {
  return make_call(SymmOp::one_shot_all_reduce, group, [&](OpCall& call) {
    call.takes(input);
    call.reduces(op);
    Tensor output = Tensor::empty(input.extents(), input.dtype());
    reduce_in_one_pass(call, input, output);
    return output;
  });
}

}  // namespace tutti::comm::symm
