// What one placement of one embedding table adds to each rank: its parts, its memory, and the expected work of a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tutti/parallel/embedding_plan.h"

namespace tutti::parallel {

inline constexpr int64_t kTableColumnLeaf = 16;  // of a row's sum of squares

struct TableCandidate {
  TablePlan plan;
  std::vector<int64_t> memory;                  // of each rank
  std::vector<double> sent, touched, messages;  // bytes, bytes and their number, of each rank in a step
};

// Counts weights and optimizer state. UsageError naming the table when they are more than 2^63.
int64_t table_nbytes(const PlannedTable& table, int64_t rows, int64_t columns);
// Counts the same for part `part` of `parts` of a table cut by rows.
int64_t row_part_nbytes(const PlannedTable& table, int64_t part, int64_t parts);

TableCandidate no_table(const EmbeddingRanks& ranks, TablePlacement placement);
TableCandidate replicated_table(const PlannedTable& table, const EmbeddingRanks& ranks);
// A slice of columns for each owner; one owner has the whole table.
TableCandidate table_by_columns(const PlannedTable& table, const EmbeddingRanks& ranks, TablePlacement placement,
                                std::vector<size_t> owners);
// Cut by rows over the ranks [begin, end).
TableCandidate table_by_rows(const PlannedTable& table, const EmbeddingRanks& ranks, TablePlacement placement,
                             size_t begin, size_t end);

}  // namespace tutti::parallel
