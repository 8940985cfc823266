// Steps of an optimizer on the rows of a table: the reference and the kernel of table_batched_step.cpp, over formulas
// (row_formulas.h).
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/indexing/prefetch.h"
#include "tutti/ops/tables/random_rounding.h"
#include "tutti/ops/tables/row_formulas.h"
#include "tutti/ops/tables/row_lanes.h"
#include "tutti/ops/tables/table_definition.h"
#include "tutti/ops/tables/table_sums.h"

namespace tutti::facets {

// Inputs: what is written, the table first; the numbers f32 [kRowNumbers]; the counters i64 [kCounters]; the sums of
// squares of the rows that are stepped, f32 in their order, or none, [0]; the same of their new values; the shards.
enum Counter : size_t { kStepNumber, kSeed, kAtRandom, kFirstElement, kAllColumns, kCounters };

inline size_t tables_written(const OpCall& call) { return static_cast<size_t>(call.op.num_outputs); }
inline size_t shards_at(const OpCall& call) { return tables_written(call) + 4; }
inline const Tensor& squares_of(const OpCall& call) { return call[tables_written(call) + 2]; }
inline const Tensor& new_squares_of(const OpCall& call) { return call[tables_written(call) + 3]; }
inline const TableAttrs& step_attrs(const OpCall& call) { return call.attrs.as<TableAttrs>(); }

// The counters and numbers of a call, read.
template <class Real>
struct StepNumbers {
  Real numbers[kRowNumbers];
  int64_t step;
  bool at_random;
  RoundingWords words;
  // The table is a part of one that has so many columns, and its first element has this number there.
  int64_t first_element, all_columns;

