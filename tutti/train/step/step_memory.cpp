#include "tutti/train/step/step_memory.h"

#include "tutti/parallel/dispatch_counts.h"
#include "tutti/parallel/fully_shard.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/train/run.h"

namespace tutti::train {

MemoryStatistics memory_of_step(const Run& run) {
  MemoryStatistics memory = RankContext::current().allocator().statistics();
  const auto add = [&](MemoryCategory category, int64_t bytes) {
    memory.peak_bytes += bytes;
    memory.at_peak_by_category[static_cast<size_t>(category)] += bytes;
  };
  const bool reads_masters = run.survival->holds_state() && run.config.training.mixed_precision_param == "float32";
  // Pages that the ranks of the host give in equal parts.
  if (run.sharded && run.sharded->is_shared() && !reads_masters)
    add(MemoryCategory::parameters, run.sharded->shared_page_bytes());
  add(MemoryCategory::activations, parallel::dispatch_counts().memory_bytes);
  run.survival->add_memory(memory);
  return memory;
}

}  // namespace tutti::train
