#include "tutti/train/step/check_memory.h"

#include "tutti/core/error.h"
#include "tutti/train/step/step_plan.h"
#include "tutti/train/task/task_kind.h"

namespace tutti::train {

static double gib(int64_t bytes) { return static_cast<double>(bytes) / (int64_t{1} << 30); }

void check_memory(const Config& config, int64_t ranks, int64_t local_ranks, bool is_shared, int64_t available) {
  constexpr double kTrust = 0.9;
  const TaskKind& task = task_kind(config);
  const StepPlan plan = task.plan(config, ranks, is_shared);
  const int64_t needed = plan.host_bytes(local_ranks);
  if (kTrust * static_cast<double>(needed) <= static_cast<double>(available)) return;
  const RankMemory& most = plan.largest();
  const auto part = [&](MemoryCategory category) { return gib(most.by_category[static_cast<size_t>(category)]); };
  throw UsageError(fmt::format(
      "a step of {} rank{} of this host needs {:.1f} GiB, and there are {:.1f}: {:.1f} GiB a rank for parameters, "
      "{:.1f} for gradients, {:.1f} for the optimizer and {:.1f} for activations {}",
      local_ranks, local_ranks == 1 ? "" : "s", gib(needed), gib(available), part(MemoryCategory::parameters),
      part(MemoryCategory::gradients), part(MemoryCategory::optimizer), part(MemoryCategory::activations),
      task.how_to_shrink(config, ranks)));
}

}  // namespace tutti::train
