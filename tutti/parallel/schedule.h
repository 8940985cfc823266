// When ranks exchange gradients, and what they do meanwhile.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tutti::parallel {

// When ranks exchange gradients. Both give the same bits.
enum class Schedule : uint8_t {
  once_a_step,  // rank r runs consecutive shards and keeps their maximal nodes until the end of the step: the fewest
                // bytes
  every_round,  // rank r runs the shards r, R + r, ...; after each, the owners of slices take their part: the least
                // memory when parameters are sharded too
};
// Parses "once_a_step" or "every_round". UsageError for another text.
Schedule parse_schedule(std::string_view text);

// The work of a rank while gradients travel. All give the same bits.
enum class Overlap : uint8_t {
  none,
  // With once_a_step, buckets begin to move under the backward of a rank's last shard, as soon as their parameters are
  // finished. Needs two shards a rank, V >= 2 R, because only after the first one the ranks know what comes; with fewer
  // it changes nothing.
  backward,
};
// Parses "none" or "backward". UsageError for another text.
Overlap parse_overlap(std::string_view text);

// The shards of a rank, in the order in which it runs them. UsageError unless 1 <= ranks <= count.
std::vector<int64_t> shards_of(int64_t count, int rank, int ranks, Schedule schedule);

}  // namespace tutti::parallel
