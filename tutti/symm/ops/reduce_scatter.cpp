#include "tutti/symm/ops/reduce_scatter.h"

#include "tutti/codegen/combine.h"
#include "tutti/core/error.h"
#include "tutti/symm/ops/published.h"

namespace tutti::comm::symm {

Tensor reduce_scatter(const Tensor& input, const SymmGroup& group, const ReduceOp& op) {
  return make_call(SymmOp::reduce_scatter, group, [&](OpCall& call) {
    call.takes(input);
    call.reduces(op);
    TUTTI_CHECK(input.ndim() >= 1 && input.extent(0) % call.ranks() == 0, "{}: dim 0 of {} does not divide by {} ranks",
                call.name(), describe(input), call.ranks());
    Extents sizes = input.extents();
    sizes[0] /= call.ranks();
    Tensor output = Tensor::empty(sizes, input.dtype());
    // 1. Everybody's input is complete.
    const Published inputs(call, input);
    if (output.numel() == 0) return output;
    // 2. Reduce the own part.
    combine(op.kind(), input.dtype(), inputs.at(call.rank() * output.nbytes()), {}, output.numel(),
            static_cast<std::byte*>(output.raw_data()));
    // 3. Nobody reads any more.
    call.finish();
    return output;
  });
}

}  // namespace tutti::comm::symm
