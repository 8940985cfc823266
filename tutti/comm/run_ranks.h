// Ranks as threads: the same collectives within one process, for tests and for trying out layouts.
#pragma once

#include <functional>

#include "tutti/comm/process_group.h"

namespace tutti::comm {

// Runs fn on `ranks` threads, each of which is a rank with its own RankContext in a world (groups.h) of all of them,
// and returns when all are done. When a rank throws, the others are released from their collectives and the first
// exception is rethrown here: Tutti's errors keep their type and are prefixed with "rank r: ", others are rethrown
// unchanged.
void run_ranks(int ranks, const std::function<void(ProcessGroup&)>& fn, const GroupOptions& options = {});

// Runs fn on a thread that is one rank of a world without others: collectives check what they are given and move
// nothing (fake/fake_transport.h). For programs that ask what a rank would do and take. What fn throws is rethrown
// here.
void run_fake_rank(int rank, int ranks, const std::function<void(ProcessGroup&)>& fn);

}  // namespace tutti::comm
