// Tells the memory of the step with the highest peak, of all ranks in the report.
#include <algorithm>
#include <utility>
#include <vector>

#include "tutti/comm/process_group.h"
#include "tutti/parallel/fully_shard.h"
#include "tutti/train/observer.h"
#include "tutti/train/report/byte_text.h"
#include "tutti/train/report/memory_report.h"
#include "tutti/train/report/run_log.h"
#include "tutti/train/run.h"
#include "tutti/train/step/step_plan.h"
#include "tutti/train/task/task_kind.h"

namespace tutti::train {
namespace {

class Memory final : public Observer {
 public:
  using Observer::Observer;
  void on_end() override {
    const bool is_shared = !run_.sharded || run_.sharded->is_shared();
    std::vector<RankMemoryBars> ranks;
    if (run_.config.metrics.report) ranks = memory_of_ranks(is_shared);
    if (!run_.log || run_.memory.peak_bytes <= 0) return;
    auto rows = memory_rows(run_.memory);
    rows.emplace_back("planned peak",
                      byte_text(task_kind(run_.config).plan(run_.config, run_.ranks, is_shared).of_ranks[0].peak()));
    run_.log->set_memory(rows);
    run_.log->set_ranks(std::move(ranks));
    run_.note("peak memory of a step on rank 0: " + memory_line(run_.memory));
  }

 private:
  // On rank 0, the memory of all ranks: what each had at its highest peak, and what was planned. Collective.
  std::vector<RankMemoryBars> memory_of_ranks(bool is_shared) const {
    std::vector<int64_t> measured(static_cast<size_t>(run_.ranks * kNumMemoryCategories), 0);
    std::ranges::copy(run_.memory.at_peak_by_category, measured.begin() + run_.rank * kNumMemoryCategories);
    if (run_.ranks > 1) run_.group->all_reduce_values<int64_t>(measured);  // each place has one summand that is not 0
    if (run_.rank != 0) return {};
    const StepPlan plan = task_kind(run_.config).plan(run_.config, run_.ranks, is_shared);
    std::vector<RankMemoryBars> ranks;
    for (size_t r = 0; r < static_cast<size_t>(run_.ranks); ++r) {
      ranks.push_back({.planned = plan.of_ranks[r % plan.of_ranks.size()].by_category});
      std::copy_n(measured.begin() + static_cast<ptrdiff_t>(r * kNumMemoryCategories), kNumMemoryCategories,
                  ranks.back().measured.begin());
    }
    return ranks;
  }
};

}  // namespace

TUTTI_OBSERVER(memory) = {.turn = Turn::summarize, .make = make_observer<Memory>};

}  // namespace tutti::train
