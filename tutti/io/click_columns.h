// The columns of click data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti {

struct ClickColumns {
  struct Category {
    std::string name;
    int64_t rows = 0;  // of its table: the values are 0 to rows - 1
  };
  std::string label = "label";     // its values are 0 and 1
  std::vector<std::string> dense;  // finite numbers
  std::vector<Category> categories;
};

// The names of Criteo's columns as TorchRec has them: label, int_0 to int_12, and cat_0, cat_1, ... of these tables.
ClickColumns criteo_columns(const std::vector<int64_t>& table_rows);

}  // namespace tutti
