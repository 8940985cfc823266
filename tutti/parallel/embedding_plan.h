// EmbeddingPlan: which ranks hold which parts of embedding tables, chosen before a run from sizes alone.
//
// | placement | a rank holds | what ranks send in a step |
// | data_parallel | all tables of this kind, whole | the gradients of the rows that they used, to all others |
// | table_wise | a whole table | indices to the owner, pooled rows back, their gradients to the owner |
// | column_wise | some columns of all rows | the same for each slice; every owner gets the indices |
// | table_row_wise | some rows; the parts of a table are on one node | each row that a rank needs once, and its
// gradient | | row_wise | some rows; the parts are on all ranks | the same |
//
// Rows of the last two travel unpooled, and the rank that has a bag adds them in the order of the bag, so that every
// plan can have the bits of one rank. Slices of columns are nodes of the halving of a row into leaves of 16, because a
// row's sum of squares is summed so.
//
// The planner is greedy: tables are placed one after another, the largest first, each where the busiest rank stays
// least busy with bytes, messages and rows, then where the fewest bytes are sent. When that leaves too little memory
// for a later table, it begins again and keeps memory free for later ones, so that tables that all fit when each is cut
// by rows are never refused where row_wise is allowed; finally it places each where the fullest rank stays emptiest.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::parallel {

enum class TablePlacement : uint8_t { data_parallel, table_wise, column_wise, table_row_wise, row_wise };
std::string_view name_of(TablePlacement placement);

struct PlannedTable {
  std::string name;
  int64_t rows = 0, width = 0;
  double pooling = 1;               // expected rows of a bag
  int64_t element_bytes = 4;        // of a weight
  int64_t row_state_bytes = 4;      // of optimizer state of a row; row-wise Adagrad: 4
  int64_t element_state_bytes = 0;  // and of an element; Adagrad: 4, Adam: 8
};

struct EmbeddingRanks {
  int64_t ranks = 1, nodes = 1;  // nodes divide the ranks: neighbours are on one node
  int64_t memory_bytes = 0;      // for tables and their state, of each rank
  int64_t batch = 1;             // examples of a step on all ranks together
  // A rank moves so many bytes of rows between its memory and its cores in the time in which it sends one byte, and
  // sends so many bytes in the time that one more message to another rank takes.
  double memory_speed = 10, message_bytes = 4096;
};

// Rows [row_begin, row_end) and columns [column_begin, column_end) on a rank.
struct TablePart {
  int64_t rank, row_begin, row_end, column_begin, column_end;
  int64_t bytes;  // of weights and state
  bool operator==(const TablePart&) const = default;
};

struct TablePlan {
  TablePlacement placement = TablePlacement::table_wise;
  std::vector<TablePart> parts;  // by rank; none of a table without elements
  double sent_bytes = 0;         // expected, of all ranks in a step
};

struct EmbeddingPlan {
  std::vector<TablePlan> tables;      // in the order given
  std::vector<int64_t> memory_bytes;  // of each rank
  std::vector<double> sent_bytes;     // expected, of each rank in a step
  std::vector<double> touched_bytes;  // and of rows that it reads and writes

  // A line for each table and each rank.
  std::string to_string(std::span<const PlannedTable> tables) const;
};

// The same for the same arguments on every rank. `allowed` placements, in a tie the earlier; by default all in the
// order of TablePlacement. On one rank every table is table_wise, whatever is allowed. UsageError for sizes that are
// negative or overflow, for more than 65,536 ranks, for nodes that do not divide them, for bags above 2^31, and naming
// a table that fits nowhere, its bytes and what ranks have left, or that no allowed placement can divide.
EmbeddingPlan plan_embeddings(std::span<const PlannedTable> tables, const EmbeddingRanks& ranks,
                              std::span<const TablePlacement> allowed = {});

}  // namespace tutti::parallel
