#include "tutti/comm/symm/ops/one_shot_all_reduce.h"

#include "tutti/comm/combine.h"
#include "tutti/comm/symm/ops/published.h"

namespace tutti::comm::symm {

Tensor one_shot_all_reduce(const Tensor& input, const SymmGroup& group, const ReduceOp& op) {
  constexpr const char* kOp = "one_shot_all_reduce";
  check_reducible(kOp, op, input.dtype());
  Tensor output = Tensor::empty(input.extents(), input.dtype());
  if (input.numel() == 0) return output;
  const Published inputs(kOp, input, group);
  // 1. Everybody's input is complete.
  inputs.barrier();
  // 2. Reduce all of it, in rank order.
  combine(op.kind(), input.dtype(), inputs.at(0), {}, input.numel(), static_cast<std::byte*>(output.raw_data()));
  // 3. Nobody reads any more: inputs may change.
  inputs.barrier();
  return output;
}

}  // namespace tutti::comm::symm
