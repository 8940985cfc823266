#include "tutti/ops/embedding_bag.h"

#include <algorithm>
#include <cmath>

#include "tutti/ops/binary.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/embedding_bag_backward.h"
#include "tutti/ops/engine/eager.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/indexing/bags.h"
#include "tutti/ops/indexing/indices.h"
#include "tutti/ops/indexing/prefetch.h"
#include "tutti/ops/reshape.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti {
namespace {

using facets::bag_attrs;
using facets::BagAttrs;

void infer(const OpCall& call, OutputMetas& out) {
  facets::check_bag_operands(call);
  const Shape sizes = {facets::number_of_bags(call), call[0].size(1)};
  out.add(call[0].dtype(), sizes);
  if (call.op.num_outputs == 2) out.add(DType::i64, sizes);
}

// visit(bag, entry, row) for the entries that count, in order.
template <class Visit>
void for_each_entry(const OpCall& call, Visit visit) {
  const std::vector<int64_t> borders = facets::bag_borders(call), rows = facets::dense_indices(call[1]);
  for (size_t b = 0; b + 1 < borders.size(); ++b) {
    for (int64_t p = borders[b]; p < borders[b + 1]; ++p) {
      if (rows[static_cast<size_t>(p)] != bag_attrs(call).padding)
        visit(static_cast<int64_t>(b), p, rows[static_cast<size_t>(p)]);
    }
  }
}

void reference_sum(const OpCall& call, std::span<const Tensor> outputs) {
  facets::check_bags(call);
  const int64_t columns = call[0].extents()[1], bags = outputs[0].extents()[0];
  std::vector<double> sums(static_cast<size_t>(bags * columns), facets::kSumIdentity);
  for_each_entry(call, [&](int64_t bag, int64_t entry, int64_t row) {
    const double factor = call.inputs.size() > 3 ? facets::read_double(call[3], entry * call[3].strides()[0]) : 1.0;
    for (int64_t d = 0; d < columns; ++d)
      sums[static_cast<size_t>(bag * columns + d)] +=
          factor * facets::read_double(call[0], facets::offset_at(call[0], {row, d}));
  });
  const std::vector<int64_t> lengths = facets::bag_lengths(call, facets::bag_borders(call));
  for (int64_t i = 0; i < bags * columns; ++i) {
    const int64_t length = bag_attrs(call).mode == BagMode::mean ? lengths[static_cast<size_t>(i / columns)] : 1;
    facets::write_double(outputs[0], i,
                         sums[static_cast<size_t>(i)] / static_cast<double>(std::max<int64_t>(length, 1)));
  }
}

void reference_max(const OpCall& call, std::span<const Tensor> outputs) {
  facets::check_bags(call);
  const int64_t columns = call[0].extents()[1];
  facets::fill_elements(outputs[0], 0.0);
  facets::fill_elements(outputs[1], -1);
  for_each_entry(call, [&](int64_t bag, int64_t entry, int64_t row) {
    for (int64_t d = 0; d < columns; ++d) {
      const int64_t at = bag * columns + d;
      const double value = facets::read_double(call[0], facets::offset_at(call[0], {row, d})),
                   best = facets::read_double(outputs[0], at);
      const bool first = facets::read_int64(outputs[1], at) < 0;
      if (!first && !(value > best) && !(std::isnan(value) && !std::isnan(best))) continue;
      facets::write_double(outputs[0], at, value);
      facets::write_int64(outputs[1], at, entry);
    }
  });
}

// ---- gradient -------------------------------------------------------------------------------------------------------

BagOptions options_of(const Attrs& attrs) {
  const BagAttrs& a = attrs.as<BagAttrs>();
  return {.mode = a.mode, .padding_idx = a.padding, .include_last_offset = a.include_last != 0};
}

void vjp(const VjpCall& c, std::span<Tensor> grads) {
  if (!c.grads[0].defined()) return;
  const bool weighted = c.inputs.size() > 3;
  BagOptions options = options_of(c.attrs);
  if (weighted) options.per_sample_weights = c.inputs[3];
  if (c.needs(0))
    grads[0] = embedding_bag_backward(c.grads[0], c.inputs[1], c.inputs[2], c.attrs.as<BagAttrs>().vocab, options,
                                      c.op.num_outputs == 2 ? c.outputs[1] : Tensor{});
  if (weighted && c.needs(3))
    grads[3] = embedding_bag_weights_backward(c.grads[0], c.inputs[0], c.inputs[1], c.inputs[2], options);
}

// ---- kernels --------------------------------------------------------------------------------------------------------

constexpr int64_t kColumns = 64;  // of a block: their sums stay in registers
constexpr int64_t kAhead = 64;    // rows that are asked for before they are added

template <class Value>
using Wide = std::conditional_t<std::is_same_v<Value, double>, double, float>;

template <class Value>
Wide<Value> widen(Value value) {
  if constexpr (std::is_arithmetic_v<Value>) return static_cast<Wide<Value>>(value);
  else return to_float(value);
}

template <class Value>
void store(Value* target, Wide<Value> value) {
  if constexpr (std::is_arithmetic_v<Value>) *target = static_cast<Value>(value);
  else store_from_double(target, dtype_of<Value>, static_cast<double>(value));
}

// Columns [column, column + width) of a table whose rows are looked up.
template <class Value>
struct Lookup {
  const Value* table;
  const int64_t* rows;  // of the entries
  const Wide<Value>* factors;
  int64_t entries, columns, padding, column, width;

