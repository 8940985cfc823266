#include "tutti/parallel/schedule.h"

#include <fmt/format.h>

#include "tutti/core/error.h"
#include "tutti/parallel/gradient_exchange.h"

namespace tutti::parallel {

Schedule parse_schedule(std::string_view text) {
  if (text == "once_a_step") return Schedule::once_a_step;
  if (text == "every_round") return Schedule::every_round;
  throw UsageError(fmt::format("'{}' is no schedule of gradient exchange; expected once_a_step or every_round", text));
}

Overlap parse_overlap(std::string_view text) {
  if (text == "none") return Overlap::none;
  if (text == "backward") return Overlap::backward;
  throw UsageError(fmt::format("'{}' is no overlap of the gradient exchange; expected none or backward", text));
}

std::vector<int64_t> shards_of(int64_t count, int rank, int ranks, Schedule schedule) {
  const ShardRange range = shards_of_rank(count, rank, ranks);
  std::vector<int64_t> mine;
  if (schedule == Schedule::once_a_step || ranks == 1) {
    for (int64_t s = range.begin; s < range.end; ++s) mine.push_back(s);
  } else {
    for (int64_t s = rank; s < count; s += ranks) mine.push_back(s);
  }
  return mine;
}

}  // namespace tutti::parallel
