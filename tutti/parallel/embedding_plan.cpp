#include "tutti/parallel/embedding_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>

#include "tutti/core/error.h"
#include "tutti/core/tree_cut.h"

namespace tutti::parallel {
namespace {

constexpr int64_t kColumnLeaf = 16;  // of a row's sum of squares
constexpr double kIndexBytes = 8, kValueBytes = 4;
constexpr std::array kAll{TablePlacement::data_parallel, TablePlacement::table_wise, TablePlacement::column_wise,
                          TablePlacement::table_row_wise, TablePlacement::row_wise};

int64_t bytes_of(const PlannedTable& t, int64_t rows, int64_t columns) {
  int64_t elements = 0, row = 0, total = 0;
  const bool fits = !__builtin_mul_overflow(columns, t.element_bytes + t.element_state_bytes, &elements) &&
                    !__builtin_add_overflow(elements, t.row_state_bytes, &row) &&
                    !__builtin_mul_overflow(row, rows, &total);
  TUTTI_CHECK(fits, "embedding plan: table '{}' of {} rows and {} columns has more than 2^63 bytes", t.name, rows,
              columns);
  return total;
}

void check(std::span<const PlannedTable> tables, const EmbeddingRanks& r) {
  TUTTI_CHECK(r.ranks > 0 && r.nodes > 0 && r.ranks % r.nodes == 0,
              "embedding plan: {} ranks on {} nodes; expected at least one, and as many on each node", r.ranks,
              r.nodes);
  TUTTI_CHECK(r.ranks <= INT32_MAX, "embedding plan: {} ranks; expected at most 2^31 - 1", r.ranks);
  TUTTI_CHECK(r.memory_bytes >= 0 && r.batch >= 0 && r.memory_speed > 0 && r.message_bytes >= 0,
              "embedding plan: {} bytes of memory, {} examples, memory speed {}, {} bytes for a message; expected 0 or "
              "more, and a speed",
              r.memory_bytes, r.batch, r.memory_speed, r.message_bytes);
  for (const PlannedTable& t : tables) {
    TUTTI_CHECK(t.rows >= 0 && t.width >= 0 && t.pooling >= 0 && std::isfinite(t.pooling),
                "embedding plan: table '{}' has {} rows, {} columns and bags of {}; expected 0 or more", t.name, t.rows,
                t.width, t.pooling);
    constexpr int64_t most = 1 << 20;
    TUTTI_CHECK(t.element_bytes > 0 && t.element_bytes <= most && t.row_state_bytes >= 0 && t.row_state_bytes <= most &&
                    t.element_state_bytes >= 0 && t.element_state_bytes <= most,
                "embedding plan: table '{}' has {} bytes an element, and state of {} a row and {} an element", t.name,
                t.element_bytes, t.row_state_bytes, t.element_state_bytes);
    bytes_of(t, t.rows, t.width);
  }
}

// What a placement of one table adds to each rank.
struct Candidate {
  TablePlan plan;
  std::vector<int64_t> memory;
  std::vector<double> sent, touched, messages;
};

class Planner {
 public:
  Planner(std::span<const PlannedTable> tables, const EmbeddingRanks& ranks, std::span<const TablePlacement> allowed)
      : tables_(tables), ranks_(ranks), allowed_(allowed), R_(static_cast<size_t>(ranks.ranks)) {
    plan_.tables.resize(tables.size());
    plan_.memory_bytes.assign(R_, 0);
    plan_.sent_bytes.assign(R_, 0);
    plan_.touched_bytes.assign(R_, 0);
    messages_.assign(R_, 0);
  }

  EmbeddingPlan run() {
    std::vector<size_t> order(tables_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return whole(a) > whole(b); });
    for (const size_t t : order) place(t);
    return std::move(plan_);
  }

 private:
  int64_t whole(size_t t) const { return bytes_of(tables_[t], tables_[t].rows, tables_[t].width); }
  int64_t free_of(size_t rank) const { return ranks_.memory_bytes - plan_.memory_bytes[rank]; }
  // In bytes sent.
  double load_of(double sent, double touched, double messages) const {
    return sent + touched / ranks_.memory_speed + messages * ranks_.message_bytes;
  }
  double load_of(size_t rank) const {
    return load_of(plan_.sent_bytes[rank], plan_.touched_bytes[rank], messages_[rank]);
  }

  void place(size_t t) {
    std::optional<Candidate> best;
    std::array<double, 2> best_cost{};
    for (const TablePlacement placement : allowed_) {
      for (Candidate& candidate : candidates_of(t, placement)) {
        const std::optional<std::array<double, 2>> cost = cost_of(candidate);
        if (!cost || (best && *cost >= best_cost)) continue;
        best_cost = *cost;
        best = std::move(candidate);
      }
    }
    if (!best) refuse(t);
    for (size_t r = 0; r < R_; ++r) {
      plan_.memory_bytes[r] += best->memory[r];
      plan_.sent_bytes[r] += best->sent[r];
      plan_.touched_bytes[r] += best->touched[r];
      messages_[r] += best->messages[r];
      best->plan.sent_bytes += best->sent[r];
    }
    plan_.tables[t] = std::move(best->plan);
  }

