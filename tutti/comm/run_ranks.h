// Ranks as threads: the same collectives, in one process. For tests, and for trying out a layout.
#pragma once

#include <functional>

#include "tutti/comm/process_group.h"

namespace tutti::comm {

// Runs fn on `ranks` threads, each a rank with a RankContext of its own whose world (groups.h) has all of them, and
// returns when all are done. When a rank throws, the others are released from their collectives and the exception that
// came first is thrown here: Tutti's errors keep their kind and get "rank r: " in front, others are thrown as they are.
void run_ranks(int ranks, const std::function<void(ProcessGroup&)>& fn, const GroupOptions& options = {});

}  // namespace tutti::comm
