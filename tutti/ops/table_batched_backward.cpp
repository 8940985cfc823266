#include "tutti/ops/table_batched_backward.h"

#include <algorithm>

#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/indexing/row_outputs.h"
#include "tutti/ops/tables/gradients.h"
#include "tutti/ops/tables/table_definition.h"
#include "tutti/ops/tables/table_sums.h"

namespace tutti {
namespace {

using facets::TableAttrs;
using facets::TableSums;

const TableAttrs& table_attrs(const OpCall& call) { return call.attrs.as<TableAttrs>(); }

DType dtype_of_sums(const OpCall& call) { return compute_dtype(call[0].dtype()); }

template <class Fn>
void with_table_sums(const OpCall& call, Fn fn) {
  if (dtype_of_sums(call) == DType::f64) fn(TableSums<double>(call, table_attrs(call), 0), double{});
  else fn(TableSums<float>(call, table_attrs(call), 0), float{});
}

// ---- the gradient of a table ----------------------------------------------------------------------------------------

void infer_table(const OpCall& call, OutputMetas& out) {
  check_shards(call, table_attrs(call), 0);
  out.add(dtype_of_sums(call), {table_attrs(call).rows, table_attrs(call).columns});
}

void infer_table_rows(const OpCall& call, OutputMetas& out) {
  const TableAttrs& a = table_attrs(call);
  check_shards(call, a, 0);
  SymInt entries = 0;
  for (int64_t s = 0; s < a.shards; ++s) entries = entries + batch_of_shard(call, a, 0, s).indices.size(0);
  facets::infer_row_outputs(out, dtype_of_sums(call), entries, a.rows, a.columns);
}

void run_table(const OpCall& call, std::span<const Tensor> outputs) {
  facets::raw_fill(outputs[0], facets::kSumIdentity);
  const int64_t columns = table_attrs(call).columns;
  with_table_sums(call, [&]<class Sum>(const TableSums<Sum>& sums, Sum) {
    Sum* out = outputs[0].data<Sum>();
    sums.each([&](int64_t, int64_t row, const Sum* g) { std::copy(g, g + columns, out + row * columns); },
              [](int64_t) {});
  });
}

void run_table_rows(const OpCall& call, std::span<const Tensor> outputs) {
  facets::raw_fill(outputs[0], facets::kSumIdentity);
  const int64_t columns = table_attrs(call).columns;
  with_table_sums(call, [&]<class Sum>(const TableSums<Sum>& sums, Sum) {
    Sum* out = outputs[0].data<Sum>();
    int64_t* rows = outputs[1].data<int64_t>();
    const Tensor runs = Tensor::empty({sums.entries()}, DType::i64);
    const int64_t count = sums.number_runs(runs.data<int64_t>(), rows);
    sums.each([&](int64_t place, int64_t,
                  const Sum* g) { std::copy(g, g + columns, out + runs.data<int64_t>()[place] * columns); },
              [](int64_t) {});
    std::fill(rows + count, rows + outputs[1].numel(), int64_t{-1});
    *outputs[2].data<int64_t>() = count;
  });
}

void reference_table(const OpCall& call, std::span<const Tensor> outputs) {
  facets::fill_elements(outputs[0], facets::kSumIdentity);
  const int64_t columns = table_attrs(call).columns;
  for (const auto& [row, g] : facets::table_definition(call, table_attrs(call), 0)) {
    for (int64_t d = 0; d < columns; ++d)
      facets::write_double(outputs[0], row * columns + d, g[static_cast<size_t>(d)]);
  }
}

void reference_table_rows(const OpCall& call, std::span<const Tensor> outputs) {
  facets::fill_elements(outputs[0], facets::kSumIdentity);
  facets::fill_elements(outputs[1], -1);
  const int64_t columns = table_attrs(call).columns;
  int64_t run = 0;
  for (const auto& [row, g] : facets::table_definition(call, table_attrs(call), 0)) {
    for (int64_t d = 0; d < columns; ++d)
      facets::write_double(outputs[0], run * columns + d, g[static_cast<size_t>(d)]);
    facets::write_int64(outputs[1], run++, row);
  }
  facets::write_int64(outputs[2], 0, run);
}

std::string sharding_of_table(const OpCall& call) { return facets::whole_operands(call, 0) + "-> y[AA]"; }
std::string sharding_of_rows(const OpCall& call) { return facets::whole_operands(call, 0) + "-> v[AA] #r[A] #c[]"; }

std::vector<Sample> samples_of_table() {
  std::vector<Sample> list;
  for (facets::TableSample& s : facets::table_samples()) list.push_back({s.name, s.shards, Attrs::of(s.attrs)});
  return list;
}

constexpr const char* kOnce = "the gradient of a table is not differentiated again; embedding_bag_backward is";

const OpDef kTableBackward{.name = "table_batched_backward",
                           .num_inputs = -1,
                           .infer = infer_table,
                           .reference = reference_table,
                           .gradient = {.none = kOnce},
                           .kernel = run_table,
                           .sharding = sharding_of_table,
                           .samples = samples_of_table};
const OpDef kTableRows{.name = "table_batched_row_gradients",
                       .num_inputs = -1,
                       .num_outputs = 3,
                       .infer = infer_table_rows,
                       .reference = reference_table_rows,
                       .gradient = {.none = facets::kNoRowGradient},
                       .kernel = run_table_rows,
                       .sharding = sharding_of_rows,
                       .samples = samples_of_table};

Attrs attrs_of_table(const TableOfBatch& table, size_t shards, bool weighted, const TableBatchOptions& options) {
  return Attrs::of(TableAttrs{table.number, table.rows, table.columns.at(static_cast<size_t>(table.number)),
                              static_cast<int64_t>(shards), weighted, options.pooling, options.bounds});
}

}  // namespace

namespace facets {

Tensor table_gradient(std::span<const Tensor> inputs, int64_t table, const Shape& sizes, TablePooling pooling,
                      BoundsCheck bounds) {
  const TableAttrs attrs{table, sizes[0].guard_int(), sizes[1].guard_int(), 1, inputs.size() > 4, pooling, bounds};
  return apply1(kTableBackward, inputs, Attrs::of(attrs));
}

ShardInputs inputs_of_uses(const char* op, std::span<const TableUse> uses, const TableOfBatch& table,
                           TablePooling pooling) {
  TUTTI_CHECK(table.number >= 0 && table.number < static_cast<int64_t>(table.columns.size()) && table.rows >= 0,
              "{}: table {} of {} with {} rows", op, table.number, table.columns.size(), table.rows);
  const auto some = std::find_if(uses.begin(), uses.end(), [](const TableUse& u) { return u.grad.defined(); });
  TUTTI_CHECK(some != uses.end(), "{}: there is no gradient; give that of at least one shard", op);
  ShardInputs inputs{{}, some->batch.per_sample_weights.defined()};
  for (const TableUse& use : uses) {
    // A shard that looked nothing up is a batch without bags.
    TableUse empty;
    if (!use.grad.defined()) {
      empty.batch.features = some->batch.features;
      const bool own = !some->batch.bags.empty();
      if (own) empty.batch.bags.assign(some->batch.bags.size(), 0);
    }
    const TableBatch& batch = use.grad.defined() ? use.batch : empty.batch;
    const TableLayout layout = table_layout(op, batch, table.columns, pooling);
    const Tensor& like = some->grad;
    if (!use.grad.defined()) {
      empty.grad = full_beside(like, like.ndim() == 1 ? Shape{0} : Shape{0, like.size(1)}, 0.0, like.dtype());
      empty.batch.indices = full_beside(like, {0}, 0.0, DType::i64);
      empty.batch.offsets = full_beside(like, {1}, 0.0, DType::i64);
      if (inputs.weighted) empty.batch.per_sample_weights = full_beside(like, {0}, 0.0, DType::f32);
    }
    const TableUse& taken = use.grad.defined() ? use : empty;
    TUTTI_CHECK(taken.batch.indices.defined() && taken.batch.offsets.defined() &&
                    taken.batch.per_sample_weights.defined() == inputs.weighted,
                "{}: the uses are of different kinds: all have indices and offsets, and all have weights or none", op);
    inputs.list.insert(inputs.list.end(),
                       {taken.grad, beside(like, layout.features), taken.batch.indices, taken.batch.offsets});
    if (inputs.weighted) inputs.list.push_back(taken.batch.per_sample_weights);
  }
  return inputs;
}

}  // namespace facets

Tensor table_batched_backward(std::span<const TableUse> uses, const TableOfBatch& table,
                              const TableBatchOptions& options) {
  const facets::ShardInputs inputs = facets::inputs_of_uses("table_batched_backward", uses, table, options.pooling);
  return apply1(kTableBackward, inputs.list, attrs_of_table(table, uses.size(), inputs.weighted, options));
}

RowGradients table_batched_row_gradients(std::span<const TableUse> uses, const TableOfBatch& table,
                                         const TableBatchOptions& options) {
  const facets::ShardInputs inputs =
      facets::inputs_of_uses("table_batched_row_gradients", uses, table, options.pooling);
  Tensor outputs[3];
  apply(kTableRows, inputs.list, attrs_of_table(table, uses.size(), inputs.weighted, options), outputs);
  return {.rows = outputs[1], .values = outputs[0], .count = outputs[2]};
}

}  // namespace tutti

TUTTI_OPS(table_batched_backward, &kTableBackward, &kTableRows)
