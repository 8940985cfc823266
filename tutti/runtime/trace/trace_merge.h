// Merging of the trace files of several ranks into one, with aligned clocks and arrows between matching collectives.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tutti/runtime/trace/clock_alignment.h"

namespace tutti {

struct TraceMergeReport {
  struct Rank {
    int rank;
    std::string file;
    ClockOffset offset;
  };
  std::vector<Rank> ranks;  // in ascending order
  int64_t events = 0;       // number of events written
  int64_t collectives = 0;  // number of collectives found in two or more ranks
  int64_t arrows = 0;
};

// Writes the events of all `files`, which Profiler or `tutti train` wrote, to `out`. For each collective, arrows lead
// from the rank that joined last, for which the others waited, to each other rank. UsageError, naming file and place,
// when a file is not such a trace or two files belong to the same rank; EnvironmentError when one cannot be read or
// written.
TraceMergeReport merge_traces(const std::string& out, std::span<const std::string> files);

}  // namespace tutti
