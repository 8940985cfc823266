// IndexSet: the indices of a dim that a rank holds, in the order in which it holds them.
#pragma once

#include <cstdint>
#include <vector>

namespace tutti::dist {

// How a dim is cut over the ranks of a mesh axis: numerics contract, N11.
enum class Cut : uint8_t {
  halving,  // the borders of the reduction tree; over a number of ranks that is no power of two: as chunk
  chunk,    // ranges of ceil(size / ranks) elements: the last ranks may hold fewer, or none
};

struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

// The positions, in [0, size), that `rank` of `ranks` gets.
Range cut_range(int64_t size, int64_t rank, int64_t ranks, Cut cut);

// Ranges of indices, not empty, one after another in local order.
class IndexSet {
 public:
  IndexSet() = default;
  explicit IndexSet(int64_t size) { add({0, size}); }
  const std::vector<Range>& ranges() const { return ranges_; }
  int64_t size() const;
  int64_t at(int64_t position) const;  // the index at a position in local order, which is less than size()
  bool is_range() const { return ranges_.size() <= 1; }
  // The part of each of `pieces` equal pieces that `rank` of `ranks` gets. UsageError unless `pieces` divides the size.
  IndexSet cut(int64_t rank, int64_t ranks, int64_t pieces, Cut how) const;
  // Joins the range to the last one where they touch.
  void add(Range range);
  friend bool operator==(const IndexSet&, const IndexSet&) = default;

 private:
  std::vector<Range> ranges_;
};

// A run of indices that two sets share, with the place of its first one in each.
struct SharedRun {
  int64_t index, in_first, in_second, length;
};
// The indices of both sets, in the order of the second.
std::vector<SharedRun> shared_runs(const IndexSet& first, const IndexSet& second);

}  // namespace tutti::dist
