#include "tutti/symm/ops/matmul_reduce_scatter.h"

#include "tutti/autograd/tape.h"
#include "tutti/codegen/combine.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/matmul.h"
#include "tutti/symm/ops/published.h"

namespace tutti::comm::symm {

Tensor matmul_reduce_scatter(const Tensor& a, const Tensor& b, const SymmGroup& group, const ReduceOp& op) {
  const NoGradScope no_grad;
  return make_call(SymmOp::matmul_reduce_scatter, group, [&](OpCall& call) {
    const int ranks = call.ranks();
    TUTTI_CHECK(a.ndim() == 2 && b.ndim() == 2 && a.extent(1) == b.extent(0), "{}: a is {}, b is {}; expected [M, k] and [k, n]",
                call.name(), describe(a), describe(b));
    const DType dtype = promote(a.dtype(), b.dtype()), partial = compute_dtype(dtype);
    call.record.describe_tensor(dtype, {a.extent(0), b.extent(1)});
    call.record.reduce = op.kind();
    TUTTI_CHECK(a.extent(0) % ranks == 0, "{}: {} rows do not divide by {} ranks", call.name(), a.extent(0), ranks);
    TUTTI_CHECK(op.kind() == ReduceKind::sum || op.kind() == ReduceKind::avg, "{}: {}; expected sum or avg", call.name(), name_of(op.kind()));
    const int64_t m = a.extent(0) / ranks, n = b.extent(1);
    const Tensor sum = Tensor::empty({m, n}, partial);
    if (sum.numel() == 0) {
      call.agree();
      return dtype == partial ? sum : cast(sum, dtype);
    }
    // 1. The part of each rank, its own last: the others wait for theirs.
    const Published products(call, ranks * sum.nbytes(), [&](std::byte* own) {
      for (int i = 1; i <= ranks; ++i) {
        const int peer = (call.rank() + i) % ranks;
        const Tensor rows = a.view_as({m, a.extent(1)}, a.strides(), a.offset() + peer * m * a.strides()[0]);
        copy_elements(Tensor::from_memory(own + peer * sum.nbytes(), {m, n}, partial, {}), matmul(rows, b, {.out_dtype = partial}));
      }
    });
    // 2. Add the own part of all ranks.
    combine(op.kind(), partial, products.at(call.rank() * sum.nbytes()), {}, sum.numel(), static_cast<std::byte*>(sum.raw_data()));
    // 3. Nobody reads any more: the workspace may be used again.
    call.finish();
    return dtype == partial ? sum : cast(sum, dtype);
  });
}

}  // namespace tutti::comm::symm
