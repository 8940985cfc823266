#include "tutti/parallel/row_map.h"

#include "tutti/core/error.h"

namespace tutti::parallel {

RowMap::RowMap(std::span<const int64_t> counts, int ranks, int64_t capacity)
    : ranks_(ranks),
      experts_(static_cast<int64_t>(counts.size()) / ranks),
      counts_(counts),
      at_source_(counts.size()),
      at_expert_(counts.size()) {
  for (int s = 0; s < ranks; ++s) {
    int64_t row = 0;
    for (int64_t x = 0; x < experts_; ++x) {
      at_source_[at(s, x)] = row;
      row += count(s, x);
    }
  }
  for (int r = 0; r < ranks; ++r) {
    int64_t row = 0;
    for (int64_t x = r * own_experts(); x < (r + 1) * own_experts(); ++x) {
      for (int s = 0; s < ranks; ++s) {
        at_expert_[at(s, x)] = row;
        row += count(s, x);
      }
    }
    TUTTI_CHECK(row <= capacity,
                "dispatch of rows: {} rows go to rank {}, which has room for {}; give all ranks the same max_tokens",
                row, r, capacity);
  }
}

}  // namespace tutti::parallel
