#include "tutti/symm/ops/all_gather_matmul.h"

#include <cstring>

#include "tutti/autograd/tape.h"
#include "tutti/ops/matmul.h"
#include "tutti/runtime/function_ref.h"
#include "tutti/symm/ops/all_gather.h"
#include "tutti/symm/ops/published.h"
#include "tutti/symm/tuning.h"

namespace tutti::comm::symm {
namespace {

void check_shapes(const char* op, const Tensor& a, std::span<const Tensor> bs) {
  TUTTI_CHECK(a.ndim() == 2, "{}: a is {}; expected 2 dims", op, describe(a));
  for (const Tensor& b : bs) {
    TUTTI_CHECK(b.ndim() == 2 && b.extent(0) == a.extent(1), "{}: a is {}, b is {}; expected [{}, n]", op, describe(a),
                describe(b), a.extent(1));
  }
}

void gather_first(OpCall& call, const AllGatherMatmulResult& result, const Tensor& a, std::span<const Tensor> bs) {
  gather_into(call, result.gathered, a);
  for (size_t j = 0; j < bs.size(); ++j) matmul_into(result.products[j], result.gathered, bs[j]);
}

// Rows [part x m, (part + 1) x m) of a dense matrix.
Tensor rows(const Tensor& matrix, int part, int64_t m) {
  return matrix.view_as({m, matrix.extent(1)}, matrix.strides(), matrix.offset() + part * m * matrix.extent(1));
}

void by_parts(OpCall& call, const AllGatherMatmulResult& result, const Tensor& a, std::span<const Tensor> bs) {
  const int64_t m = a.extent(0);
  // 1. Everybody's part is complete.
  const Published inputs(call, a);
  // 2. Read a part and multiply it while it is in the caches; the own one first.
  for (int i = 0; i < call.ranks(); ++i) {
    const int peer = (call.rank() + i) % call.ranks();
    const Tensor part = rows(result.gathered, peer, m);
    std::memcpy(part.raw_data(), inputs.data(peer), static_cast<size_t>(a.nbytes()));
    for (size_t j = 0; j < bs.size(); ++j) matmul_into(rows(result.products[j], peer, m), part, bs[j]);
  }
  // 3. Nobody reads any more.
  call.finish();
}

// `allocate` runs when the operands are known to fit.
void run(const AllGatherMatmulResult& result, const Tensor& a, std::span<const Tensor> bs, const SymmGroup& group,
         FunctionRef<void(int ranks)> allocate) {
  const NoGradScope no_grad;
  make_call(SymmOp::all_gather_matmul, group, [&](OpCall& call) {
    call.takes(a);
    check_shapes(call.name(), a, bs);
    allocate(call.ranks());
    const bool first = a.numel() == 0 || tuning_table().choose(call.name(), call.ranks(), a.nbytes()) == "gather_first";
    call.record.algorithm = first ? 0 : 1;
    if (first) gather_first(call, result, a, bs);
    else by_parts(call, result, a, bs);
  });
}

}  // namespace

AllGatherMatmulResult all_gather_matmul(const Tensor& a, std::span<const Tensor> bs, const SymmGroup& group) {
  AllGatherMatmulResult result;
  run(result, a, bs, group, [&](int ranks) {
    result.gathered = Tensor::empty({a.extent(0) * ranks, a.extent(1)}, a.dtype());
    for (const Tensor& b : bs)
      result.products.push_back(Tensor::empty({a.extent(0) * ranks, b.extent(1)}, promote(a.dtype(), b.dtype())));
  });
  return result;
}

void all_gather_matmul_into(const AllGatherMatmulResult& result, const Tensor& a, std::span<const Tensor> bs,
                            const SymmGroup& group) {
  run(result, a, bs, group, [](int) {});
}

}  // namespace tutti::comm::symm
