// Whether the memory of the host is enough for a step, before anything runs.
#pragma once

#include <cstdint>

#include "tutti/train/config/config.h"

namespace tutti::train {

// UsageError, with the numbers and the keys to change, when a step of `ranks` ranks needs more than the `available`
// bytes of this host, which has `local_ranks` of them. Plans are trusted to a tenth.
void check_memory(const Config& config, int64_t ranks, int64_t local_ranks, bool is_shared, int64_t available);

}  // namespace tutti::train
