// Process groups for gathers of parameters. They are apart from those of gradients: gathers are called while gradients
// are on their way, and when those start differs from rank to rank.
#pragma once

#include <cstdint>
#include <memory>

#include "tutti/comm/process_group.h"

namespace tutti::parallel {

// The `count` neighbours of this rank in `group`, a divisor of its size, or all of its ranks. Groups of the same ranks
// share one while it lives. Collective.
std::shared_ptr<comm::ProcessGroup> gather_group(comm::ProcessGroup& group, int64_t count);

}  // namespace tutti::parallel