  // The load of the busiest rank, then the sum of what is sent; nothing when a rank has too little memory.
  std::optional<std::array<double, 2>> cost_of(const Candidate& c) const {
    double most = 0, sent = 0;
    for (size_t r = 0; r < R_; ++r) {
      if (c.memory[r] > free_of(r)) return std::nullopt;
      most = std::max(most, load_of(r) + load_of(c.sent[r], c.touched[r], c.messages[r]));
      sent += c.sent[r];
    }
    return std::array{most, sent};
  }

  // Ranks [begin, end), those with the smallest load first, among equals the one with more memory left.
  std::vector<size_t> by_load(size_t begin, size_t end) const {
    std::vector<size_t> order(end - begin);
    std::iota(order.begin(), order.end(), begin);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return load_of(a) != load_of(b) ? load_of(a) < load_of(b) : free_of(a) > free_of(b);
    });
    return order;
  }

  std::vector<Candidate> candidates_of(size_t t, TablePlacement placement) const {
    const PlannedTable& table = tables_[t];
    if (table.rows == 0 || table.width == 0) return {empty(placement)};
    std::vector<Candidate> found;
    switch (placement) {
      case TablePlacement::data_parallel:
        if (R_ > 1) found.push_back(replicas(table));
        break;
      case TablePlacement::table_wise:
        if (const auto owners = fitting(table, 1, table.width)) found.push_back(columns(table, placement, *owners));
        break;
      case TablePlacement::column_wise:
        for (int64_t slices = 2; slices <= std::min(largest_cut(table.width, kColumnLeaf), ranks_.ranks); slices *= 2)
          if (const auto owners = fitting(table, slices, (table.width + slices - 1) / slices))
            found.push_back(columns(table, placement, *owners));
        break;
      case TablePlacement::table_row_wise: {
        const size_t local = R_ / static_cast<size_t>(ranks_.nodes);
        if (ranks_.nodes > 1 && local > 1)
          for (size_t node = 0; node < R_; node += local) found.push_back(rows(table, placement, node, node + local));
        break;
      }
      case TablePlacement::row_wise:
        if (R_ > 1) found.push_back(rows(table, placement, 0, R_));
        break;
    }
    return found;
  }

  // The `count` least busy ranks with room for so many columns; nothing when there are fewer.
  std::optional<std::vector<size_t>> fitting(const PlannedTable& table, int64_t count, int64_t width) const {
    std::vector<size_t> owners;
    for (const size_t r : by_load(0, R_)) {
      if (bytes_of(table, table.rows, width) > free_of(r)) continue;
      owners.push_back(r);
      if (static_cast<int64_t>(owners.size()) == count) return owners;
    }
    return std::nullopt;
  }

  Candidate empty(TablePlacement placement) const {
    return {{.placement = placement, .parts = {}},
            std::vector<int64_t>(R_, 0),
            std::vector<double>(R_, 0),
            std::vector<double>(R_, 0),
            std::vector<double>(R_, 0)};
  }
  static void add_part(Candidate& c, const PlannedTable& table, size_t rank, TreeCut rows, TreeCut columns) {
    if (rows.size() == 0) return;
    const int64_t bytes = bytes_of(table, rows.size(), columns.size());
    c.memory[rank] += bytes;
    c.plan.parts.push_back({static_cast<int64_t>(rank), rows.begin, rows.end, columns.begin, columns.end, bytes});
  }

  // Examples of a rank, and the rows of a table that they need at most.
  double examples() const { return static_cast<double>(ranks_.batch) / static_cast<double>(R_); }
  double needed_rows(const PlannedTable& t) const {
    return std::min(static_cast<double>(t.rows), examples() * t.pooling);
  }

  // A row that is looked up is read in the forward; one that is updated is read and written.
  Candidate replicas(const PlannedTable& table) const {
    Candidate c = empty(TablePlacement::data_parallel);
    const double row = kValueBytes * static_cast<double>(table.width), others = static_cast<double>(R_ - 1);
    const double updated = std::min(static_cast<double>(table.rows), static_cast<double>(ranks_.batch) * table.pooling);
    for (size_t r = 0; r < R_; ++r) {
      add_part(c, table, r, {0, table.rows}, {0, table.width});
      c.sent[r] = others * needed_rows(table) * (kIndexBytes + row);
      c.messages[r] = others;
      c.touched[r] = examples() * table.pooling * row + 2 * updated * row;
    }
    return c;
  }

  Candidate columns(const PlannedTable& table, TablePlacement placement, std::vector<size_t> owners) const {
    std::sort(owners.begin(), owners.end());
    Candidate c = empty(placement);
    const int slices = static_cast<int>(owners.size());
    const double batch = static_cast<double>(ranks_.batch);
    for (int s = 0; s < slices; ++s) {
      const TreeCut part = tree_cut(table.width, kColumnLeaf, s, slices, table.name);
      const size_t owner = owners[static_cast<size_t>(s)];
      add_part(c, table, owner, {0, table.rows}, part);
      const double row = kValueBytes * static_cast<double>(part.size());
      for (size_t r = 0; r < R_; ++r) {
        c.sent[r] += r == owner ? (batch - examples()) * row : examples() * (table.pooling * kIndexBytes + row);
        c.messages[r] += r == owner ? static_cast<double>(R_ - 1) : 2;
      }
      c.touched[owner] += 3 * batch * table.pooling * row;
    }
    return c;
  }

  Candidate rows(const PlannedTable& table, TablePlacement placement, size_t begin, size_t end) const {
    Candidate c = empty(placement);
    const auto parts = static_cast<int64_t>(end - begin);
    const double row = kValueBytes * static_cast<double>(table.width);
    for (int64_t s = 0; s < parts; ++s) {
      const auto border = [&](int64_t i) {
        return static_cast<int64_t>(static_cast<__int128>(table.rows) * i / parts);
      };
      const TreeCut part{border(s), border(s + 1)};
      const size_t owner = begin + static_cast<size_t>(s);
      add_part(c, table, owner, part, {0, table.width});
      if (part.size() == 0) continue;
      const double others = static_cast<double>(R_ - 1);
      const double needed = needed_rows(table) * static_cast<double>(part.size()) / static_cast<double>(table.rows);
      for (size_t r = 0; r < R_; ++r) {
        c.sent[r] += r == owner ? others * needed * row : needed * (2 * kIndexBytes + row);
        c.messages[r] += r == owner ? others : 2;
      }
      c.touched[owner] += 3 * static_cast<double>(R_) * needed * row;
    }
    for (size_t r = 0; r < R_; ++r) c.touched[r] += examples() * table.pooling * row;
    return c;
  }

  [[noreturn]] void refuse(size_t t) const {
    const int64_t most = ranks_.memory_bytes - *std::min_element(plan_.memory_bytes.begin(), plan_.memory_bytes.end());
    __int128 left = 0;
    for (size_t r = 0; r < R_; ++r) left += free_of(r);
    throw UsageError(fmt::format(
        "embedding plan: table '{}' of {} rows and {} columns takes {} bytes, and fits nowhere: {} ranks have {} bytes "
        "left together, and one of them at most {}; use more ranks, more memory or a smaller type",
        tables_[t].name, tables_[t].rows, tables_[t].width, whole(t), R_,
        static_cast<int64_t>(std::min<__int128>(left, INT64_MAX)), most));
  }

  const std::span<const PlannedTable> tables_;
  const EmbeddingRanks& ranks_;
  const std::span<const TablePlacement> allowed_;
  const size_t R_;
  EmbeddingPlan plan_;
  std::vector<double> messages_;  // of each rank
};

}  // namespace

