// The loads of experts over a run, as a heat map of a page and as text: rows are layers, columns experts, and what is
// shown is the share by the mean.
#pragma once

#include <span>
#include <string>

#include "tutti/train/report/metrics.h"

namespace tutti::train {

// The class of a load: 0 for no token, then 1 to 7 by tokens over the mean, with borders at 1/4, 1/2, 4/5, 5/4, 2
// and 4.
int load_class(int64_t tokens, double mean);

// A <figure> with a heat map for each of at most 24 steps, the first and the last among them, and a slider that chooses
// one; it needs no script. "" when no step has experts.
std::string render_expert_loads(std::span<const StepRecord> records);

// A table of a step: a line for each layer, with a character for each expert and the numbers of metrics.jsonl, and a
// legend. UsageError when the step has no experts.
std::string describe_expert_loads(const StepRecord& record);

}  // namespace tutti::train
