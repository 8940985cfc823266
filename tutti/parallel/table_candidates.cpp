#include "tutti/parallel/table_candidates.h"

#include <algorithm>

#include "tutti/core/error.h"
#include "tutti/core/tree_cut.h"

namespace tutti::parallel {
namespace {

constexpr double kIndexBytes = 8, kValueBytes = 4;

TreeCut row_part(const PlannedTable& table, int64_t part, int64_t parts) {
  const auto border = [&](int64_t i) { return static_cast<int64_t>(static_cast<__int128>(table.rows) * i / parts); };
  return {border(part), border(part + 1)};
}

void add_part(TableCandidate& c, const PlannedTable& table, size_t rank, TreeCut rows, TreeCut columns) {
  if (rows.size() == 0) return;
  const int64_t bytes = table_nbytes(table, rows.size(), columns.size());
  c.memory[rank] += bytes;
  c.plan.parts.push_back({static_cast<int64_t>(rank), rows.begin, rows.end, columns.begin, columns.end, bytes});
}

// The examples of a step on one rank, the rows of a table that they need at most, and those that all examples need.
double examples_of(const EmbeddingRanks& ranks) {
  return static_cast<double>(ranks.batch) / static_cast<double>(ranks.ranks);
}
double needed_rows(const PlannedTable& t, const EmbeddingRanks& ranks) {
  return std::min(static_cast<double>(t.rows), examples_of(ranks) * t.pooling);
}
double updated_rows(const PlannedTable& t, const EmbeddingRanks& ranks) {
  return std::min(static_cast<double>(t.rows), static_cast<double>(ranks.batch) * t.pooling);
}

}  // namespace

int64_t table_nbytes(const PlannedTable& t, int64_t rows, int64_t columns) {
  int64_t elements = 0, row = 0, total = 0;
  const bool fits = !__builtin_mul_overflow(columns, t.element_bytes + t.element_state_bytes, &elements) &&
                    !__builtin_add_overflow(elements, t.row_state_bytes, &row) &&
                    !__builtin_mul_overflow(row, rows, &total);
  TUTTI_CHECK(fits, "embedding plan: table '{}' of {} rows and {} columns has more than 2^63 bytes", t.name, rows,
              columns);
  return total;
}

int64_t row_part_nbytes(const PlannedTable& table, int64_t part, int64_t parts) {
  return table_nbytes(table, row_part(table, part, parts).size(), table.width);
}

TableCandidate no_table(const EmbeddingRanks& ranks, TablePlacement placement) {
  const auto R = static_cast<size_t>(ranks.ranks);
  return {{.placement = placement, .parts = {}},
          std::vector<int64_t>(R, 0),
          std::vector<double>(R, 0),
          std::vector<double>(R, 0),
          std::vector<double>(R, 0)};
}

// In all three, a row is read once for each lookup that its holder serves, and read and written once when it is
// updated, however often it was looked up.
TableCandidate replicated_table(const PlannedTable& table, const EmbeddingRanks& ranks) {
  TableCandidate c = no_table(ranks, TablePlacement::data_parallel);
  const double row = kValueBytes * static_cast<double>(table.width), others = static_cast<double>(ranks.ranks - 1);
  for (size_t r = 0; r < c.memory.size(); ++r) {
    add_part(c, table, r, {0, table.rows}, {0, table.width});
    c.sent[r] = others * needed_rows(table, ranks) * (kIndexBytes + row);
    c.messages[r] = others;
    c.touched[r] = examples_of(ranks) * table.pooling * row + 2 * updated_rows(table, ranks) * row;
  }
  return c;
}

TableCandidate table_by_columns(const PlannedTable& table, const EmbeddingRanks& ranks, TablePlacement placement,
                                std::vector<size_t> owners) {
  std::sort(owners.begin(), owners.end());
  TableCandidate c = no_table(ranks, placement);
  const int slices = static_cast<int>(owners.size());
  const double batch = static_cast<double>(ranks.batch), examples = examples_of(ranks);
  for (int s = 0; s < slices; ++s) {
    const TreeCut part = tree_cut(table.width, kTableColumnLeaf, s, slices, table.name);
    const size_t owner = owners[static_cast<size_t>(s)];
    add_part(c, table, owner, {0, table.rows}, part);
    const double row = kValueBytes * static_cast<double>(part.size());
    // Optimizers with a state of each row take means over whole rows.
    const double squares = table.row_state_bytes > 0 ? (slices - 1) * updated_rows(table, ranks) * kValueBytes : 0;
    for (size_t r = 0; r < c.memory.size(); ++r) {
      c.sent[r] += r == owner ? (batch - examples) * row + squares
                              : examples * ((table.pooling + 1) * kIndexBytes + row);  // a length for each bag
      c.messages[r] += r == owner ? static_cast<double>(ranks.ranks - 1) : 2;
    }
    c.touched[owner] += (batch * table.pooling + 2 * updated_rows(table, ranks)) * row;
  }
  return c;
}

TableCandidate table_by_rows(const PlannedTable& table, const EmbeddingRanks& ranks, TablePlacement placement,
                             size_t begin, size_t end) {
  TableCandidate c = no_table(ranks, placement);
  const auto parts = static_cast<int64_t>(end - begin);
  const double row = kValueBytes * static_cast<double>(table.width), others = static_cast<double>(ranks.ranks - 1);
  for (int64_t s = 0; s < parts; ++s) {
    const TreeCut part = row_part(table, s, parts);
    const size_t owner = begin + static_cast<size_t>(s);
    add_part(c, table, owner, part, {0, table.width});
    if (part.size() == 0) continue;
    const double share = static_cast<double>(part.size()) / static_cast<double>(table.rows);
    const double needed = needed_rows(table, ranks) * share, updated = updated_rows(table, ranks) * share;
    for (size_t r = 0; r < c.memory.size(); ++r) {
      c.sent[r] += r == owner ? others * needed * row : needed * (2 * kIndexBytes + row);
      c.messages[r] += r == owner ? others : 2;
    }
    c.touched[owner] += (static_cast<double>(ranks.ranks) * needed + 2 * updated) * row;
  }
  for (double& touched : c.touched) touched += examples_of(ranks) * table.pooling * row;
  return c;
}

}  // namespace tutti::parallel
