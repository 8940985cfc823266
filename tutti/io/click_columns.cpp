#include "tutti/io/click_columns.h"

#include <fmt/format.h>

namespace tutti {

ClickColumns criteo_columns(const std::vector<int64_t>& table_rows) {
  ClickColumns columns;
  for (int i = 0; i < 13; ++i) columns.dense.push_back(fmt::format("int_{}", i));
  for (const int64_t rows : table_rows)
    columns.categories.push_back({fmt::format("cat_{}", columns.categories.size()), rows});
  return columns;
}

}  // namespace tutti