  // Calls add(entry, row) for the entries [begin, end) that count; returns how many.
  template <class Add>
  int64_t each(int64_t begin, int64_t end, Add add) const {
    int64_t count = 0;
    for (int64_t p = begin; p < end; ++p) {
      if (p + kAhead < entries) {
        facets::prefetch_lines(table + rows[p + kAhead] * columns + column,
                               width * static_cast<int64_t>(sizeof(Value)));
      }
      if (rows[p] == padding) continue;
      add(p, table + rows[p] * columns + column);
      ++count;
    }
    return count;
  }

  template <int64_t kWidth>
  void sum(int64_t begin, int64_t end, bool mean, Value* out) const {
    const int64_t n = kWidth ? kWidth : width;
    Wide<Value> sums[kColumns];
    for (int64_t d = 0; d < n; ++d) sums[d] = static_cast<Wide<Value>>(facets::kSumIdentity);
    int64_t count;
    if (factors) {
      count = each(begin, end, [&](int64_t p, const Value* row) {
        for (int64_t d = 0; d < n; ++d) sums[d] += widen(row[d]) * factors[p];
      });
    } else {
      count = each(begin, end, [&](int64_t, const Value* row) {
        for (int64_t d = 0; d < n; ++d) sums[d] += widen(row[d]);
      });
    }
    if (mean && count > 1) {
      const Wide<Value> length = static_cast<Wide<Value>>(count);
      for (int64_t d = 0; d < n; ++d) sums[d] /= length;
    }
    for (int64_t d = 0; d < n; ++d) store(out + d, sums[d]);
  }

