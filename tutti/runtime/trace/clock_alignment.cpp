#include "tutti/runtime/trace/clock_alignment.h"

#include <algorithm>

namespace tutti {
namespace {

using By = ClockOffset::By;

// What each call that both made says about the offset of `late` against `early`, whose own is known.
std::vector<int64_t> differences(const RankClock& known, int64_t known_offset, const RankClock& other) {
  std::vector<int64_t> found;
  for (const auto& [key, end] : other.ends) {
    if (const auto it = known.ends.find(key); it != known.ends.end()) found.push_back(it->second + known_offset - end);
  }
  return found;
}

// A rank that the system kept from running ends a call late now and then: the median does not mind.
int64_t median(std::vector<int64_t> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

const char* name_of(ClockOffset::By by) {
  static constexpr const char* names[] = {"reference", "same clock", "collectives", "wall clock"};
  return names[static_cast<int>(by)];
}

std::vector<ClockOffset> align_clocks(std::span<const RankClock> clocks) {
  std::vector<ClockOffset> offsets(clocks.size());
  std::vector<size_t> known, open;
  for (size_t r = 0; r < clocks.size(); ++r) (r == 0 ? known : open).push_back(r);
  if (!known.empty()) offsets[0].by = By::reference;
  const auto settle = [&](size_t r, const ClockOffset& offset) {
    offsets[r] = offset;
    known.push_back(r);
    std::erase(open, r);
  };
  // Each round settles one rank: by an equal clock if there is one, else the one that has most calls in common.
  while (!open.empty()) {
    size_t best_rank = 0, best_matches = 0;
    ClockOffset best;
    for (const size_t r : open) {
      for (const size_t k : known) {
        if (best.by == By::same_clock) break;
        if (!clocks[r].clock.empty() && clocks[r].clock == clocks[k].clock) {
          const int64_t start = clocks[k].base_ns + offsets[k].ns + (clocks[r].monotonic_ns - clocks[k].monotonic_ns);
          best = {.ns = start - clocks[r].base_ns, .by = By::same_clock};
          best_rank = r;
          continue;
        }
        std::vector<int64_t> found = differences(clocks[k], offsets[k].ns, clocks[r]);
        if (found.size() <= best_matches) continue;
        best_matches = found.size();
        best = {.ns = median(std::move(found)), .by = By::collectives, .matches = static_cast<int64_t>(best_matches)};
        best_rank = r;
      }
    }
    // Nothing links the rest: one of them is taken at its word, and may link others.
    if (best.by == By::wall_clock) best_rank = open.front();
    settle(best_rank, best);
  }
  return offsets;
}

}  // namespace tutti
