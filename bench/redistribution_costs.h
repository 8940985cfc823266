// Measures the costs of redistributions on this machine: `tutti bench comm --costs FILE`.
#pragma once

#include "tutti/comm/process_group.h"
#include "tutti/dist/cost_model.h"

namespace tutti::bench {

// Every rank of the world calls it; the same on all of them. Of every step that communicates, over 2, 4, ... of the
// first ranks and over all: the latency from a tensor of few elements, the bandwidth from one of 4 MiB. `talk`: rank 0
// says on stderr what it finds.
dist::MeasuredCosts measure_costs(comm::ProcessGroup& world, bool talk);

}  // namespace tutti::bench
