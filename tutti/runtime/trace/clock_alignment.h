// Alignment of the clocks of several ranks, by the clocks' identities, else by collectives that ended at the same time.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

namespace tutti {

// Identifies a call of a group on all its ranks: group, its ranks, sequence number, and the how-many-th call with that
// number.
using CallKey = std::tuple<std::string, std::string, int64_t, int64_t>;

// The time information of one trace. Times are nanoseconds of the wall clock as seen by this rank.
struct RankClock {
  std::string clock;                // equal names: one monotonic clock; "": unknown
  int64_t base_ns = 0;              // wall clock at the start of the trace
  int64_t monotonic_ns = 0;         // the monotonic clock at that moment
  std::map<CallKey, int64_t> ends;  // end times of calls that end on no rank before all ranks have joined
};

struct ClockOffset {
  enum class By : uint8_t {
    reference,    // this is the reference clock
    same_clock,   // exact: the rank shares its monotonic clock with an aligned rank
    collectives,  // the median over calls that the rank made together with an aligned rank
    wall_clock,   // no link to the other ranks: wall clocks are assumed to agree
  };
  int64_t ns = 0;  // offset to add to the times of this rank
  By by = By::wall_clock;
  int64_t matches = 0;  // the number of collectives in the median
};
const char* name_of(ClockOffset::By by);

// One offset per clock; the first is the reference.
std::vector<ClockOffset> align_clocks(std::span<const RankClock> clocks);

}  // namespace tutti
