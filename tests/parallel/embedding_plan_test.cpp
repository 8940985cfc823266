// Plans of embedding tables: every element has one holder (or all), memory holds, odd cases are answered.
#include "tutti/parallel/embedding_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tests/support/message_of.h"
#include "tutti/core/philox.h"

namespace tutti::parallel {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;
using Placements = std::vector<TablePlacement>;

TablePlacement placement_of(const PlannedTable& table, const EmbeddingRanks& ranks, const Placements& allowed = {}) {
  return plan_embeddings(std::array{table}, ranks, allowed).tables[0].placement;
}

// What any plan promises, counted from its parts alone.
void expect_whole(const EmbeddingPlan& plan, const std::vector<PlannedTable>& tables, const EmbeddingRanks& ranks) {
  ASSERT_EQ(plan.tables.size(), tables.size());
  std::vector<int64_t> memory(static_cast<size_t>(ranks.ranks), 0);
  double sent = 0;
  for (size_t t = 0; t < tables.size(); ++t) {
    const TablePlan& table = plan.tables[t];
    const int64_t elements = tables[t].rows * tables[t].width;
    int64_t held = 0, last = -1;
    const bool replicated = table.placement == TablePlacement::data_parallel;
    for (const TablePart& part : table.parts) {
      EXPECT_GT(part.rank, last) << "parts are in the order of ranks, one for each";
      last = part.rank;
      const int64_t rows = part.row_end - part.row_begin, columns = part.column_end - part.column_begin;
      ASSERT_GT(rows, 0);
      ASSERT_GT(columns, 0);
      ASSERT_TRUE(part.row_begin >= 0 && part.row_end <= tables[t].rows);
      ASSERT_TRUE(part.column_begin >= 0 && part.column_end <= tables[t].width);
      for (const TablePart& other : table.parts) {
        const bool apart = part.row_end <= other.row_begin || other.row_end <= part.row_begin ||
                           part.column_end <= other.column_begin || other.column_end <= part.column_begin;
        EXPECT_TRUE(&part == &other || apart != replicated) << "parts of '" << tables[t].name << "' overlap";
      }
      held += rows * columns;
      EXPECT_EQ(part.bytes, rows * (columns * (tables[t].element_bytes + tables[t].element_state_bytes) +
                                    tables[t].row_state_bytes));
      memory[static_cast<size_t>(part.rank)] += part.bytes;
    }
    EXPECT_EQ(held, replicated ? elements * ranks.ranks : elements) << tables[t].name;
    if (table.placement == TablePlacement::table_row_wise && !table.parts.empty()) {
      const int64_t local = ranks.ranks / ranks.nodes;
      EXPECT_EQ(table.parts.front().rank / local, table.parts.back().rank / local);
    }
    sent += table.sent_bytes;
  }
  EXPECT_EQ(memory, plan.memory_bytes);
  for (const int64_t bytes : plan.memory_bytes) EXPECT_LE(bytes, ranks.memory_bytes);
  double by_rank = 0;
  for (const double bytes : plan.sent_bytes) by_rank += bytes;
  EXPECT_NEAR(by_rank, sent, 1e-9 * sent);
}

TEST(EmbeddingPlan, ChoosesByWhatIsSentAndTouched) {
  const EmbeddingRanks ranks{.ranks = 8, .nodes = 2, .memory_bytes = kGiB, .batch = 8192};
  EXPECT_EQ(placement_of({.name = "tiny", .rows = 10, .width = 16}, ranks), TablePlacement::data_parallel);
  EXPECT_NE(placement_of({.name = "large", .rows = 4'000'000, .width = 16}, ranks), TablePlacement::data_parallel);
  EXPECT_NE(placement_of({.name = "larger than a rank", .rows = 40'000'000, .width = 16}, ranks),
            TablePlacement::table_wise);
  EXPECT_EQ(placement_of({.name = "odd", .rows = 40'000'000, .width = 15}, ranks), TablePlacement::row_wise)
      << "15 columns are one leaf";
  const Placements rows_last{TablePlacement::table_wise, TablePlacement::column_wise, TablePlacement::table_row_wise};
  EXPECT_EQ(placement_of({.name = "odd", .rows = 40'000'000, .width = 15}, ranks, rows_last),
            TablePlacement::table_row_wise)
      << "it fits the four ranks of a node";
  EXPECT_EQ(placement_of({.name = "larger than a node", .rows = 100'000'000, .width = 15}, ranks),
            TablePlacement::row_wise);
  EXPECT_EQ(placement_of({.name = "wide", .rows = 3'000'000, .width = 256}, ranks,
                         {TablePlacement::table_wise, TablePlacement::column_wise}),
            TablePlacement::column_wise);
}

TEST(EmbeddingPlan, SendsWhatTheFormulasSay) {
  const PlannedTable table{.name = "t", .rows = 1000, .width = 64, .pooling = 3};
  const EmbeddingRanks ranks{.ranks = 4, .nodes = 2, .memory_bytes = kGiB, .batch = 400};
  const auto sent = [&](TablePlacement placement) {
    return plan_embeddings(std::array{table}, ranks, std::array{placement}).tables[0].sent_bytes;
  };
  const double pooled = 300 * 64 * 4, indices = 300 * (3 + 1) * 8;  // and lengths, of 300 examples of others
  EXPECT_DOUBLE_EQ(sent(TablePlacement::table_wise), indices + 2 * pooled);
  EXPECT_DOUBLE_EQ(sent(TablePlacement::column_wise), 4 * indices + 2 * pooled + 4 * 3 * 1000 * 4)
      << "four slices, which tell each other a sum of squares of each of 1,000 rows";
  const double row = 8 + 64 * 4;
  EXPECT_DOUBLE_EQ(sent(TablePlacement::data_parallel), 4 * 3 * 300 * row) << "each rank uses 300 rows";
  EXPECT_DOUBLE_EQ(sent(TablePlacement::row_wise), 300 * 3 * 2 * row) << "of its 300 rows three quarters are elsewhere";
  EXPECT_DOUBLE_EQ(sent(TablePlacement::table_row_wise), 300 * (2 * 0.5 + 2) * 2 * row);
}

TEST(EmbeddingPlan, ColumnsFallOnNodesOfARow) {
  const auto plan =
      plan_embeddings(std::array{PlannedTable{.name = "t", .rows = 9, .width = 67}},
                      {.ranks = 4, .memory_bytes = kGiB, .batch = 1 << 20}, std::array{TablePlacement::column_wise});
  std::vector<int64_t> ends;
  for (const TablePart& part : plan.tables[0].parts) ends.push_back(part.column_end);
  EXPECT_EQ(ends, (std::vector<int64_t>{17, 34, 51, 67})) << "halves of 34 and 33 columns, halved";
}

TEST(EmbeddingPlan, BalancesTables) {
  std::vector<PlannedTable> tables;
  for (int i = 0; i < 8; ++i) tables.push_back({.name = std::to_string(i), .rows = 1'000'000, .width = 16});
  const EmbeddingRanks ranks{.ranks = 4, .memory_bytes = kGiB, .batch = 4096};
  const EmbeddingPlan plan = plan_embeddings(tables, ranks, std::array{TablePlacement::table_wise});
  expect_whole(plan, tables, ranks);
  for (const int64_t bytes : plan.memory_bytes) EXPECT_EQ(bytes, 2 * 1'000'000 * (16 * 4 + 4));
  for (const double bytes : plan.sent_bytes) EXPECT_DOUBLE_EQ(bytes, plan.sent_bytes[0]);
}

TEST(EmbeddingPlan, AnswersOddCases) {
  const EmbeddingRanks one{.ranks = 1, .memory_bytes = 1000, .batch = 64};
  const EmbeddingPlan none = plan_embeddings({}, one);
  EXPECT_EQ(none.memory_bytes, std::vector<int64_t>{0});
  EXPECT_TRUE(none.tables.empty());
  const std::vector<PlannedTable> small{{.name = "a", .rows = 5, .width = 4},
                                        {.name = "empty", .rows = 0, .width = 4},
                                        {.name = "flat", .rows = 3, .width = 0}};
  const EmbeddingPlan whole = plan_embeddings(small, one);
  expect_whole(whole, small, {.ranks = 1, .memory_bytes = 1000});
  EXPECT_EQ(whole.tables[0].placement, TablePlacement::table_wise);
  EXPECT_EQ(whole.tables[0].sent_bytes, 0);
  EXPECT_TRUE(whole.tables[1].parts.empty());
  // More ranks than rows: some have none.
  const std::vector<PlannedTable> short_table{{.name = "short", .rows = 3, .width = 4}};
  const EmbeddingRanks seven{.ranks = 7, .memory_bytes = 1000, .batch = 64};
  const EmbeddingPlan cut = plan_embeddings(short_table, seven, std::array{TablePlacement::row_wise});
  expect_whole(cut, short_table, seven);
  EXPECT_EQ(cut.tables[0].parts.size(), 3u);
}

TEST(EmbeddingPlan, RefusesWhatDoesNotFit) {
  const PlannedTable huge{.name = "huge", .rows = 1000, .width = 4};
  EXPECT_EQ(message_of([&] { plan_embeddings(std::array{huge}, {.ranks = 2, .memory_bytes = 9999}); }),
            "embedding plan: table 'huge' of 1000 rows and 4 columns takes 20000 bytes, and fits nowhere: 2 ranks have "
            "19998 bytes left together, and one of them at most 9999; use more ranks, more memory or a smaller type");
  EXPECT_EQ(plan_embeddings(std::array{huge}, {.ranks = 2, .memory_bytes = 10000}).tables[0].placement,
            TablePlacement::row_wise);
  const auto refusal = [](const PlannedTable& table, const EmbeddingRanks& ranks) {
    return message_of([&] { plan_embeddings(std::array{table}, ranks); });
  };
  EXPECT_EQ(refusal(huge, {.ranks = 4, .nodes = 3}),
            "embedding plan: 4 ranks on 3 nodes; expected at least one, and as many on each node");
  EXPECT_EQ(refusal(huge, {.ranks = 0}),
            "embedding plan: 0 ranks on 1 nodes; expected at least one, and as many on each node");
  EXPECT_EQ(refusal({.name = "t", .rows = -1, .width = 4}, {}),
            "embedding plan: table 't' has -1 rows, 4 columns and bags of 1; expected 0 or more, and bags of at most "
            "2^31");
  EXPECT_EQ(refusal({.name = "t", .rows = 1, .width = 4, .pooling = NAN}, {}),
            "embedding plan: table 't' has 1 rows, 4 columns and bags of nan; expected 0 or more, and bags of at most "
            "2^31");
  EXPECT_NE(refusal({.name = "t", .rows = 1, .width = 4, .pooling = 1e300}, {}).find("bags of 1e+300"),
            std::string::npos);
  EXPECT_EQ(refusal(huge, {.ranks = 65537}), "embedding plan: 65537 ranks; expected at most 65536");
  for (const EmbeddingRanks& infinite :
       {EmbeddingRanks{.message_bytes = INFINITY}, EmbeddingRanks{.memory_speed = INFINITY}})
    EXPECT_NE(refusal(huge, infinite).find("and finite numbers"), std::string::npos);
  EXPECT_EQ(refusal({.name = "t", .rows = INT64_MAX, .width = 4}, {}),
            "embedding plan: table 't' of 9223372036854775807 rows and 4 columns has more than 2^63 bytes");
}

TEST(EmbeddingPlan, KeepsRoomForLaterTables) {
  std::vector<PlannedTable> tables;
  for (int i = 0; i < 4; ++i) tables.push_back({.name = std::to_string(i), .rows = 10'000'000, .width = 16});
  const int64_t all = 4 * int64_t{10'000'000} * (16 * 4 + 4);
  for (const int64_t memory : {2 * kGiB, all / 2, all / 2 + 1000, all / 2 + all / 16, all})
    for (const int64_t batch : {1, 64, 4096, 65536, 1 << 20}) {
      const EmbeddingRanks two{.ranks = 2, .memory_bytes = memory, .batch = batch};
      expect_whole(plan_embeddings(tables, two), tables, two);
    }
  EXPECT_NE(
      message_of([&] { plan_embeddings(tables, {.ranks = 2, .memory_bytes = all / 2 - 1}); }).find("fits nowhere"),
      std::string::npos);
  // Whole tables alone: where the busiest rank stays least busy is not where they fit.
  const std::vector<PlannedTable> uneven{{.name = "rare", .rows = 300, .width = 16, .pooling = 0.01},
                                         {.name = "read", .rows = 200, .width = 16, .pooling = 100},
                                         {.name = "more", .rows = 150, .width = 16, .pooling = 0.01},
                                         {.name = "last", .rows = 150, .width = 16, .pooling = 0.01}};
  const EmbeddingRanks half{.ranks = 2, .memory_bytes = int64_t{500} * (16 * 4 + 4), .batch = 64};
  expect_whole(plan_embeddings(uneven, half, std::array{TablePlacement::table_wise}), uneven, half);
}

TEST(EmbeddingPlan, OneRankHoldsWholeTablesWhateverIsAllowed) {
  const std::vector<PlannedTable> tables{{.name = "a", .rows = 5, .width = 40}};
  const EmbeddingRanks one{.memory_bytes = 1000, .batch = 4};
  for (const TablePlacement placement : {TablePlacement::data_parallel, TablePlacement::column_wise,
                                         TablePlacement::table_row_wise, TablePlacement::row_wise}) {
    const EmbeddingPlan plan = plan_embeddings(tables, one, std::array{placement});
    expect_whole(plan, tables, one);
    EXPECT_EQ(plan.tables[0].placement, TablePlacement::table_wise);
    EXPECT_EQ(plan.sent_bytes[0], 0);
  }
}

TEST(EmbeddingPlan, SaysWhyNoPlacementCanDivideATable) {
  const PlannedTable narrow{.name = "narrow", .rows = 9, .width = 16};
  EXPECT_EQ(message_of([&] {
              plan_embeddings(std::array{narrow}, {.ranks = 4, .memory_bytes = kGiB},
                              std::array{TablePlacement::column_wise, TablePlacement::table_row_wise});
            }),
            "embedding plan: no allowed placement can divide table 'narrow' of 9 rows and 16 columns over 4 ranks on 1 "
            "nodes: column_wise needs more than 16 columns, and table_row_wise needs two nodes or more with two ranks "
            "or more; allow another placement");
}

TEST(EmbeddingPlan, ARowIsUpdatedOnceAStep) {
  // 10 rows, looked up 4000 times: all are read and written once more.
  const PlannedTable small{.name = "t", .rows = 10, .width = 32, .pooling = 10};
  const EmbeddingRanks ranks{.ranks = 4, .nodes = 2, .memory_bytes = kGiB, .batch = 400};
  const double row = 32 * 4;
  const auto touched = [&](TablePlacement placement) {
    double sum = 0;
    for (const double bytes : plan_embeddings(std::array{small}, ranks, std::array{placement}).touched_bytes)
      sum += bytes;
    return sum;
  };
  EXPECT_DOUBLE_EQ(touched(TablePlacement::table_wise), (4000 + 2 * 10) * row);
  EXPECT_DOUBLE_EQ(touched(TablePlacement::column_wise), (4000 + 2 * 10) * row);
  EXPECT_DOUBLE_EQ(touched(TablePlacement::row_wise), (4000 + 4 * 10 + 2 * 10) * row);
  EXPECT_DOUBLE_EQ(touched(TablePlacement::data_parallel), (4000 + 4 * 2 * 10) * row);
}

// Whether every rank has room for its share of every table, with shares that end at row rows * rank / ranks.
bool fits_by_rows(const std::vector<PlannedTable>& tables, const EmbeddingRanks& ranks) {
  for (int64_t r = 0; r < ranks.ranks; ++r) {
    int64_t bytes = 0;
    for (const PlannedTable& t : tables)
      bytes += (t.rows * (r + 1) / ranks.ranks - t.rows * r / ranks.ranks) *
               (t.width * (t.element_bytes + t.element_state_bytes) + t.row_state_bytes);
    if (bytes > ranks.memory_bytes) return false;
  }
  return true;
}

TEST(EmbeddingPlan, HoldsForRandomTables) {
  int tight = 0, refused = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const auto draw = [&](uint32_t i, int64_t end) {
      return static_cast<int64_t>(philox4x32({i, seed, 0, 0}, {3, 4})[0]) % end;
    };
    const int64_t nodes = 1 + draw(0, 3), ranks = nodes * (1 + draw(1, 5));
    std::vector<PlannedTable> tables;
    int64_t bytes = 0;
    for (uint32_t t = 0; t < draw(2, 30); ++t) {
      tables.push_back({.name = std::to_string(t),
                        .rows = draw(10 + t, 1 << (draw(50 + t, 20) + 1)),
                        .width = 1 + draw(90 + t, 130),
                        .pooling = 1 + static_cast<double>(draw(130 + t, 50)),
                        .element_bytes = 2 + 2 * draw(170 + t, 2),
                        .row_state_bytes = 4 * draw(210 + t, 2),
                        .element_state_bytes = 4 * draw(250 + t, 3)});
      const PlannedTable& made = tables.back();
      bytes += made.rows * (made.width * (made.element_bytes + made.element_state_bytes) + made.row_state_bytes);
    }
    // From what is too little to twice of what is enough.
    const EmbeddingRanks where{.ranks = ranks,
                               .nodes = nodes,
                               .memory_bytes = bytes / ranks * (9 + draw(4, 12)) / 10 + 1000,
                               .batch = draw(3, 9999)};
    const bool fits = fits_by_rows(tables, where);
    try {
      const EmbeddingPlan plan = plan_embeddings(tables, where);
      expect_whole(plan, tables, where);
      EXPECT_EQ(plan.to_string(tables), plan_embeddings(tables, where).to_string(tables));
      tight += fits;
    } catch (const UsageError& error) {
      EXPECT_FALSE(fits) << "seed " << seed << ": " << error.what();
      EXPECT_NE(std::string(error.what()).find("fits nowhere"), std::string::npos) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(tight, 50);
  EXPECT_GT(refused, 5);
}

TEST(EmbeddingPlan, IsPrinted) {
  const std::vector<PlannedTable> tables{{.name = "users", .rows = 100, .width = 8},
                                         {.name = "none", .rows = 0, .width = 8}};
  EXPECT_EQ(
      plan_embeddings(tables, {.ranks = 2, .memory_bytes = 2000, .batch = 4}, std::array{TablePlacement::row_wise})
          .to_string(tables),
      "table users: 100 rows of 8, row_wise on ranks 0,1, 3600 bytes, 160 bytes sent a step\n"
      "table none: 0 rows of 8, row_wise on ranks none, 0 bytes, 0 bytes sent a step\n"
      "rank 0: 1800 bytes, 80 bytes sent and 256 bytes of rows touched a step\n"
      "rank 1: 1800 bytes, 80 bytes sent and 256 bytes of rows touched a step\n");
}

}  // namespace
}  // namespace tutti::parallel
