// The needs of a step of a click model on each rank, computed from sizes.
#pragma once

#include "tutti/train/step/step_plan.h"

namespace tutti::train {

// Parameters and the optimizer's state are exact. How many rows of its tables a step uses depends on the data; the plan
// takes as many as samples, or all rows where a table has fewer.
StepPlan plan_click_step(const Config& config, int64_t ranks, bool is_shared);

}  // namespace tutti::train
