// Planted losses, for tests of runs that outlive a rank: a rank kills itself at a named point of a step.
//
// TUTTI_LOSE_RANK in the environment is a list such as "1:prepared:3,0:saving:4": the rank on seat 1 is lost in step 3
// when it has said that it has prepared it. Points, in the order of a step: casting (with half of the copies that
// forward reads cast, if there are some), computed, prepared, block (with half of its first block written), applied,
// validating, logged, saving, writing (with checkpoint.async, when its state is copied), and at the end of the run
// sampling and done. A replacement does not lose itself.
#pragma once

#include <cstdint>
#include <string_view>

namespace tutti::train {

// Whether this process is to be lost at this point.
bool is_lost_at(std::string_view point, int64_t step);
[[noreturn]] void lose_this_rank();
inline void may_be_lost_at(std::string_view point, int64_t step) {
  if (is_lost_at(point, step)) lose_this_rank();
}

}  // namespace tutti::train
