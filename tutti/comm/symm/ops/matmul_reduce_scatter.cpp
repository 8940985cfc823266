#include "tutti/comm/symm/ops/matmul_reduce_scatter.h"

#include "tutti/autograd/tape.h"
#include "tutti/comm/combine.h"
#include "tutti/comm/symm/ops/published.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/matmul.h"

namespace tutti::comm::symm {

Tensor matmul_reduce_scatter(const Tensor& a, const Tensor& b, const SymmGroup& group, const ReduceOp& op) {
  constexpr const char* kOp = "matmul_reduce_scatter";
  check_host_access(kOp, group);
  TUTTI_CHECK(a.ndim() == 2 && b.ndim() == 2 && a.extent(1) == b.extent(0), "{}: a is {}, b is {}; expected [M, k] and [k, n]",
              kOp, describe(a), describe(b));
  TUTTI_CHECK(a.extent(0) % group.size() == 0, "{}: {} rows do not divide by {} ranks", kOp, a.extent(0), group.size());
  TUTTI_CHECK(op.kind() == ReduceKind::sum || op.kind() == ReduceKind::avg, "{}: {}; expected sum or avg", kOp, name_of(op.kind()));
  const NoGradScope no_grad;
  const DType dtype = promote(a.dtype(), b.dtype()), partial = compute_dtype(dtype);
  const int64_t m = a.extent(0) / group.size(), n = b.extent(1);
  Tensor sum = Tensor::empty({m, n}, partial);
  if (sum.numel() > 0) {
    const auto lease = get_symm_mem_workspace(group, a.extent(0) * n * itemsize(partial));
    const ChannelLease channel = lease.handle().lease_channel();
    // 1. The part of each rank, its own last: the others wait for theirs.
    for (int i = 1; i <= group.size(); ++i) {
      const int peer = (group.rank() + i) % group.size();
      const Tensor rows = a.view_as({m, a.extent(1)}, a.strides(), a.offset() + peer * m * a.strides()[0]);
      copy_elements(lease.view(group.rank(), {m, n}, partial, peer * sum.nbytes()), matmul(rows, b, {.out_dtype = partial}));
    }
    lease.handle().barrier(channel.channel());
    // 2. Add the own part of all ranks.
    std::vector<Tensor> kept;
    std::vector<const std::byte*> parts;
    for (int r = 0; r < group.size(); ++r) {
      kept.push_back(lease.view(r, {m, n}, partial, group.rank() * sum.nbytes()));
      parts.push_back(static_cast<const std::byte*>(kept.back().raw_data()));
    }
    combine(op.kind(), partial, parts, {}, sum.numel(), static_cast<std::byte*>(sum.raw_data()));
    // 3. Nobody reads any more: the workspace may be used again.
    lease.handle().barrier(channel.channel());
  }
  return dtype == partial ? sum : cast(sum, dtype);
}

}  // namespace tutti::comm::symm
