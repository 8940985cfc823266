// all_gather and the matrix products of what is gathered, overlapped by parts.
#pragma once

#include <span>
#include <vector>

#include "tutti/comm/symm/group.h"
#include "tutti/tensor/tensor.h"

namespace tutti::comm::symm {

struct AllGatherMatmulResult {
  Tensor gathered;              // [W x m, k]
  std::vector<Tensor> products;  // each [W x m, n_i]
};

// Shapes: a [m, k], the same on all ranks, contiguous; bs[i] [k, n_i]. Dtypes: floats, as matmul. The bits of the products
// are those of matmul(all_gather(a), b): rows do not depend on each other. The tuning table decides whether parts are
// multiplied as they are read (the own one first) or after all are there. Not recorded by autograd.
// bs are each rank's own and may differ. UsageError on all ranks: the ranks' calls differ, or a or a b of one of them is
// not 2-D or has another inner size.
AllGatherMatmulResult all_gather_matmul(const Tensor& a, std::span<const Tensor> bs, const SymmGroup& group);

}  // namespace tutti::comm::symm
