// all_gather overlapped with matrix products of the gathered tensor.
#pragma once

#include <span>
#include <vector>

#include "tutti/symm/group.h"
#include "tutti/tensor/tensor.h"

namespace tutti::comm::symm {

struct AllGatherMatmulResult {
  Tensor gathered;               // [W x m, k]
  std::vector<Tensor> products;  // each [W x m, n_i]
};

// Shapes: a [m, k], the same on all ranks, contiguous; bs[i] [k, n_i]. Dtypes: floats, as for matmul. The products have
// the bits of matmul(all_gather(a), b), since rows do not depend on each other. The tuning table decides whether parts
// are multiplied as they are read (this rank's own first) or after all have been gathered. Not recorded by autograd.
// The bs may differ between ranks. UsageError on all ranks when their calls differ, or when a or a b of any rank is
// not 2-D or has another inner size.
AllGatherMatmulResult all_gather_matmul(const Tensor& a, std::span<const Tensor> bs, const SymmGroup& group);
// The same into dense tensors of these sizes; the products may have other float dtypes, as matmul's out_dtype.
void all_gather_matmul_into(const AllGatherMatmulResult& result, const Tensor& a, std::span<const Tensor> bs,
                            const SymmGroup& group);

}  // namespace tutti::comm::symm
