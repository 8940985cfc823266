#include "tutti/dist/index_set.h"

#include <algorithm>
#include <bit>

#include "tutti/core/error.h"
#include "tutti/core/tree_cut.h"

namespace tutti::dist {

Range cut_range(int64_t size, int64_t rank, int64_t ranks, Cut cut) {
  if (cut == Cut::chunk || !std::has_single_bit(static_cast<uint64_t>(ranks))) {
    const int64_t chunk = size / ranks + (size % ranks != 0 ? 1 : 0);
    const auto border = [&](int64_t r) { return chunk == 0 || r > size / chunk ? size : chunk * r; };
    return {border(rank), border(rank + 1)};
  }
  Range range{0, size};
  for (int64_t below = ranks; below > 1; below /= 2) {
    const int64_t middle = range.end - range.size() / 2;
    if (rank % below < below / 2) range.end = middle;
    else range.begin = middle;
  }
  return range;
}

int64_t IndexSet::size() const {
  int64_t sum = 0;
  for (const Range& r : ranges_) sum += r.size();
  return sum;
}

void IndexSet::add(Range range) {
  if (range.size() <= 0) return;
  if (!ranges_.empty() && ranges_.back().end == range.begin) ranges_.back().end = range.end;
  else ranges_.push_back(range);
}

int64_t IndexSet::at(int64_t position) const {
  size_t k = 0;
  while (position >= ranges_[k].size()) position -= ranges_[k++].size();
  return ranges_[k].begin + position;
}

IndexSet IndexSet::cut(int64_t rank, int64_t ranks, int64_t pieces, Cut how) const {
  const int64_t n = size();
  TUTTI_CHECK(pieces >= 1 && n % pieces == 0, "a dim of {} elements cannot be cut in {} equal pieces", n, pieces);
  const Range part = cut_range(n / pieces, rank, ranks, how);
  IndexSet result;
  for (int64_t p = 0; p < pieces; ++p) {
    const Range wanted{p * (n / pieces) + part.begin, p * (n / pieces) + part.end};
    int64_t at = 0;
    for (const Range& r : ranges_) {
      const int64_t begin = std::max(wanted.begin, at), end = std::min(wanted.end, at + r.size());
      result.add({r.begin + begin - at, r.begin + std::max(begin, end) - at});
      at += r.size();
    }
  }
  return result;
}

std::vector<SharedRun> shared_runs(const IndexSet& first, const IndexSet& second) {
  std::vector<SharedRun> runs;
  int64_t at_second = 0;
  for (const Range& b : second.ranges()) {
    std::vector<SharedRun> of_range;
    int64_t at_first = 0;
    for (const Range& a : first.ranges()) {
      const int64_t begin = std::max(a.begin, b.begin), end = std::min(a.end, b.end);
      if (begin < end)
        of_range.push_back({begin, at_first + begin - a.begin, at_second + begin - b.begin, end - begin});
      at_first += a.size();
    }
    std::sort(of_range.begin(), of_range.end(),
              [](const SharedRun& x, const SharedRun& y) { return x.index < y.index; });
    runs.insert(runs.end(), of_range.begin(), of_range.end());
    at_second += b.size();
  }
  return runs;
}

}  // namespace tutti::dist