  explicit StepNumbers(const OpCall& call) {
    const Tensor &n = call[tables_written(call)], &c = call[tables_written(call) + 1];
    TUTTI_CHECK(n.extents()[0] == kRowNumbers && c.extents()[0] == kCounters,
                "{}: {} numbers and {} counters; expected {} and {}", call.op.name, n.extents()[0], c.extents()[0],
                static_cast<size_t>(kRowNumbers), static_cast<size_t>(kCounters));
    for (size_t k = 0; k < kRowNumbers; ++k)
      numbers[k] = static_cast<Real>(read_double(n, static_cast<int64_t>(k) * n.strides()[0]));
    const auto counter = [&](Counter k) { return read_int64(c, static_cast<int64_t>(k) * c.strides()[0]); };
    step = counter(kStepNumber);
    at_random = counter(kAtRandom) != 0;
    words = {philox_key(static_cast<uint64_t>(counter(kSeed))), static_cast<uint32_t>(step)};
    first_element = counter(kFirstElement);
    all_columns = counter(kAllColumns);
  }
};

// The sums of squares that a call was given, one for each row that it steps. UsageError for another number of them.
template <class Real>
std::vector<Real> read_squares(const OpCall& call, const Tensor& given, int64_t rows) {
  const int64_t n = given.extents()[0];
  TUTTI_CHECK(n == 0 || n == rows, "{}: sums of squares of {} rows; the uses look up {} rows of the table",
              call.op.name, n, rows);
  std::vector<Real> squares(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i)
    squares[static_cast<size_t>(i)] = static_cast<Real>(read_double(given, i * given.strides()[0]));
  return squares;
}

// A new value of element `element` of the table, rounded.
inline void store_weight(const Tensor& table, int64_t offset, int64_t element, float value, bool at_random,
                         const RoundingWords& words) {
  if (at_random && table.dtype() == DType::bf16)
    round_at_random(value, words.of(element), static_cast<bfloat16*>(table.raw_data())[offset]);
  else if (at_random && table.dtype() == DType::f16)
    round_at_random(value, words.of(element), static_cast<float16*>(table.raw_data())[offset]);
  else write_double(table, offset, static_cast<double>(value));
}

// The states of a row but the table, in the order in which they are written; the seen step is the last.
template <class Formula>
void reference_step(const OpCall& call, std::span<const Tensor> outputs) {
  const TableAttrs& a = step_attrs(call);
  const StepNumbers<double> n(call);
  const Tensor& table = outputs[0];
  const size_t columns = static_cast<size_t>(a.columns);
  const auto gradients = table_definition(call, a, shards_at(call));
  const int64_t rows = std::ssize(gradients);
  const std::vector<double> squares = read_squares<double>(call, squares_of(call), rows),
                            new_squares = read_squares<double>(call, new_squares_of(call), rows);
  size_t next = 0;
  for (const auto& [row, g] : gradients) {
    std::vector<double> w(columns), states[2];
    for (size_t d = 0; d < columns; ++d) w[d] = read_double(table, offset_at(table, {row, static_cast<int64_t>(d)}));
    RowOfTable<double> r{n.numbers,
                         a.columns,
                         n.all_columns,
                         w.data(),
                         g.data(),
                         nullptr,
                         nullptr,
                         -1,
                         squares.empty() ? nullptr : &squares[next],
                         new_squares.empty() ? nullptr : &new_squares[next]};
    ++next;
    const auto each_state = [&](auto visit) {
      for (size_t k = 1; k < outputs.size(); ++k) {
        const Tensor& state = outputs[k];
        if (state.dtype() == DType::i64) continue;
        states[k - 1].resize(state.ndim() == 2 ? columns : 1);
        for (size_t d = 0; d < states[k - 1].size(); ++d)
          visit(state,
                row * state.strides()[0] + (state.ndim() == 2 ? static_cast<int64_t>(d) * state.strides()[1] : 0),
                states[k - 1][d]);
      }
    };
    each_state([](const Tensor& state, int64_t at, double& x) { x = read_double(state, at); });
    r.first = states[0].data();
    r.second = states[1].data();
    if (const Tensor& seen = outputs.back(); outputs.size() > 1 && seen.dtype() == DType::i64) {
      const int64_t at = row * seen.strides()[0], before = read_int64(seen, at);
      r.idle = before > 0 ? n.step - before - 1 : -1;
      write_int64(seen, at, n.step);
    }
    Formula::step(r);
    each_state([](const Tensor& state, int64_t at, double& x) { write_double(state, at, x); });
    for (size_t d = 0; d < columns; ++d) {
      const int64_t column = static_cast<int64_t>(d);
      store_weight(table, offset_at(table, {row, column}), n.first_element + row * n.all_columns + column,
                   static_cast<float>(w[d]), n.at_random, n.words);
    }
  }
}

// ---- kernel ---------------------------------------------------------------------------------------------------------

// The rows of a table as floats. Those of f32 are stepped in place.
template <class Value>
struct RowsInPlace {
  Value* data;
  int64_t stride, columns;
  bool at_random;
  RoundingWords words;
  int64_t first_element, all_columns;

