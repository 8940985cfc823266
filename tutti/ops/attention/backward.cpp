#include "tutti/ops/attention/backward.h"

#include <algorithm>

#include "tutti/ops/attention/gradient_sums.h"
#include "tutti/ops/attention/steps.h"
#include "tutti/ops/creation.h"
#include "tutti/runtime/size_class.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::attention {
namespace {

// Levels of the tree over keys that are shared out, so that few groups of heads keep all threads busy.
int levels_for(int64_t groups, int64_t threads) {
  int levels = 0;
  while (threads > 1 && groups << levels < 2 * threads) ++levels;
  return levels;
}

// What the parts gave, joined in the order of the tree: into the first.
void join(const std::vector<TreePart>& parts, std::span<const Tensor> values) {
  std::vector<Tensor> stack;
  for (size_t i = 0; i < parts.size(); ++i) {
    stack.push_back(values[i]);
    for (int merges = parts[i].merges; merges > 0; --merges) {
      const Tensor right = std::move(stack.back());
      stack.pop_back();
      run_step(kAdd, {}, {stack.back(), right}, {stack.back()});
    }
  }
}

}  // namespace

int64_t room_of_backward(const OpCall& call, int64_t threads) {
  const Sizes n = sizes_of(call[1], call[2]);
  const int64_t groups = n.B * n.Hkv;
  if (groups == 0 || n.rows() == 0 || n.Sk == 0 || n.D == 0) return 0;
  const DType compute = compute_dtype(call[1].dtype());
  const std::vector<TreePart> parts = tree_parts(n.Sk, levels_for(groups, threads), codegen::contraction_leaf());
  const int64_t count = std::ssize(parts), tasks = groups * count, at_once = std::min(threads, tasks);
  return at_once * GradientSums::room(call, parts[0].count) +
         (count == 1 ? at_once : tasks) *
             block_bytes(n.rows() * GradientSums::dq_width(n, compute) * itemsize(compute));
}

void kernel_backward(const OpCall& call, std::span<const Tensor> outputs) {
  const Sizes n = sizes_of(call[1], call[2]);
  if (n.B == 0 || n.Hkv == 0 || n.rows() == 0 || n.Sk == 0 || n.D == 0) {
    for (const Tensor& t : outputs) run_step(kCopy, {}, {zeros(t.sizes(), t.dtype())}, {t});
    return;
  }
  ThreadPool& pool = ThreadPool::current();
  const DType compute = compute_dtype(call[1].dtype());
  const int64_t groups = n.B * n.Hkv, width = GradientSums::dq_width(n, compute);
  const std::vector<TreePart> parts = tree_parts(n.Sk, levels_for(groups, pool.threads()), codegen::contraction_leaf());
  const int64_t count = static_cast<int64_t>(parts.size());
  const auto rows_of_group = [&](int64_t group) { return rows_of(outputs[0], group / n.Hkv, group % n.Hkv, n.G); };

  // One part: its rows are final. More: they wait for each other.
  std::vector<Tensor> dq(static_cast<size_t>(count > 1 ? groups * count : 0));
  pool.parallel_for(groups * count, 1, [&](int64_t begin, int64_t end) {
    GradientSums sums(call);
    Tensor rows;
    for (int64_t task = begin; task < end; ++task) {
      if (!rows.defined() || count > 1) rows = Tensor::empty({n.rows(), width}, compute);
      const int64_t group = task / count;
      sums.run(group / n.Hkv, group % n.Hkv, parts[static_cast<size_t>(task % count)], outputs[1], outputs[2],
               rows.raw_data());
      if (count > 1) dq[static_cast<size_t>(task)] = rows;
      else rows_of_group(group).scatter(rows.raw_data(), compute, width, 0, n.rows());
    }
  });
  if (count == 1) return;
  for (int64_t group = 0; group < groups; ++group) {
    const std::span<const Tensor> values(dq.data() + group * count, static_cast<size_t>(count));
    join(parts, values);
    rows_of_group(group).scatter(values[0].raw_data(), compute, width, 0, n.rows());
  }
}

}  // namespace tutti::attention
