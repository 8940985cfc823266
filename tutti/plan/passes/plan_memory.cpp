#include "tutti/plan/passes/plan_memory.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace tutti::graph {

MemoryPlan plan_memory(std::span<const Lifetime> lifetimes) {
  constexpr int64_t kAlignment = 64;
  const auto rounded = [](int64_t nbytes) { return (nbytes + kAlignment - 1) / kAlignment * kAlignment; };
  MemoryPlan plan;
  plan.offsets.resize(lifetimes.size(), 0);
  std::vector<size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return lifetimes[a].nbytes > lifetimes[b].nbytes; });
  std::vector<size_t> placed;  // by their offsets
  for (const size_t i : order) {
    const Lifetime& mine = lifetimes[i];
    const int64_t size = rounded(mine.nbytes);
    plan.unplanned += size;
    int64_t best = -1, best_gap = std::numeric_limits<int64_t>::max(), at = 0;
    for (const size_t j : placed) {
      if (lifetimes[j].first > mine.last || mine.first > lifetimes[j].last) continue;  // not at the same time
      const int64_t begin = plan.offsets[j], gap = begin - at;
      if (gap >= size && gap < best_gap) best = at, best_gap = gap;
      at = std::max(at, begin + rounded(lifetimes[j].nbytes));
    }
    plan.offsets[i] = best >= 0 ? best : at;
    plan.total = std::max(plan.total, plan.offsets[i] + size);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), i,
                                   [&](size_t a, size_t b) { return plan.offsets[a] < plan.offsets[b]; }),
                  i);
  }
  return plan;
}

}  // namespace tutti::graph