  float* begin(int64_t row, float* copy) const {
    if constexpr (std::is_same_v<Value, float>) {
      return data + row * stride;
    } else {
      each_element(data + row * stride, columns, [&](int64_t d, float x) { copy[d] = x; });
      return copy;
    }
  }
  void end(int64_t row, const float* w) const {
    if constexpr (!std::is_same_v<Value, float>) {
      Value* to = data + row * stride;
      if (!at_random) return store_row(to, dtype_of<Value>, 0, w, columns);
      const int64_t first = first_element + row * all_columns;
      int64_t block = -1;
      std::array<uint32_t, 4> drawn{};
      for (int64_t d = 0; d < columns; ++d) {
        const int64_t element = first + d;
        if (element / 4 != block) {
          block = element / 4;
          const uint64_t b = static_cast<uint64_t>(block);
          drawn = philox4x32({static_cast<uint32_t>(b), static_cast<uint32_t>(b >> 32), words.step, 0}, words.key);
        }
        round_at_random(w[d], drawn[static_cast<size_t>(element % 4)], to[d]);
      }
    }
  }
  void ask(int64_t row) const { prefetch_lines(data + row * stride, columns * static_cast<int64_t>(sizeof(Value))); }
};

template <class Formula, class Value>
void step_rows(const OpCall& call, std::span<const Tensor> outputs) {
  const TableAttrs& a = step_attrs(call);
  const StepNumbers<float> n(call);
  const TableSums<float> sums(call, a, shards_at(call));
  const RowsInPlace<Value> rows{static_cast<Value*>(outputs[0].raw_data()),
                                outputs[0].strides()[0],
                                a.columns,
                                n.at_random,
                                n.words,
                                n.first_element,
                                n.all_columns};
  // The sums of squares are numbered by row, and the sums come by the place of a row's first entry.
  std::vector<int64_t> numbers;
  std::vector<float> squares, new_squares;
  if (squares_of(call).extents()[0] > 0 || new_squares_of(call).extents()[0] > 0) {
    numbers.resize(static_cast<size_t>(sums.entries()));
    std::vector<int64_t> found(numbers.size());
    const int64_t stepped = sums.number_runs(numbers.data(), found.data());
    squares = read_squares<float>(call, squares_of(call), stepped);
    new_squares = read_squares<float>(call, new_squares_of(call), stepped);
  }
  const auto of_row = [&](const std::vector<float>& given, int64_t place) {
    return given.empty() ? nullptr : &given[static_cast<size_t>(numbers[static_cast<size_t>(place)])];
  };
  float* states[2] = {nullptr, nullptr};
  int64_t strides[2] = {0, 0};
  int64_t* seen = nullptr;
  for (size_t k = 1; k < outputs.size(); ++k) {
    if (outputs[k].dtype() == DType::i64) {
      seen = outputs[k].data<int64_t>();
    } else {
      states[k - 1] = outputs[k].data<float>();
      strides[k - 1] = outputs[k].strides()[0];
    }
  }
  const int64_t seen_stride = outputs.back().strides()[0];
  sums.each(
      [&](int64_t place, int64_t row, const float* g) {
        constexpr int64_t kShort = 256;
        float few[kShort];
        std::vector<float> many(a.columns > kShort && !std::is_same_v<Value, float> ? static_cast<size_t>(a.columns)
                                                                                    : 0);
        RowOfTable<float> r{n.numbers,
                            a.columns,
                            n.all_columns,
                            rows.begin(row, many.empty() ? few : many.data()),
                            g,
                            states[0] ? states[0] + row * strides[0] : nullptr,
                            states[1] ? states[1] + row * strides[1] : nullptr,
                            -1,
                            of_row(squares, place),
                            of_row(new_squares, place)};
        if (seen) {
          int64_t& step = seen[row * seen_stride];
          r.idle = step > 0 ? n.step - step - 1 : -1;
          step = n.step;
        }
        Formula::step(r);
        rows.end(row, r.w);
      },
      [&](int64_t row) {
        rows.ask(row);
        for (size_t k = 0; k < 2; ++k) {
          if (states[k])
            prefetch_lines(states[k] + row * strides[k],
                           std::max<int64_t>(strides[k], 1) * static_cast<int64_t>(sizeof(float)));
        }
      });
}

// A kernel and not a recipe: which rows are written is in memory.
template <class Formula>
void run_step(const OpCall& call, std::span<const Tensor> outputs) {
  // Rows whose elements have gaps are stepped in a copy.
  std::vector<Tensor> dense(outputs.begin(), outputs.end());
  for (Tensor& t : dense) {
    if (t.ndim() == 2 && t.strides()[1] != 1 && t.extents()[1] > 1) t = to_contiguous(t);
  }
  switch (outputs[0].dtype()) {
    case DType::f32:
      step_rows<Formula, float>(call, dense);
      break;
    case DType::f16:
      step_rows<Formula, float16>(call, dense);
      break;
    default:
      step_rows<Formula, bfloat16>(call, dense);
  }
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (dense[k].raw_data() != outputs[k].raw_data()) raw_copy(outputs[k], dense[k]);
  }
}

}  // namespace tutti::facets
