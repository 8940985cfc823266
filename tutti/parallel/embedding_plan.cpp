#include "tutti/parallel/embedding_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>

#include "tutti/core/error.h"
#include "tutti/core/tree_cut.h"
#include "tutti/parallel/table_candidates.h"

namespace tutti::parallel {
namespace {

constexpr std::array kAll{TablePlacement::data_parallel, TablePlacement::table_wise, TablePlacement::column_wise,
                          TablePlacement::table_row_wise, TablePlacement::row_wise};

void check(std::span<const PlannedTable> tables, const EmbeddingRanks& r) {
  TUTTI_CHECK(r.ranks > 0 && r.nodes > 0 && r.ranks % r.nodes == 0,
              "embedding plan: {} ranks on {} nodes; expected at least one, and as many on each node", r.ranks,
              r.nodes);
  TUTTI_CHECK(r.ranks <= 1 << 16, "embedding plan: {} ranks; expected at most 65536", r.ranks);
  TUTTI_CHECK(r.memory_bytes >= 0 && r.batch >= 0 && r.memory_speed > 0 && std::isfinite(r.memory_speed) &&
                  r.message_bytes >= 0 && std::isfinite(r.message_bytes),
              "embedding plan: {} bytes of memory, {} examples, memory speed {}, {} bytes for a message; expected 0 or "
              "more, a speed, and finite numbers",
              r.memory_bytes, r.batch, r.memory_speed, r.message_bytes);
  for (const PlannedTable& t : tables) {
    TUTTI_CHECK(t.rows >= 0 && t.width >= 0 && t.pooling >= 0 && t.pooling <= 0x1p31,
                "embedding plan: table '{}' has {} rows, {} columns and bags of {}; expected 0 or more, and bags of at "
                "most 2^31",
                t.name, t.rows, t.width, t.pooling);
    constexpr int64_t most = 1 << 20;
    TUTTI_CHECK(t.element_bytes > 0 && t.element_bytes <= most && t.row_state_bytes >= 0 && t.row_state_bytes <= most &&
                    t.element_state_bytes >= 0 && t.element_state_bytes <= most,
                "embedding plan: table '{}' has {} bytes an element, and state of {} a row and {} an element", t.name,
                t.element_bytes, t.row_state_bytes, t.element_state_bytes);
    table_nbytes(t, t.rows, t.width);
  }
}

// How a pass over the tables chooses. A pass that places all tables ends the search.
enum class Care {
  load,          // the least busy placement that fits, whatever comes later
  total,         // and leaves enough memory on all ranks together for the tables that come later
  rows,          // and leaves enough on each rank for the later ones cut by rows
  least_memory,  // the fullest rank stays as empty as possible
};

class Planner {
 public:
  Planner(std::span<const PlannedTable> tables, const EmbeddingRanks& ranks, std::span<const TablePlacement> allowed)
      : tables_(tables), ranks_(ranks), allowed_(allowed), R_(static_cast<size_t>(ranks.ranks)) {}

  EmbeddingPlan run() {
    std::vector<size_t> order(tables_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return whole(a) > whole(b); });
    for (const Care care : {Care::load, Care::total, Care::rows, Care::least_memory}) {
      begin(care);
      const auto refused = std::find_if_not(order.begin(), order.end(), [&](size_t t) { return place(t); });
      if (refused == order.end()) return std::move(plan_);
      if (R_ == 1 || care == Care::least_memory) refuse(*refused);
    }
    TUTTI_ASSERT(false, "embedding plan: no pass was the last");
  }

 private:
  int64_t whole(size_t t) const { return table_nbytes(tables_[t], tables_[t].rows, tables_[t].width); }
  int64_t free_of(size_t rank) const { return ranks_.memory_bytes - plan_.memory_bytes[rank]; }
  // In bytes sent.
  double load_of(double sent, double touched, double messages) const {
    return sent + touched / ranks_.memory_speed + messages * ranks_.message_bytes;
  }
  double load_of(size_t rank) const {
    return load_of(plan_.sent_bytes[rank], plan_.touched_bytes[rank], messages_[rank]);
  }

