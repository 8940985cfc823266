#include "tutti/comm/symm/ops/reduce_scatter.h"

#include "tutti/comm/combine.h"
#include "tutti/comm/symm/ops/published.h"

namespace tutti::comm::symm {

Tensor reduce_scatter(const Tensor& input, const SymmGroup& group, const ReduceOp& op) {
  constexpr const char* kOp = "reduce_scatter";
  check_host_access(kOp, group);
  check_reducible(kOp, op, input.dtype());
  TUTTI_CHECK(input.ndim() >= 1 && input.extent(0) % group.size() == 0, "{}: dim 0 of {} does not divide by {} ranks", kOp,
              describe(input), group.size());
  Extents sizes = input.extents();
  sizes[0] /= group.size();
  Tensor output = Tensor::empty(sizes, input.dtype());
  if (output.numel() == 0) return output;
  const Published inputs(kOp, input, group);
  inputs.barrier();
  combine(op.kind(), input.dtype(), inputs.at(group.rank() * output.nbytes()), {}, output.numel(),
          static_cast<std::byte*>(output.raw_data()));
  inputs.barrier();
  return output;
}

}  // namespace tutti::comm::symm
