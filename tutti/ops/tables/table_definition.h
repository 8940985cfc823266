// What the gradient of a table is, in plain loops and double, and samples of calls that go back to one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tutti/ops/tables/table_sums.h"

namespace tutti::facets {

// The gradients of the rows with entries.
std::map<int64_t, std::vector<double>> table_definition(const OpCall& call, const TableAttrs& a, size_t first);

struct TableSample {
  std::string name;
  std::vector<Tensor> shards;  // their inputs
  TableAttrs attrs;
};
std::vector<TableSample> table_samples();

}  // namespace tutti::facets