  void max(int64_t begin, int64_t end, Value* out, int64_t* chosen) const {
    Wide<Value> best[kColumns];
    for (int64_t d = 0; d < width; ++d) best[d] = 0, chosen[d] = -1;
    each(begin, end, [&](int64_t p, const Value* row) {
      for (int64_t d = 0; d < width; ++d) {
        const Wide<Value> value = widen(row[d]);
        const bool take = chosen[d] < 0 || value > best[d] || (value != value && best[d] == best[d]);
        best[d] = take ? value : best[d];
        chosen[d] = take ? p : chosen[d];
      }
    });
    for (int64_t d = 0; d < width; ++d) store(out + d, best[d]);
  }
};

template <class Value>
void pool(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor table = to_contiguous(call[0]), rows = facets::dense_as(call[1], DType::i64);
  const Tensor factors = call.inputs.size() > 3 ? facets::dense_as(call[3], dtype_of<Wide<Value>>) : Tensor{};
  const std::vector<int64_t> borders = facets::bag_borders(call);
  const int64_t columns = table.extents()[1], bags = static_cast<int64_t>(borders.size()) - 1, entries = rows.numel();
  if (outputs[0].numel() == 0) return;
  const bool mean = bag_attrs(call).mode == BagMode::mean;
  const int64_t work = (entries / bags + 1) * columns;
  ThreadPool::current().parallel_for(
      bags, std::max<int64_t>(kParallelGrain / work, 1), [&](int64_t begin, int64_t end) {
        for (int64_t column = 0; column < columns; column += kColumns) {
          const Lookup<Value> lookup{static_cast<const Value*>(table.raw_data()),
                                     rows.data<int64_t>(),
                                     factors.defined() ? factors.data<Wide<Value>>() : nullptr,
                                     entries,
                                     columns,
                                     bag_attrs(call).padding,
                                     column,
                                     std::min(kColumns, columns - column)};
          for (int64_t b = begin; b < end; ++b) {
            const int64_t first = borders[static_cast<size_t>(b)], last = borders[static_cast<size_t>(b) + 1];
            Value* out = static_cast<Value*>(outputs[0].raw_data()) + b * columns + column;
            if (outputs.size() == 2) lookup.max(first, last, out, outputs[1].data<int64_t>() + b * columns + column);
            else if (lookup.width == kColumns) lookup.template sum<kColumns>(first, last, mean, out);
            else lookup.template sum<0>(first, last, mean, out);
          }
        }
      });
}

// A kernel and not a recipe: which rows are added, and how many, is in memory.
void kernel(const OpCall& call, std::span<const Tensor> outputs) {
  visit_dtype(call[0].dtype(), [&]<class Value>() {
    if constexpr (!std::is_integral_v<Value>) pool<Value>(call, outputs);
  });
}

// ---- the ops --------------------------------------------------------------------------------------------------------

std::string sharding(const OpCall& call) {
  const bool max = call.op.num_outputs == 2, weighted = call.inputs.size() > 3;
  return fmt::format("{}[Vw] #I[P] #O[Q]{} -> y[Zw]{}{}", max ? "#W" : "W", weighted ? " #s[P]" : "",
                     max ? " #c[Zw]" : "", max ? "" : " | | lin");
}

Cost cost(const OpCall& call) {
  const double looked_up = static_cast<double>(call[1].numel() * call[0].extents()[1]);
  return {looked_up,
          looked_up * static_cast<double>(itemsize(call[0].dtype())) + static_cast<double>(call[1].nbytes())};
}

std::vector<Sample> samples(bool max) {
  const auto indices = [](uint64_t seed, int64_t n, DType dtype) {
    return facets::sample_tensor(seed, {n}, dtype, 0, 7);
  };
  const auto attrs = [](BagMode mode, int64_t padding = kNoPadding, bool include_last = false) {
    return Attrs::of(BagAttrs{7, padding, mode, include_last});
  };
  const Tensor table = facets::sample_tensor(1, {7, 5}), offsets = Tensor::of<int64_t>({0, 3, 3, 8});
  const BagMode mode = max ? BagMode::max : BagMode::sum;
  std::vector<Sample> list = {
      {"bags", {table, indices(2, 11, DType::i64), offsets}, attrs(mode)},
      {"padding_i32", {table, indices(3, 11, DType::i32), Tensor::of<int32_t>({0, 3, 3, 8, 11})}, attrs(mode, 2, true)},
      {"bf16_wide",
       {facets::sample_tensor(4, {7, 70}, DType::bf16), indices(5, 9, DType::i64), Tensor::of<int64_t>({0, 4})},
       attrs(mode)},
      {"f64",
       {facets::sample_tensor(6, {7, 64}, DType::f64), indices(7, 40, DType::i64), Tensor::of<int64_t>({0, 20, 30})},
       attrs(mode)},
      {"no_entries", {table, indices(8, 0, DType::i64), Tensor::of<int64_t>({0, 0})}, attrs(mode)},
      {"no_bags", {table, indices(8, 0, DType::i64), indices(8, 0, DType::i64)}, attrs(mode)}};
  if (max) return list;
  list.push_back({"mean", {table, indices(2, 11, DType::i64), offsets}, attrs(BagMode::mean, 4)});
  list.push_back(
      {"weighted", {table, indices(2, 11, DType::i64), offsets, facets::sample_tensor(9, {11})}, attrs(mode, 2)});
  return list;
}

const OpDef kBag{.name = "embedding_bag",
                 .num_inputs = -1,
                 .infer = infer,
                 .reference = reference_sum,
                 .gradient = {.vjp = vjp, .saves_inputs = 0b1111},
                 .check = facets::check_bags,
                 .kernel = kernel,
                 .sharding = sharding,
                 .cost = cost,
                 .samples = [] { return samples(false); }};
const OpDef kBagMax{.name = "embedding_bag_max",
                    .num_inputs = 3,
                    .num_outputs = 2,
                    .infer = infer,
                    .reference = reference_max,
                    .gradient = {.vjp = vjp, .saves_inputs = 0b110, .saves_outputs = 0b10},
                    .check = facets::check_bags,
                    .kernel = kernel,
                    .sharding = sharding,
                    .cost = cost,
                    .samples = [] { return samples(true); },
                    .tolerance = {.f32 = 0, .f64 = 0}};

}  // namespace