  void begin(Care care) {
    care_ = care;
    plan_.tables.assign(tables_.size(), {});
    plan_.memory_bytes.assign(R_, 0);
    plan_.sent_bytes.assign(R_, 0);
    plan_.touched_bytes.assign(R_, 0);
    messages_.assign(R_, 0);
    later_.assign(R_, 0);
    for (size_t t = 0; t < tables_.size(); ++t) reserve(t, 1);
  }
  // Adds (sign 1) or takes away (-1) what a table needs on each rank when it is cut by rows.
  void reserve(size_t t, int sign) {
    if (care_ != Care::total && care_ != Care::rows) return;
    for (size_t r = 0; r < R_; ++r)
      later_[r] += sign * static_cast<__int128>(row_part_nbytes(tables_[t], static_cast<int64_t>(r), ranks_.ranks));
  }

  // Returns false when the table fits nowhere.
  bool place(size_t t) {
    reserve(t, -1);
    std::optional<TableCandidate> best;
    std::array<double, 3> best_cost{};
    for (const TablePlacement placement : allowed_) {
      for (TableCandidate& candidate : candidates_of(t, placement)) {
        const std::optional<std::array<double, 3>> cost = cost_of(candidate);
        if (!cost || (best && *cost >= best_cost)) continue;
        best_cost = *cost;
        best = std::move(candidate);
      }
    }
    if (!best) return false;
    for (size_t r = 0; r < R_; ++r) {
      plan_.memory_bytes[r] += best->memory[r];
      plan_.sent_bytes[r] += best->sent[r];
      plan_.touched_bytes[r] += best->touched[r];
      messages_[r] += best->messages[r];
      best->plan.sent_bytes += best->sent[r];
    }
    plan_.tables[t] = std::move(best->plan);
    return true;
  }

  // What must be least: the memory of the fullest rank (where the pass cares for it alone), the load of the busiest
  // rank, the sum of what is sent. Nothing when a rank, or what comes later, has too little memory.
  std::optional<std::array<double, 3>> cost_of(const TableCandidate& c) const {
    double most = 0, sent = 0;
    int64_t fullest = 0;
    __int128 left = 0, later = 0;
    for (size_t r = 0; r < R_; ++r) {
      const int64_t rest = free_of(r) - c.memory[r];
      if (rest < 0 || (care_ == Care::rows && rest < later_[r])) return std::nullopt;
      left += rest;
      later += later_[r];
      fullest = std::max(fullest, ranks_.memory_bytes - rest);
      most = std::max(most, load_of(r) + load_of(c.sent[r], c.touched[r], c.messages[r]));
      sent += c.sent[r];
    }
    if (left < later) return std::nullopt;
    return std::array{care_ == Care::least_memory ? static_cast<double>(fullest) : 0.0, most, sent};
  }

