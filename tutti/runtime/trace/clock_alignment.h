// Putting the clocks of several ranks on one: from the clocks' names, else from collectives that ended together.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

namespace tutti {

// Names a call of a group on all its ranks: group, its ranks, sequence number, and which call of that number in the trace.
using CallKey = std::tuple<std::string, std::string, int64_t, int64_t>;

// What one trace says about time. Nanoseconds of the wall clock, as this rank saw it.
struct RankClock {
  std::string clock;         // equal names: one monotonic clock; "": unknown
  int64_t base_ns = 0;       // wall clock at the start of the trace
  int64_t monotonic_ns = 0;  // the monotonic clock at that moment
  std::map<CallKey, int64_t> ends;  // of calls that end on no rank before all have come
};

struct ClockOffset {
  enum class By : uint8_t {
    reference,    // its own
    same_clock,   // the monotonic clock is that of an aligned rank: exact
    collectives,  // the median over calls that it made together with an aligned rank
    wall_clock,   // nothing links it to the others: wall clocks are taken as they are
  };
  int64_t ns = 0;  // to add to the times of this rank
  By by = By::wall_clock;
  int64_t matches = 0;  // collectives that the median is of
};
const char* name_of(ClockOffset::By by);

// One offset per clock; the first is the reference.
std::vector<ClockOffset> align_clocks(std::span<const RankClock> clocks);

}  // namespace tutti