BagResult embedding_bag_with_entries(const Tensor& weight, const Tensor& indices, const Tensor& offsets,
                                     const BagOptions& options) {
  TUTTI_CHECK(weight.ndim() == 2, "embedding_bag: the weight is {}; expected two dims, [rows, features]",
              describe(weight));
  const int64_t vocab = weight.extents()[0];
  TUTTI_CHECK(options.padding_idx == kNoPadding || (options.padding_idx >= 0 && options.padding_idx < vocab),
              "embedding_bag: padding_idx is {}; expected a row of the weight {}", options.padding_idx,
              describe(weight));
  const Attrs attrs = Attrs::of(BagAttrs{vocab, options.padding_idx, options.mode, options.include_last_offset});
  const Tensor& weights = options.per_sample_weights;
  if (weights.defined()) {
    TUTTI_CHECK(options.mode == BagMode::sum,
                "embedding_bag: per_sample_weights weigh the terms of a sum; the mode is {}",
                options.mode == BagMode::mean ? "mean" : "max");
    TUTTI_CHECK(weights.sizes() == indices.sizes() && is_floating(weights.dtype()),
                "embedding_bag: per_sample_weights are {}; expected floats of the sizes of the indices {}",
                describe(weights), describe(indices));
  }
  const Tensor inputs[] = {weight, indices, offsets, weights};
  const std::span<const Tensor> used(inputs, weights.defined() ? 4 : 3);
  if (options.mode != BagMode::max) return {apply1(kBag, used, attrs), {}};
  Tensor outputs[2];
  apply(kBagMax, used, attrs, outputs);
  return {outputs[0], outputs[1]};
}

Tensor embedding_bag(const Tensor& weight, const Tensor& indices, const Tensor& offsets, const BagOptions& options) {
  return embedding_bag_with_entries(weight, indices, offsets, options).pooled;
}

Tensor embedding_bag(const Tensor& weight, const Tensor& indices_BL, const BagOptions& options) {
  TUTTI_CHECK(indices_BL.ndim() == 2, "embedding_bag: without offsets the indices are [bags, length]; got {}",
              describe(indices_BL));
  TUTTI_CHECK(!options.include_last_offset, "embedding_bag: include_last_offset is about offsets, and there are none");
  const SymInt bags = indices_BL.size(0), length = indices_BL.size(1);
  BagOptions flat = options;
  if (options.per_sample_weights.defined()) {
    TUTTI_CHECK(options.per_sample_weights.sizes() == indices_BL.sizes(),
                "embedding_bag: per_sample_weights are {}; expected floats of the sizes of the indices {}",
                describe(options.per_sample_weights), describe(indices_BL));
    flat.per_sample_weights = reshape(options.per_sample_weights, {-1});
  }
  return embedding_bag(weight, reshape(indices_BL, {-1}),
                       beside(indices_BL, mul(arange(bags), Scalar(length.guard_int()))), flat);
}

}  // namespace tutti

TUTTI_OPS(embedding_bag, &kBag, &kBagMax)
