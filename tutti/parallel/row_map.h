// RowMap: where the rows of all ranks stand when each rank has some of the experts.
//
// On the rank that its token comes from, a row stands by expert and then by token. On the rank of its expert it stands
// by expert, source rank and token. Rows of one expert from one source are neighbours in both places: a segment.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tutti::parallel {

class RowMap {
 public:
  // counts[s * experts + x]: the rows of rank s for expert x. UsageError, naming the rank, unless those for each rank
  // are at most `capacity`.
  RowMap(std::span<const int64_t> counts, int ranks, int64_t capacity);

  int64_t experts() const { return experts_; }
  int64_t own_experts() const { return experts_ / ranks_; }
  int rank_of(int64_t expert) const { return static_cast<int>(expert / own_experts()); }
  int64_t count(int source, int64_t expert) const { return counts_[at(source, expert)]; }
  // The first row of a segment on its source, and on the rank of the expert.
  int64_t at_source(int source, int64_t expert) const { return at_source_[at(source, expert)]; }
  int64_t at_expert(int source, int64_t expert) const { return at_expert_[at(source, expert)]; }

 private:
  size_t at(int source, int64_t expert) const { return static_cast<size_t>(source * experts_ + expert); }

  const int ranks_;
  const int64_t experts_;
  const std::span<const int64_t> counts_;
  std::vector<int64_t> at_source_, at_expert_;
};

}  // namespace tutti::parallel
