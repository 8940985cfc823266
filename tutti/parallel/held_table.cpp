#include "tutti/parallel/held_table.h"

#include <algorithm>

#include "tutti/autograd/tape.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/random.h"
#include "tutti/ops/random_key.h"
#include "tutti/ops/slice.h"
#include "tutti/runtime/allocator.h"

namespace tutti::parallel {

HeldTable::HeldTable(const nn::TableConfig& table, DType dtype, const TableStep& optimizer, const TablePart* given,
                     bool is_copy)
    : config(table), part(given ? *given : TablePart{}), optimizer_(optimizer), dtype_(dtype), is_copy_(is_copy) {
  if (given == nullptr) return;
  const int64_t rows = part.row_end - part.row_begin, columns = part.column_end - part.column_begin;
  {
    const MemoryCategoryScope category(MemoryCategory::parameters);
    weight = zeros({rows, columns}, dtype);
  }
  const MemoryCategoryScope category(MemoryCategory::optimizer);
  state = table_state(optimizer, rows, columns);
}

void HeldTable::initialize() {
  if (!has_any()) return;
  // Blocks of rows, so that nothing is as large as the table.
  const int64_t block = std::max<int64_t>((int64_t{1} << 22) / std::max<int64_t>(columns(), 1), 1);
  for (int64_t row = 0; row < rows(); row += block) fill(row, std::min(block, rows() - row));
}

// The rows [first, first + count) of the part.
void HeldTable::fill(int64_t first, int64_t count) {
  RandomKey key = random_key(config.name + ".weight");
  key.first_index = (part.row_begin + first) * config.columns + part.column_begin;
  if (columns() < config.columns) {
    key.run_length = columns();
    key.run_stride = config.columns;
  }
  const Tensor values = narrow(weight, 0, first, count);
  const double scale = config.init.scale;
  switch (config.init.kind) {
    case nn::Init::Kind::zeros:
      copy_(values, zeros({}, dtype_));
      return;
    case nn::Init::Kind::ones:
      copy_(values, ones({}, dtype_));
      return;
    case nn::Init::Kind::normal:
      copy_(values, normal(values.sizes(), key, 0.0, scale, dtype_));
      return;
    case nn::Init::Kind::uniform:
      copy_(values, uniform(values.sizes(), key, -scale, scale, dtype_));
      return;
  }
}

std::vector<TensorBox> HeldTable::boxes() const {
  const std::string name = config.name + ".weight";
  std::vector<TensorBox> list;
  const auto of_elements = [&](const std::string& box_name, const Tensor& values, DType dtype) {
    list.push_back({box_name,
                    dtype,
                    {config.rows, config.columns},
                    {part.row_begin, part.column_begin},
                    values,
                    box_name != name,
                    is_copy_});
  };
  const auto of_rows = [&](const std::string& box_name, const Tensor& values, DType dtype) {
    list.push_back({box_name, dtype, {config.rows}, {part.row_begin}, values, true, is_copy_ || part.column_begin > 0});
  };
  of_elements(name, weight, dtype_);
  // A rank that holds nothing of the table tells of the same states.
  const TableState like = has_any() ? state : table_state(optimizer_, 0, 0);
  const TableStateNames names = names_of(optimizer_.optimizer);
  for (const auto& [state_name, of_part, values] :
       {std::tuple{names.first, like.first, state.first}, {names.second, like.second, state.second}}) {
    if (!of_part.defined()) continue;
    if (of_part.ndim() == 2) of_elements("state." + name + "." + state_name, values, DType::f32);
    else of_rows("state." + name + "." + state_name, values, DType::f32);
  }
  if (like.seen.defined()) of_rows("state." + name + ".seen", state.seen, DType::i64);
  return list;
}

void HeldTable::step(std::span<const TableUse> uses, const TableOfBatch& which, const TableStep& options,
                     const TableBatchOptions& batch, const Tensor& squares, const Tensor& new_squares) const {
  TableStep mine = options;
  mine.seed = random_key(config.name + ".weight", 1).key;
  table_batched_step_(weight, state, uses, which, mine, batch,
                      {.first_row = part.row_begin,
                       .first_column = part.column_begin,
                       .all_columns = config.columns,
                       .squares = squares,
                       .new_squares = new_squares});
}

}  // namespace tutti::parallel
