#include "tutti/symm/ops/matmul_reduce_scatter.h"

#include <vector>

#include "tutti/autograd/tape.h"
#include "tutti/codegen/combine.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/matmul_sum.h"
#include "tutti/symm/ops/published.h"

namespace tutti::comm::symm {

namespace {

// Into `sum`, which is allocated here unless it is there.
void run(Tensor& sum, std::span<const Tensor> as, std::span<const Tensor> bs, const SymmGroup& group,
         const ReduceOp& op) {
  const NoGradScope no_grad;
  make_call(SymmOp::matmul_reduce_scatter, group, [&](OpCall& call) {
    const int ranks = call.ranks();
    const Tensor &a = as[0], &b = bs[0];
    DType dtype = a.dtype();
    for (size_t i = 0; i < as.size(); ++i) {
      TUTTI_CHECK(as[i].ndim() == 2 && bs[i].ndim() == 2 && as[i].extent(1) == bs[i].extent(0) &&
                      as[i].extent(0) == a.extent(0) && bs[i].extent(1) == b.extent(1),
                  "{}: a is {}, b is {}; expected [M, k] and [k, n]", call.name(), describe(as[i]), describe(bs[i]));
      dtype = promote(dtype, promote(as[i].dtype(), bs[i].dtype()));
    }
    const DType partial = compute_dtype(dtype);
    call.record.describe_tensor(dtype, {a.extent(0), b.extent(1)});
    call.record.reduce = op.kind();
    TUTTI_CHECK(a.extent(0) % ranks == 0, "{}: {} rows do not divide by {} ranks", call.name(), a.extent(0), ranks);
    TUTTI_CHECK(op.kind() == ReduceKind::sum || op.kind() == ReduceKind::avg, "{}: {}; expected sum or avg",
                call.name(), name_of(op.kind()));
    const int64_t m = a.extent(0) / ranks, n = b.extent(1);
    if (!sum.defined()) sum = Tensor::empty({m, n}, partial);
    TUTTI_CHECK(sum.dtype() == partial && sum.extents() == (Extents{m, n}) && sum.is_contiguous(),
                "{}: the result is {}; expected a dense [{}, {}] of {}", call.name(), describe(sum), m, n,
                name_of(partial));
    if (sum.numel() == 0) return call.agree();
    // 1. The part of each rank, its own last: the others wait for theirs.
    const Published products(call, ranks * sum.nbytes(), [&](std::byte* own) {
      for (int i = 1; i <= ranks; ++i) {
        const int peer = (call.rank() + i) % ranks;
        std::vector<Tensor> rows;
        for (const Tensor& t : as)
          rows.push_back(t.view_as({m, t.extent(1)}, t.strides(), t.offset() + peer * m * t.strides()[0]));
        const Tensor terms = Tensor::from_memory(own + peer * sum.nbytes(), {m, n}, partial, {});
        if (rows.size() == 1) matmul_into(terms, rows[0], b);
        else matmul_sum_into(terms, rows, bs);
      }
    });
    // 2. Add the own part of all ranks.
    combine(op.kind(), partial, products.at(call.rank() * sum.nbytes()), {}, sum.numel(),
            static_cast<std::byte*>(sum.raw_data()));
    // 3. Nobody reads any more: the workspace may be used again.
    call.finish();
  });
}

}  // namespace

Tensor matmul_reduce_scatter(const Tensor& a, const Tensor& b, const SymmGroup& group, const ReduceOp& op) {
  Tensor sum;
  run(sum, {&a, 1}, {&b, 1}, group, op);
  const NoGradScope no_grad;
  return cast(sum, promote(a.dtype(), b.dtype()));
}

void matmul_reduce_scatter_into(const Tensor& out, const Tensor& a, const Tensor& b, const SymmGroup& group,
                                const ReduceOp& op) {
  matmul_reduce_scatter_into(out, {&a, 1}, {&b, 1}, group, op);
}

void matmul_reduce_scatter_into(const Tensor& out, std::span<const Tensor> a, std::span<const Tensor> b,
                                const SymmGroup& group, const ReduceOp& op) {
  Tensor sum = out;
  run(sum, a, b, group, op);
}

}  // namespace tutti::comm::symm
