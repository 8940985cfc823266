// [tables]: the keys with their defaults.
#include <algorithm>
#include <array>

#include "tutti/train/config/section.h"

namespace tutti::train {
namespace {

std::vector<Field> tables_keys() {
  std::vector<Field> keys = {
      {TUTTI_KEY(tables, int64_t, dim, 16), .doc = "columns of every table", .unit = "", .rule = between(1, 1 << 20),
       .resuming = Resuming::fixed},
      {TUTTI_KEY(tables, double, lr, 0.04),
       .doc = "base learning rate of row-wise Adagrad, which changes the rows that a step uses; it follows "
              "[lr_scheduler]. Tables are not clipped, and training.max_norm is of the other gradients",
       .unit = "", .rule = at_least(0), .resuming = Resuming::told},
      {TUTTI_KEY(tables, double, eps, 1e-8), .doc = "term added to the square root of a row's sum of squares",
       .unit = "", .rule = above(0), .resuming = Resuming::told},
      {TUTTI_KEY(tables, std::vector<std::string>, placements, {}),
       .doc =
           "how ranks may divide tables, of which a planner chooses for each: data_parallel (all have it), table_wise "
           "(one has it), column_wise, row_wise; empty: any. The numbers are the same",
       .unit = ""},
      {TUTTI_KEY(tables, int64_t, memory_mib, 0),
       .doc = "memory of a rank for tables and their state; 0: as much as they take. The numbers are the same",
       .unit = "MiB", .rule = at_least(0)},
  };
  for (Field& key : keys) key.only_of = ModelKind::clicks;
  return keys;
}

void check_tables(const Config& config, Faults& faults) {
  constexpr std::array choices = {"data_parallel", "table_wise", "column_wise", "row_wise"};
  for (const std::string& name : config.tables.placements)
    faults.check(std::find(choices.begin(), choices.end(), name) != choices.end(),
                 "tables.placements has '{}'; expected some of data_parallel, table_wise, column_wise, row_wise", name);
}

}  // namespace

TUTTI_SECTION(tables, TablesConfig, 16) = {
    .name = "tables",
    .doc = "The embedding tables of a click model.",
    .keys = tables_keys,
    .check_click_model = check_tables,
};

}  // namespace tutti::train
