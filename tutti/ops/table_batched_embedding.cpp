#include "tutti/ops/table_batched_embedding.h"

#include <immintrin.h>

#include <algorithm>
#include <atomic>

#include "tutti/codegen/cpu_target.h"
#include "tutti/ops/engine/eager.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/indexing/bags.h"
#include "tutti/ops/indexing/indices.h"
#include "tutti/ops/tables/feature_rows.h"
#include "tutti/ops/tables/gradients.h"
#include "tutti/ops/tables/lookups.h"
#include "tutti/ops/tables/wide_rows.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti {
namespace {

using facets::FeatureBags;
using facets::FeatureRows;
using facets::LookupOperands;
using facets::Lookups;
using facets::Wide;

// Inputs: the operands of the batch (tables/lookups.h), then the tables: what is behind input 31 shares one answer to
// whether a gradient is wanted, and that of the weights must not be that of frozen tables.
struct TablesAttrs {
  int64_t tables;
  int64_t columns, elements;  // TableLayout
  TablePooling pooling;
  BoundsCheck bounds;
  TableOutput output;

  static constexpr auto fields() {
    return field_list(field::number<&TablesAttrs::tables>("tables"), field::number<&TablesAttrs::columns>("columns"),
                      field::number<&TablesAttrs::elements>("elements"), field::rule<&TablesAttrs::pooling>("pooling"),
                      field::rule<&TablesAttrs::bounds>("bounds"), field::rule<&TablesAttrs::output>("output"));
  }
};
const TablesAttrs& attrs_of(const OpCall& call) { return call.attrs.as<TablesAttrs>(); }
LookupOperands batch_of(const OpCall& call) {
  return LookupOperands::at(call, 0, call.inputs.size() > static_cast<size_t>(attrs_of(call).tables) + 3);
}
std::span<const Tensor> tables_of(const OpCall& call) {
  return call.inputs.last(static_cast<size_t>(attrs_of(call).tables));
}

DType output_dtype(const OpCall& call) {
  switch (attrs_of(call).output) {
    case TableOutput::f32:
      return DType::f32;
    case TableOutput::bf16:
      return DType::bf16;
    case TableOutput::f16:
      return DType::f16;
    case TableOutput::as_tables:
      break;
  }
  DType dtype = tables_of(call)[0].dtype();
  for (const Tensor& t : tables_of(call)) dtype = promote(dtype, t.dtype());
  return dtype;
}

void infer(const OpCall& call, OutputMetas& out) {
  const TablesAttrs& a = attrs_of(call);
  for (size_t t = 0; t < tables_of(call).size(); ++t) {
    const Tensor& table = tables_of(call)[t];
    const DType dtype = table.dtype();
    TUTTI_CHECK(table.ndim() == 2 && is_floating(dtype) && !is_fp8(dtype),
                "{}: table {} is {}; expected a matrix of f32, bf16, f16 or f64", call.op.name, t, describe(table));
  }
  const bool pooled = a.pooling != TablePooling::none;
  const SymInt bags = check_lookup_operands(call, batch_of(call), a.pooling, pooled && a.elements < 0);
  if (!pooled) out.add(output_dtype(call), {batch_of(call).indices.size(0), a.columns});
  else if (a.elements >= 0) out.add(output_dtype(call), {a.elements});
  else out.add(output_dtype(call), {bags, a.columns});
  out.add(DType::i64, {6});
}

Lookups lookups_of(const OpCall& call) {
  Lookups lookups = read_lookups(call, batch_of(call), attrs_of(call).columns);
  for (size_t t = 0; t < lookups.features.size(); ++t) {
    const FeatureBags& f = lookups.features[t];
    TUTTI_CHECK(f.table >= 0 && f.table < attrs_of(call).tables &&
                    tables_of(call)[static_cast<size_t>(f.table)].extents()[1] == f.width,
                "{}: feature {} of the layout looks up {} columns of table {}", call.op.name, t, f.width, f.table);
  }
  return lookups;
}

std::vector<int64_t> rows_of_tables(const OpCall& call) {
  std::vector<int64_t> rows;
  for (const Tensor& t : tables_of(call)) rows.push_back(t.extents()[0]);
  return rows;
}

void reference(const OpCall& call, std::span<const Tensor> outputs) {
  const TablesAttrs& a = attrs_of(call);
  const Lookups lookups = lookups_of(call);
  facets::report_bad_indices(call, find_bad_indices(lookups, rows_of_tables(call)), a.bounds, outputs[1]);
  const LookupOperands batch = batch_of(call);
  for (const FeatureBags& f : lookups.features) {
    const Tensor& table = tables_of(call)[static_cast<size_t>(f.table)];
    for (int64_t b = f.first_bag; b < f.first_bag + f.bags; ++b) {
      const int64_t begin = lookups.offsets[static_cast<size_t>(b)], end = lookups.offsets[static_cast<size_t>(b) + 1];
      for (int64_t d = 0; d < f.width; ++d) {
        double sum = facets::kSumIdentity;
        for (int64_t p = begin; p < end; ++p) {
          const int64_t row = facets::read_int64(lookups.indices, p);
          const bool there = row >= 0 && row < table.extents()[0];
          const double factor =
              batch.weights ? facets::read_double(*batch.weights, p * batch.weights->strides()[0]) : 1;
          const double term =
              there ? factor * facets::read_double(table, facets::offset_at(table, {row, d})) : facets::kSumIdentity;
          if (a.pooling == TablePooling::none) facets::write_double(outputs[0], p * f.width + d, term);
          else sum += term;
        }
        if (a.pooling == TablePooling::none) continue;
        if (a.pooling == TablePooling::mean) sum /= static_cast<double>(std::max<int64_t>(end - begin, 1));
        facets::write_double(outputs[0], lookups.place(f, b, 0, a.pooling) + d, sum);
      }
    }
  }
}

// ---- gradient -------------------------------------------------------------------------------------------------------

void vjp(const VjpCall& c, std::span<Tensor> grads) {
  if (!c.grads[0].defined()) return;
  const TablesAttrs& a = c.attrs.as<TablesAttrs>();
  const OpCall call{c.op, c.inputs, c.attrs};
  const size_t first_table = c.inputs.size() - static_cast<size_t>(a.tables);
  std::vector<Tensor> inputs = {c.grads[0]};
  inputs.insert(inputs.end(), c.inputs.begin(), c.inputs.begin() + static_cast<std::ptrdiff_t>(first_table));
  for (size_t i = first_table; i < c.inputs.size(); ++i) {
    if (c.needs(static_cast<int>(i)))
      grads[i] = facets::table_gradient(inputs, static_cast<int64_t>(i - first_table), c.input_metas[i].sizes,
                                        a.pooling, a.bounds);
  }
  if (first_table > 3 && c.needs(3))
    grads[3] = facets::table_weights_gradient(tables_of(call), inputs, a.pooling, a.bounds);
}

// ---- kernel ---------------------------------------------------------------------------------------------------------

// Returns how many of the entries are not in the table.
template <class Value, class Index>
int64_t pool_feature(const OpCall& call, const Lookups& lookups, const FeatureBags& f, const Tensor& factors,
                     const Tensor& out, int64_t first_bag, int64_t last_bag) {
  const Tensor& table = tables_of(call)[static_cast<size_t>(f.table)];
  const FeatureRows<Value, Index> rows{static_cast<const Value*>(table.raw_data()),
                                       table.extents()[0],
                                       table.strides()[0],
                                       f.width,
                                       static_cast<const Index*>(lookups.indices.raw_data()),
                                       lookups.offsets[static_cast<size_t>(f.first_bag + f.bags)],
                                       factors.defined() ? factors.data<Wide<Value>>() : nullptr};
  const TablePooling pooling = attrs_of(call).pooling;
  const int64_t ahead = rows.far();
  const bool streams = out.nbytes() >= facets::kStreamedResult && out.dtype() == DType::f32 && f.base % 16 == 0 &&
                       f.stride % 16 == 0 && f.width % 16 == 0 && reinterpret_cast<uintptr_t>(out.raw_data()) % 64 == 0;
  const bool wide =
      codegen::has_wide_registers(codegen::cpu_target()) && facets::has_wide_blocks(f.width) && !factors.defined();
  const auto pool = [&](int64_t first, int64_t last, int64_t place) {
    const bool mean = pooling == TablePooling::mean;
    if constexpr (!std::is_same_v<Value, double>) {
      if (wide) return pool_wide(rows, first, last, mean, out.raw_data(), out.dtype(), place, streams, ahead);
    }
    return rows.pool(first, last, mean, out.raw_data(), out.dtype(), place, streams, ahead);
  };
  // The first rows, which no entry before them asks for.
  const int64_t begin = lookups.offsets[static_cast<size_t>(first_bag)];
  for (int64_t p = begin; p < std::min(begin + ahead, rows.end); ++p) rows.ask_for(p);
  int64_t outside = 0;
  for (int64_t b = first_bag; b < last_bag; ++b) {
    const int64_t first = lookups.offsets[static_cast<size_t>(b)], last = lookups.offsets[static_cast<size_t>(b) + 1];
    if (pooling == TablePooling::none) {
      for (int64_t p = first; p < last; ++p) outside += pool(p, p + 1, p * f.width);
    } else {
      outside += pool(first, last, lookups.place(f, b, 0, pooling));
    }
  }
  if (streams) _mm_sfence();
  return outside;
}

// A kernel and not a recipe: which rows are added, and how many, is in memory.
void kernel(const OpCall& call, std::span<const Tensor> outputs) {
  const Lookups lookups = lookups_of(call);
  const auto report = [&](bool all_in_range) {
    const IndexReport found = all_in_range ? IndexReport{} : find_bad_indices(lookups, rows_of_tables(call));
    facets::report_bad_indices(call, found, attrs_of(call).bounds, outputs[1]);
  };
  if (outputs[0].numel() == 0) return report(false);
  std::vector<Tensor> tables(tables_of(call).begin(), tables_of(call).end());
  for (Tensor& t : tables) {
    if (t.strides()[1] != 1) t = to_contiguous(t);  // views of rows are read where they are
  }
  std::vector<Tensor> inputs(call.inputs.begin(), call.inputs.end());
  std::copy(tables.begin(), tables.end(), inputs.end() - attrs_of(call).tables);
  const OpCall dense{call.op, inputs, call.attrs};
  const Tensor* weights = batch_of(call).weights;
  const Tensor in_f32 = weights ? facets::dense_as(*weights, DType::f32) : Tensor{};
  const bool any_f64 =
      std::any_of(tables.begin(), tables.end(), [](const Tensor& t) { return t.dtype() == DType::f64; });
  const Tensor in_f64 = weights && any_f64 ? facets::dense_as(*weights, DType::f64) : Tensor{};
  std::atomic<int64_t> outside{0};
  facets::each_part(lookups, [&](const FeatureBags& f, int64_t first, int64_t last) {
    const DType dtype = tables[static_cast<size_t>(f.table)].dtype();
    int64_t mine = 0;
    visit_dtype(dtype, [&]<class Value>() {
      if constexpr (!std::is_integral_v<Value> && sizeof(Value) > 1) {
        const Tensor& factors = std::is_same_v<Value, double> ? in_f64 : in_f32;
        if (lookups.indices.dtype() == DType::i64)
          mine = pool_feature<Value, int64_t>(dense, lookups, f, factors, outputs[0], first, last);
        else mine = pool_feature<Value, int32_t>(dense, lookups, f, factors, outputs[0], first, last);
      }
    });
    if (mine > 0) outside += mine;
  });
  report(outside == 0);
}

// ---- the op ---------------------------------------------------------------------------------------------------------

// All of it on every rank: which rows and bags a rank has is a plan's to say.
std::string sharding(const OpCall& call) {
  std::string text;
  for (size_t t = 0; t < tables_of(call).size(); ++t) text += fmt::format(" #W{}[AA]", t);
  return fmt::format("#f[AA] #I[A] #O[A]{}{} -> y[{}] #r[A]", batch_of(call).weights ? " #s[A]" : "", text,
                     attrs_of(call).elements < 0 || attrs_of(call).pooling == TablePooling::none ? "AA" : "A");
}

Cost cost(const OpCall& call) {
  const double entries = static_cast<double>(batch_of(call).indices.numel());
  double columns = 0, bytes = 0;
  for (const Tensor& t : tables_of(call)) {
    columns += static_cast<double>(t.extents()[1]);
    bytes += static_cast<double>(t.extents()[1] * itemsize(t.dtype()));
  }
  const double tables = static_cast<double>(std::max<int64_t>(attrs_of(call).tables, 1));
  return {entries * columns / tables, entries * bytes / tables + static_cast<double>(batch_of(call).indices.nbytes() +
                                                                                     batch_of(call).offsets.nbytes())};
}

// Two tables, [7, 5] and [4, 3], and three features with two bags each, the first and the last of table 0.
std::vector<Sample> samples() {
  const auto table = [](uint64_t seed, int64_t rows, int64_t columns, DType dtype = DType::f32) {
    return facets::sample_tensor(seed, {rows, columns}, dtype);
  };
  const auto attrs = [](TablePooling pooling, int64_t columns = 13, int64_t elements = -1, int64_t tables = 2,
                        TableOutput output = TableOutput::as_tables, BoundsCheck bounds = BoundsCheck::fatal) {
    return Attrs::of(TablesAttrs{tables, columns, elements, pooling, bounds, output});
  };
  const Tensor layout = Tensor::of<int64_t>({0, -1, 0, 5, 1, -1, 5, 3, 0, -1, 8, 5}, {3, 4}),
               own_bags = Tensor::of<int64_t>({0, 1, 0, 5, 1, 3, 5, 3, 0, 0, 14, 5}, {3, 4}),
               indices = Tensor::of<int64_t>({6, 0, 6, 3, 3, 1, 2, 0, 5, 4}),
               narrow = Tensor::of<int32_t>({6, 0, 6, 3, 3, 1, 2, 0, 5, 4}),
               offsets = Tensor::of<int64_t>({0, 3, 4, 4, 8, 9, 10}),
               own_offsets = Tensor::of<int32_t>({0, 4, 4, 7, 8});
  const Tensor first = table(1, 7, 5), second = table(2, 4, 3);
  return {
      {"sum", {layout, indices, offsets, first, second}, attrs(TablePooling::sum)},
      {"mean_i32", {layout, narrow, offsets, first, second}, attrs(TablePooling::mean)},
      {"weighted", {layout, indices, offsets, facets::sample_tensor(3, {10}), first, second}, attrs(TablePooling::sum)},
      {"weighted_mean",
       {layout, indices, offsets, facets::sample_tensor(3, {10}), first, second},
       attrs(TablePooling::mean)},
      {"own_bags",
       {own_bags, Tensor::of<int64_t>({6, 0, 6, 3, 3, 1, 2, 0}), own_offsets, first, second},
       attrs(TablePooling::sum, 13, 14)},
      {"sequence",
       {Tensor::of<int64_t>({0, -1, 0, 5, 1, -1, 5, 5}, {2, 4}), indices, Tensor::of<int64_t>({0, 3, 5, 10, 10}), first,
        table(4, 9, 5)},
       attrs(TablePooling::none, 5)},
      {"narrow_wide",
       {Tensor::of<int64_t>({0, -1, 0, 70, 1, -1, 70, 64}, {2, 4}), Tensor::of<int64_t>({6, 0, 6, 3, 3, 1}),
        Tensor::of<int64_t>({0, 1, 3, 3, 6}), table(5, 7, 70, DType::bf16), table(6, 4, 64, DType::f16)},
       attrs(TablePooling::sum, 134, -1, 2, TableOutput::f32)},
      {"out_of_range",
       {Tensor::of<int64_t>({0, -1, 0, 16}, {1, 4}), indices, Tensor::of<int64_t>({0, 4, 10}), table(7, 3, 16)},
       attrs(TablePooling::mean, 16, -1, 1, TableOutput::bf16, BoundsCheck::ignore)},
      {"no_entries",
       {layout, Tensor::empty({0}, DType::i64), Tensor::of<int64_t>({0, 0, 0, 0}), first, second},
       attrs(TablePooling::sum)},
      {"no_bags",
       {layout, Tensor::empty({0}, DType::i64), Tensor::of<int64_t>({0}), first, second},
       attrs(TablePooling::sum)},
      {"no_rows",
       {Tensor::of<int64_t>({0, -1, 0, 3}, {1, 4}), Tensor::empty({0}, DType::i64), Tensor::of<int64_t>({0, 0}),
        table(8, 0, 3)},
       attrs(TablePooling::sum, 3, -1, 1)}};
}

const OpDef kTables{.name = "table_batched_embedding_bags",
                    .num_inputs = -1,
                    .num_outputs = 2,
                    .infer = infer,
                    .reference = reference,
                    .gradient = {.vjp = vjp, .saves_inputs = ~0u},
                    .kernel = kernel,
                    .sharding = sharding,
                    .cost = cost,
                    .samples = samples};

}  // namespace

