// Every mesh of a number of ranks for one configuration, the possible ones with their plans, and how `tutti plan` shows
// them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tutti/train/step/step_plan.h"

namespace tutti::train {

struct PlannedLayout {
  DataDegrees degrees;
  std::optional<StepPlan> plan;
  std::string refusal = {};  // why there is no plan, and the nearest that is possible
};

// The layout of the configuration.
PlannedLayout plan_layout(const Config& config, int64_t ranks, bool is_shared);
// All of them, and where the model has experts those that divide them with gradients exchanged every round, ascending
// by the memory of the largest rank, then by bytes sent; those that are not possible last.
std::vector<PlannedLayout> plan_layouts(const Config& config, int64_t ranks, bool is_shared);

// "dp_replicate 2 x dp_shard 4 x tp 2"; "1 rank".
std::string mesh_name(const DataDegrees& degrees);
// A table of the memory of one layout by category, of the smallest and largest rank, of the host's ranks, and of what
// is sent.
std::string plan_text(const PlannedLayout& layout, int64_t local_ranks);
// A line per parameter: its sizes, its bytes, and those of the rank that stores the most of it; sums in the last.
std::string tensors_text(const PlannedLayout& layout);
// A line per layout.
std::string plans_text(const std::vector<PlannedLayout>& layouts, int64_t local_ranks);
// A bar per possible layout, divided by category: the largest rank's memory.
std::string plans_svg(const std::vector<PlannedLayout>& layouts);

}  // namespace tutti::train
