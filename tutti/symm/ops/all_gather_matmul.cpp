#include "tutti/symm/ops/all_gather_matmul.h"

#include <cstring>

#include "tutti/autograd/tape.h"
#include "tutti/ops/matmul.h"
#include "tutti/symm/ops/all_gather.h"
#include "tutti/symm/ops/published.h"
#include "tutti/symm/tuning.h"

namespace tutti::comm::symm {
namespace {

void check_shapes(const char* op, const Tensor& a, std::span<const Tensor> bs) {
  TUTTI_CHECK(a.ndim() == 2, "{}: a is {}; expected 2 dims", op, describe(a));
  for (const Tensor& b : bs) {
    TUTTI_CHECK(b.ndim() == 2 && b.extent(0) == a.extent(1), "{}: a is {}, b is {}; expected [{}, n]", op, describe(a), describe(b),
                a.extent(1));
  }
}

AllGatherMatmulResult gather_first(OpCall& call, const Tensor& a, std::span<const Tensor> bs) {
  AllGatherMatmulResult result{.gathered = gather(call, a), .products = {}};
  for (const Tensor& b : bs) result.products.push_back(matmul(result.gathered, b));
  return result;
}

// Rows [part x m, (part + 1) x m) of a dense matrix.
Tensor rows(const Tensor& matrix, int part, int64_t m) {
  return matrix.view_as({m, matrix.extent(1)}, matrix.strides(), matrix.offset() + part * m * matrix.extent(1));
}

AllGatherMatmulResult by_parts(OpCall& call, const Tensor& a, std::span<const Tensor> bs) {
  const int64_t m = a.extent(0), k = a.extent(1);
  AllGatherMatmulResult result{.gathered = Tensor::empty({m * call.ranks(), k}, a.dtype()), .products = {}};
  for (const Tensor& b : bs) {
    result.products.push_back(Tensor::empty({m * call.ranks(), b.extent(1)}, promote(a.dtype(), b.dtype())));
  }
  // 1. Everybody's part is complete.
  const Published inputs(call, a);
  // 2. Read a part and multiply it while it is in the caches; the own one first.
  for (int i = 0; i < call.ranks(); ++i) {
    const int peer = (call.rank() + i) % call.ranks();
    const Tensor part = rows(result.gathered, peer, m);
    std::memcpy(part.raw_data(), inputs.data(peer), static_cast<size_t>(a.nbytes()));
    for (size_t j = 0; j < bs.size(); ++j) copy_elements(rows(result.products[j], peer, m), matmul(part, bs[j]));
  }
  // 3. Nobody reads any more.
  call.finish();
  return result;
}

}  // namespace

AllGatherMatmulResult all_gather_matmul(const Tensor& a, std::span<const Tensor> bs, const SymmGroup& group) {
  const NoGradScope no_grad;
  return make_call(SymmOp::all_gather_matmul, group, [&](OpCall& call) {
    call.takes(a);
    check_shapes(call.name(), a, bs);
    const bool first = a.numel() == 0 || tuning_table().choose(call.name(), call.ranks(), a.nbytes()) == "gather_first";
    call.record.algorithm = first ? 0 : 1;
    return first ? gather_first(call, a, bs) : by_parts(call, a, bs);
  });
}

}  // namespace tutti::comm::symm