TableBatchResult table_batched_embedding_bags(std::span<const Tensor> tables, const TableBatch& batch,
                                              const TableBatchOptions& options) {
  std::vector<int64_t> columns;
  for (const Tensor& t : tables) {
    TUTTI_CHECK(t.defined() && t.ndim() == 2, "table_batched_embedding_bags: table {} is {}; expected a matrix",
                columns.size(), describe(t));
    columns.push_back(t.size(1).guard_int());
  }
  TUTTI_CHECK(batch.indices.defined() && batch.offsets.defined(), "table_batched_embedding_bags: the batch has no {}",
              batch.indices.defined() ? "offsets" : "indices");
  const facets::TableLayout layout =
      facets::table_layout("table_batched_embedding_bags", batch, columns, options.pooling);
  std::vector<Tensor> inputs = {beside(batch.indices, layout.features), batch.indices, batch.offsets};
  if (batch.per_sample_weights.defined()) inputs.push_back(batch.per_sample_weights);
  inputs.insert(inputs.end(), tables.begin(), tables.end());
  Tensor outputs[2];
  apply(kTables, inputs,
        Attrs::of(TablesAttrs{static_cast<int64_t>(tables.size()), layout.columns, layout.elements, options.pooling,
                              options.bounds, options.output}),
        outputs);
  return {outputs[0], outputs[1]};
}

}  // namespace tutti

TUTTI_OPS(table_batched_embedding, &kTables)
