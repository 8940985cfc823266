// `tutti bench comm --tune`: which algorithm of symmetric memory's ops is the fastest here, for how many bytes.
#pragma once

#include "tutti/comm/process_group.h"
#include "tutti/symm/tuning.h"

namespace tutti::bench {

// Every rank of the group calls it. Rows for the group's number of ranks, measured here, before the built-in defaults
// for others. `talk`: rank 0 prints each measurement on stderr.
comm::symm::TuningTable tune_comm(comm::ProcessGroup& group, bool talk);

}  // namespace tutti::bench
