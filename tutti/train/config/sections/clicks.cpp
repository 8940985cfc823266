// [clicks]: the keys with their defaults, and their rules with other keys.
#include <algorithm>

#include "tutti/train/config/section.h"

namespace tutti::train {
namespace {

std::vector<Field> clicks_keys() {
  std::vector<Field> keys = {
      {TUTTI_KEY(clicks, std::string, source, "files"),
       .doc = "files: rows are read from data.paths; generated: they are made, with a known best AUC", .unit = "",
       .rule = one_of({"files", "generated"}), .resuming = Resuming::fixed},
      {TUTTI_KEY(clicks, int64_t, global_batch_samples, 8192), .doc = "rows per optimizer step, over all ranks",
       .unit = "samples", .rule = between(1, 1 << 30), .resuming = Resuming::fixed},
      {TUTTI_KEY(clicks, std::vector<int64_t>, table_rows, {}),
       .doc = "rows of the table of each category column: its values are 0 to this number minus 1", .unit = "rows",
       .rule = at_least(1), .resuming = Resuming::fixed},
      {TUTTI_KEY(clicks, std::vector<std::string>, category_columns, {}),
       .doc = "names of the category columns; empty: cat_0, cat_1, ...", .unit = "", .resuming = Resuming::fixed},
      {TUTTI_KEY(clicks, std::vector<std::string>, dense_columns, {}),
       .doc = "names of the dense columns; empty: int_0 to int_12, as Criteo has them", .unit = "",
       .resuming = Resuming::fixed},
      {TUTTI_KEY(clicks, std::string, label_column, "label"), .doc = "name of the column that is 1 for a click, else 0",
       .unit = "", .resuming = Resuming::fixed},
      {TUTTI_KEY(clicks, std::string, delimiter, ","), .doc = "the character between the fields of a line", .unit = "",
       .resuming = Resuming::fixed},
      {TUTTI_KEY(clicks, std::vector<std::string>, validation_paths, {}),
       .doc = "held-out rows, in files, folders and globs such as those of data.paths", .unit = "",
       .resuming = Resuming::told},
      {TUTTI_KEY(clicks, int64_t, validation_rows, 65536), .doc = "number of held-out rows that are generated",
       .unit = "samples", .rule = between(1, int64_t{1} << 40), .resuming = Resuming::told},
      {TUTTI_KEY(clicks, int64_t, generated_seed, 1), .doc = "seed of generated rows and of the model behind them",
       .unit = "", .rule = at_least(0), .resuming = Resuming::fixed},
  };
  for (Field& key : keys) key.only_of = ModelKind::clicks;
  return keys;
}

void check_clicks(const Config& config, Faults& faults) {
  const ClicksConfig& c = config.clicks;
  const int64_t shards = config.numerics.virtual_shards;
  faults.check(c.global_batch_samples % shards == 0,
               "clicks.global_batch_samples = {} cannot be divided evenly over numerics.virtual_shards = {}; try {}",
               c.global_batch_samples, shards, (c.global_batch_samples / shards + 1) * shards);
  faults.check(!c.table_rows.empty(),
               "clicks.table_rows is empty; name the rows of the table of each category column, such as [1000, 50]");
  faults.check(c.category_columns.empty() || c.category_columns.size() == c.table_rows.size(),
               "clicks.category_columns names {} columns, and clicks.table_rows has {} tables; each column has one",
               c.category_columns.size(), c.table_rows.size());
  faults.check(c.delimiter.size() == 1, "clicks.delimiter is {}; expected one character", to_toml(c.delimiter));
  const bool is_generated = c.source == "generated";
  faults.check(is_generated || !config.data.paths.empty(),
               "data.paths is empty; name at least one file or folder of rows, or set clicks.source = \"generated\"");
  faults.check(!is_generated || (config.data.paths.empty() && c.validation_paths.empty()),
               "clicks.source is 'generated', and data.paths or clicks.validation_paths names files, which nobody "
               "reads; leave them out");
}

}  // namespace

TUTTI_SECTION(clicks, ClicksConfig, 14) = {
    .name = "clicks",
    .doc = "The rows of click models, with model.name = \"dlrm\".",
    .keys = clicks_keys,
    .check_click_model = check_clicks,
};

}  // namespace tutti::train
