// [tables]: the keys with their defaults.
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
  };
  for (Field& key : keys) key.only_of = ModelKind::clicks;
  return keys;
}

}  // namespace

TUTTI_SECTION(tables, TablesConfig, 16) = {
    .name = "tables",
    .doc = "The embedding tables of a click model.",
    .keys = tables_keys,
};

}  // namespace tutti::train
