// Calls that one rank gets wrong, for the ranks of any transport.
#pragma once

#include "tutti/comm/process_group.h"

namespace tutti::comm {

// Collective over at least 2 ranks. In turn rank 1 makes each collective with each wrong argument that it can be given,
// where the others make it rightly: all must throw a UsageError, nothing may be written, and the next call must be the
// same on all. Throws what goes wrong.
void check_refused_calls(ProcessGroup& group);

}  // namespace tutti::comm
