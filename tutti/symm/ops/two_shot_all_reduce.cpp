#include "tutti/symm/ops/two_shot_all_reduce.h"

#include <algorithm>
#include <cstring>

#include "tutti/codegen/combine.h"
#include "tutti/symm/memory_file.h"
#include "tutti/symm/ops/one_shot_all_reduce.h"
#include "tutti/symm/ops/published.h"
#include "tutti/symm/tuning.h"
#include "tutti/tensor/overlap.h"

namespace tutti::comm::symm {
namespace {

void reduce_in_two_passes(OpCall& call, const Tensor& tensor) {
  const int64_t size = itemsize(tensor.dtype()), n = tensor.numel();
  // Whole cache lines, so that two ranks never write one.
  const int64_t share = round_up((n + call.ranks() - 1) / call.ranks(), 64 / size);
  const int64_t begin = std::min(n, share * call.rank()), count = std::min(n, begin + share) - begin;
  // 1. Everybody's input is complete.
  const Published inputs(call, tensor);
  if (n == 0) return;
  // 2. Reduce the own share, which no other rank reads, in place; write it to all others.
  std::byte* own = inputs.data(call.rank()) + begin * size;
  combine(call.record.reduce, tensor.dtype(), inputs.at(begin * size), {}, count, own);
  for (int i = 1; i < call.ranks(); ++i) {
    std::memcpy(inputs.data((call.rank() + i) % call.ranks()) + begin * size, own, static_cast<size_t>(count * size));
  }
  // 3. All shares have arrived.
  call.finish();
  std::byte* result = inputs.data(call.rank());
  if (result != tensor.raw_data()) {
    std::memcpy(tensor.raw_data(), result, static_cast<size_t>(n * size));
  }
  tensor.storage()->bump_version();
}

}  // namespace

void two_shot_all_reduce(const Tensor& tensor, const SymmGroup& group, const ReduceOp& op) {
  make_call(SymmOp::two_shot_all_reduce, group, [&](OpCall& call) {
    call.takes(tensor);
    refuse_overlap(call.name(), tensor);
    call.reduces(op);
    reduce_in_two_passes(call, tensor);
  });
}

void all_reduce(const Tensor& tensor, const SymmGroup& group, const ReduceOp& op) {
  make_call(SymmOp::all_reduce, group, [&](OpCall& call) {
    call.takes(tensor);
    refuse_overlap(call.name(), tensor);
    call.reduces(op);
    const bool two_passes = tuning_table().choose("all_reduce", call.ranks(), tensor.nbytes()) == "two_shot";
    call.record.algorithm = two_passes ? 1 : 0;
    if (two_passes) return reduce_in_two_passes(call, tensor);
    const Tensor output = Tensor::empty(tensor.extents(), tensor.dtype());
    reduce_in_one_pass(call, tensor, output);
    copy_elements(tensor, output);
    tensor.storage()->bump_version();
  });
}

}  // namespace tutti::comm::symm