std::string_view name_of(TablePlacement placement) {
  constexpr std::array<std::string_view, 5> names{"data_parallel", "table_wise", "column_wise", "table_row_wise",
                                                  "row_wise"};
  return names[static_cast<size_t>(placement)];
}

EmbeddingPlan plan_embeddings(std::span<const PlannedTable> tables, const EmbeddingRanks& ranks,
                              std::span<const TablePlacement> allowed) {
  check(tables, ranks);
  return Planner(tables, ranks, allowed.empty() ? std::span<const TablePlacement>(kAll) : allowed).run();
}

std::string EmbeddingPlan::to_string(std::span<const PlannedTable> planned) const {
  TUTTI_CHECK(planned.size() == tables.size(), "embedding plan: {} tables; it has {}", planned.size(), tables.size());
  std::string text;
  for (size_t t = 0; t < tables.size(); ++t) {
    const TablePlan& table = tables[t];
    int64_t bytes = 0;
    std::string ranks;
    for (const TablePart& part : table.parts) {
      bytes += part.bytes;
      ranks += (ranks.empty() ? "" : ",") + std::to_string(part.rank);
    }
    text += fmt::format("table {}: {} rows of {}, {} on ranks {}, {} bytes, {:.0f} bytes sent a step\n",
                        planned[t].name, planned[t].rows, planned[t].width, name_of(table.placement),
                        ranks.empty() ? "none" : ranks, bytes, table.sent_bytes);
  }
  for (size_t r = 0; r < memory_bytes.size(); ++r)
    text += fmt::format("rank {}: {} bytes, {:.0f} bytes sent and {:.0f} bytes of rows touched a step\n", r,
                        memory_bytes[r], sent_bytes[r], touched_bytes[r]);
  return text;
}

}  // namespace tutti::parallel