  // All ranks, those with the smallest load first, among equals the one with more memory left; or the emptiest first.
  std::vector<size_t> in_order() const {
    std::vector<size_t> order(R_);
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      const bool by_load = load_of(a) != load_of(b) && (care_ != Care::least_memory || free_of(a) == free_of(b));
      return by_load ? load_of(a) < load_of(b) : free_of(a) > free_of(b);
    });
    return order;
  }

  std::vector<TableCandidate> candidates_of(size_t t, TablePlacement placement) const {
    const PlannedTable& table = tables_[t];
    if (table.rows == 0 || table.width == 0) return {no_table(ranks_, placement)};
    if (R_ == 1) return {table_by_columns(table, ranks_, TablePlacement::table_wise, {0})};  // nothing can be divided
    std::vector<TableCandidate> found;
    switch (placement) {
      case TablePlacement::data_parallel:
        found.push_back(replicated_table(table, ranks_));
        break;
      case TablePlacement::table_wise:
        if (const auto owners = fitting(table, 1, table.width))
          found.push_back(table_by_columns(table, ranks_, placement, *owners));
        break;
      case TablePlacement::column_wise:
        for (int64_t slices = 2; slices <= most_slices(table); slices *= 2)
          if (const auto owners = fitting(table, slices, (table.width + slices - 1) / slices))
            found.push_back(table_by_columns(table, ranks_, placement, *owners));
        break;
      case TablePlacement::table_row_wise:
        if (has_nodes())
          for (size_t node = 0; node < R_; node += local())
            found.push_back(table_by_rows(table, ranks_, placement, node, node + local()));
        break;
      case TablePlacement::row_wise:
        found.push_back(table_by_rows(table, ranks_, placement, 0, R_));
        break;
    }
    return found;
  }

  int64_t most_slices(const PlannedTable& table) const {
    return std::min(largest_cut(table.width, kTableColumnLeaf), ranks_.ranks);
  }
  size_t local() const { return R_ / static_cast<size_t>(ranks_.nodes); }
  bool has_nodes() const { return ranks_.nodes > 1 && local() > 1; }

  // The first `count` ranks in_order() with room for so many columns; nothing when there are fewer.
  std::optional<std::vector<size_t>> fitting(const PlannedTable& table, int64_t count, int64_t width) const {
    std::vector<size_t> owners;
    for (const size_t r : in_order()) {
      if (table_nbytes(table, table.rows, width) > free_of(r)) continue;
      owners.push_back(r);
      if (static_cast<int64_t>(owners.size()) == count) return owners;
    }
    return std::nullopt;
  }

  // Why a placement cannot hold the table whatever memory there is; empty when it can.
  std::string why_never(const PlannedTable& table, TablePlacement placement) const {
    if (placement == TablePlacement::column_wise && most_slices(table) < 2)
      return fmt::format("column_wise needs more than {} columns", kTableColumnLeaf);
    if (placement == TablePlacement::table_row_wise && !has_nodes())
      return "table_row_wise needs two nodes or more with two ranks or more";
    return "";
  }

  [[noreturn]] void refuse(size_t t) const {
    const PlannedTable& table = tables_[t];
    std::vector<std::string> reasons;
    for (const TablePlacement placement : allowed_)
      if (std::string reason = R_ == 1 ? "" : why_never(table, placement); !reason.empty())
        reasons.push_back(std::move(reason));
    TUTTI_CHECK(reasons.size() < allowed_.size(),
                "embedding plan: no allowed placement can divide table '{}' of {} rows and {} columns over {} ranks on "
                "{} nodes: {}; allow another placement",
                table.name, table.rows, table.width, R_, ranks_.nodes, fmt::join(reasons, ", and "));
    const int64_t most = ranks_.memory_bytes - *std::min_element(plan_.memory_bytes.begin(), plan_.memory_bytes.end());
    __int128 left = 0;
    for (size_t r = 0; r < R_; ++r) left += free_of(r);
    throw UsageError(fmt::format(
        "embedding plan: table '{}' of {} rows and {} columns takes {} bytes, and fits nowhere: {} ranks have {} bytes "
        "left together, and one of them at most {}; use more ranks, more memory or a smaller type",
        table.name, table.rows, table.width, whole(t), R_, static_cast<int64_t>(std::min<__int128>(left, INT64_MAX)),
        most));
  }

  const std::span<const PlannedTable> tables_;
  const EmbeddingRanks& ranks_;
  const std::span<const TablePlacement> allowed_;
  const size_t R_;
  Care care_ = Care::load;
  EmbeddingPlan plan_;
  std::vector<double> messages_;  // of each rank
  std::vector<__int128> later_;   // bytes on each rank of the tables that are not placed yet, cut by rows
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
