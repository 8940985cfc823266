#include "tutti/comm/symm/ops/all_gather_matmul.h"

#include <cstring>

#include "tutti/autograd/tape.h"
#include "tutti/comm/symm/ops/all_gather.h"
#include "tutti/comm/symm/ops/published.h"
#include "tutti/comm/symm/tuning.h"
#include "tutti/ops/matmul.h"

namespace tutti::comm::symm {
namespace {

void check_shapes(const Tensor& a, std::span<const Tensor> bs) {
  TUTTI_CHECK(a.ndim() == 2, "all_gather_matmul: a is {}; expected 2 dims", describe(a));
  for (const Tensor& b : bs) {
    TUTTI_CHECK(b.ndim() == 2 && b.extent(0) == a.extent(1), "all_gather_matmul: a is {}, b is {}; expected [{}, n]", describe(a),
                describe(b), a.extent(1));
  }
}

AllGatherMatmulResult gather_first(const Tensor& a, std::span<const Tensor> bs, const SymmGroup& group) {
  AllGatherMatmulResult result{.gathered = all_gather(a, group), .products = {}};
  for (const Tensor& b : bs) result.products.push_back(matmul(result.gathered, b));
  return result;
}

// Rows [part x m, (part + 1) x m) of a dense matrix.
Tensor rows(const Tensor& matrix, int part, int64_t m) {
  return matrix.view_as({m, matrix.extent(1)}, matrix.strides(), matrix.offset() + part * m * matrix.extent(1));
}

AllGatherMatmulResult by_parts(const Tensor& a, std::span<const Tensor> bs, const SymmGroup& group) {
  const int64_t m = a.extent(0), k = a.extent(1);
  AllGatherMatmulResult result{.gathered = Tensor::empty({m * group.size(), k}, a.dtype()), .products = {}};
  for (const Tensor& b : bs) {
    result.products.push_back(Tensor::empty({m * group.size(), b.extent(1)}, promote(a.dtype(), b.dtype())));
  }
  const Published inputs("all_gather_matmul", a, group);
  // 1. Everybody's part is complete.
  inputs.barrier();
  // 2. Read a part and multiply it while it is in the caches; the own one first.
  for (int i = 0; i < group.size(); ++i) {
    const int peer = (group.rank() + i) % group.size();
    const Tensor part = rows(result.gathered, peer, m);
    std::memcpy(part.raw_data(), inputs.data(peer), static_cast<size_t>(a.nbytes()));
    for (size_t j = 0; j < bs.size(); ++j) copy_elements(rows(result.products[j], peer, m), matmul(part, bs[j]));
  }
  // 3. Nobody reads any more.
  inputs.barrier();
  return result;
}

}  // namespace

AllGatherMatmulResult all_gather_matmul(const Tensor& a, std::span<const Tensor> bs, const SymmGroup& group) {
  check_host_access("all_gather_matmul", group);
  check_shapes(a, bs);
  const NoGradScope no_grad;
  const bool first = a.numel() == 0 || tuning_table().choose("all_gather_matmul", group.size(), a.nbytes()) == "gather_first";
  return first ? gather_first(a, bs, group) : by_parts(a, bs, group);
}

}  // namespace tutti::comm::symm
