// The memory of a step, with what ranks share.
#pragma once

#include "tutti/runtime/allocator.h"

namespace tutti::train {

struct Run;

// The allocator's statistics of the step that this rank has just taken, and this rank's part of the pages that ranks of
// the host share.
MemoryStatistics memory_of_step(const Run& run);

}  // namespace tutti::train
