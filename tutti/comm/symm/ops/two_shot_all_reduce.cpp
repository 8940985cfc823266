#include "tutti/comm/symm/ops/two_shot_all_reduce.h"

#include <algorithm>
#include <cstring>

#include "tutti/comm/combine.h"
#include "tutti/comm/symm/memory_file.h"
#include "tutti/comm/symm/ops/one_shot_all_reduce.h"
#include "tutti/comm/symm/ops/published.h"
#include "tutti/comm/symm/tuning.h"

namespace tutti::comm::symm {

void two_shot_all_reduce(const Tensor& tensor, const SymmGroup& group, const ReduceOp& op) {
  constexpr const char* kOp = "two_shot_all_reduce";
  check_reducible(kOp, op, tensor.dtype());
  if (tensor.numel() == 0) return;
  const Published inputs(kOp, tensor, group);
  const int64_t size = itemsize(tensor.dtype()), n = tensor.numel();
  // Whole cache lines, so that two ranks never write one.
  const int64_t share = round_up((n + group.size() - 1) / group.size(), 64 / size);
  const int64_t begin = std::min(n, share * group.rank()), count = std::min(n, begin + share) - begin;
  // 1. Everybody's input is complete.
  inputs.barrier();
  // 2. Reduce the own share, which no other rank reads, in place; write it to all others.
  std::byte* own = inputs.data(group.rank()) + begin * size;
  combine(op.kind(), tensor.dtype(), inputs.at(begin * size), {}, count, own);
  for (int i = 1; i < group.size(); ++i) {
    std::memcpy(inputs.data((group.rank() + i) % group.size()) + begin * size, own, static_cast<size_t>(count * size));
  }
  // 3. All shares have arrived.
  inputs.barrier();
  std::byte* result = inputs.data(group.rank());
  if (result != tensor.raw_data()) {
    std::memcpy(tensor.raw_data(), result, static_cast<size_t>(n * size));
  }
  tensor.storage()->bump_version();
}

void all_reduce(const Tensor& tensor, const SymmGroup& group, const ReduceOp& op) {
  if (tuning_table().choose("all_reduce", group.size(), tensor.nbytes()) == "two_shot") {
    two_shot_all_reduce(tensor, group, op);
    return;
  }
  copy_elements(tensor, one_shot_all_reduce(tensor, group, op));
  tensor.storage()->bump_version();
}

}  // namespace tutti::comm::symm
