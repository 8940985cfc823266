// The rules for the configuration of a run that outlives a rank (survivors.h), and how the ranks that are left divide
// the work.
#pragma once

#include <cstdint>

#include "tutti/train/config/config.h"

namespace tutti::train {

// The elements of a parameter that are stepped together: 256 KiB of f32.
inline constexpr int64_t kSurvivalBlock = 65536;

// The layout of a run that began with `began` ranks for `ranks` of them: parameters that were divided are divided over
// all that are there.
ParallelismConfig layout_of_survivors(ParallelismConfig config, int64_t began, int64_t ranks);

// UsageError, naming the keys and what to do instead, where the configuration does not allow a rank to be lost.
void check_survival(const Config& config);

}  // namespace tutti::train
