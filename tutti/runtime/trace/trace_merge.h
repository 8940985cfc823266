// Merging the trace files of several ranks into one: clocks aligned, arrows between collectives that match.
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
  std::vector<Rank> ranks;  // in their order
  int64_t events = 0;       // written
  int64_t collectives = 0;  // that two ranks or more have
  int64_t arrows = 0;
};

// Writes the events of all `files`, which Profiler or `tutti train` wrote, as `out`. An arrow leads from the rank that
// came last to a collective, which the others waited for, to each of them. UsageError naming file and place when a file
// is no such trace, or when two files hold the same rank; EnvironmentError when one cannot be read or written.
TraceMergeReport merge_traces(const std::string& out, std::span<const std::string> files);

}  // namespace tutti
