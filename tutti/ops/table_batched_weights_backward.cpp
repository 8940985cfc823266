#include "tutti/ops/table_batched_weights_backward.h"

#include <algorithm>

#include "tutti/ops/engine/eager.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/engine/tree_sum.h"
#include "tutti/ops/indexing/bags.h"
#include "tutti/ops/tables/gradients.h"
#include "tutti/ops/tables/row_lanes.h"
#include "tutti/ops/tables/table_sums.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti {
namespace {

using facets::FeatureBags;
using facets::LookupOperands;
using facets::Lookups;

// Inputs: the tables, the gradient, the operands of the batch without weights.
struct WeightsAttrs {
  int64_t tables;
  TablePooling pooling;
  BoundsCheck bounds;

  static constexpr auto fields() {
    return field_list(field::number<&WeightsAttrs::tables>("tables"), field::rule<&WeightsAttrs::pooling>("pooling"),
                      field::rule<&WeightsAttrs::bounds>("bounds"));
  }
};

struct WeightsCall {
  explicit WeightsCall(const OpCall& call)
      : attrs(call.attrs.as<WeightsAttrs>()),
        tables(call.inputs.first(static_cast<size_t>(attrs.tables))),
        grad(call[tables.size()]),
        batch(LookupOperands::at(call, tables.size() + 1, false)) {}
  DType dtype() const {
    bool any = grad.dtype() == DType::f64;
    for (const Tensor& t : tables) any = any || t.dtype() == DType::f64;
    return any ? DType::f64 : DType::f32;
  }
  Lookups lookups(const OpCall& call) const {
    Lookups all = read_lookups(call, batch, grad.ndim() == 2 ? grad.extents()[1] : 0);
    std::vector<int64_t> rows;
    for (const Tensor& t : tables) rows.push_back(t.extents()[0]);
    for (const FeatureBags& f : all.features)
      TUTTI_CHECK(
          f.table >= 0 && f.table < attrs.tables && tables[static_cast<size_t>(f.table)].extents()[1] == f.width,
          "{}: a feature of the layout looks up {} columns of table {}", call.op.name, f.width, f.table);
    facets::check_places(call, all, grad, attrs.pooling);
    if (attrs.bounds == BoundsCheck::fatal) facets::tell_bad_indices(call, find_bad_indices(all, rows), attrs.bounds);
    return all;
  }

  const WeightsAttrs& attrs;
  std::span<const Tensor> tables;
  const Tensor& grad;
  LookupOperands batch;
};

void infer_weights(const OpCall& call, OutputMetas& out) {
  const WeightsCall c(call);
  TUTTI_CHECK(c.attrs.pooling != TablePooling::none, "{}: without pooling there are no weights", call.op.name);
  const SymInt bags = check_lookup_operands(call, c.batch, c.attrs.pooling, c.grad.ndim() == 2);
  TUTTI_CHECK(c.grad.ndim() == 1 || (c.grad.ndim() == 2 && c.grad.size(0) == bags),
              "{}: the gradient is {} for {} bags of each feature", call.op.name, describe(c.grad), bags);
  out.add(c.dtype(), {c.batch.indices.size(0)});
}

// put(p, sum over d of grad(at + d) * row(d)) for every entry, where `product` sums.
template <class Real, class Product>
void each_weight(const WeightsCall& c, const Lookups& lookups, const FeatureBags& f, int64_t begin, int64_t end,
                 Product product) {
  for (int64_t b = begin; b < end; ++b) {
    const int64_t first = lookups.offsets[static_cast<size_t>(b)], last = lookups.offsets[static_cast<size_t>(b) + 1];
    const Real length =
        static_cast<Real>(c.attrs.pooling == TablePooling::mean ? std::max<int64_t>(last - first, 1) : int64_t{1});
    for (int64_t p = first; p < last; ++p) product(p, lookups.place(f, b, p, c.attrs.pooling), length);
  }
}

void reference_weights(const OpCall& call, std::span<const Tensor> outputs) {
  const WeightsCall c(call);
  const Lookups lookups = c.lookups(call);
  const Tensor grad = to_contiguous(c.grad);
  for (const FeatureBags& f : lookups.features) {
    const Tensor& table = c.tables[static_cast<size_t>(f.table)];
    each_weight<double>(c, lookups, f, f.first_bag, f.first_bag + f.bags, [&](int64_t p, int64_t at, double length) {
      const int64_t row = facets::read_int64(lookups.indices, p);
      double sum = 0;
      for (int64_t d = 0; d < f.width && row >= 0 && row < table.extents()[0]; ++d)
        sum +=
            facets::read_double(grad, at + d) / length * facets::read_double(table, facets::offset_at(table, {row, d}));
      facets::write_double(outputs[0], p, sum);
    });
  }
}

template <class Real>
void run_weights(const OpCall& call, const Tensor& out) {
  const WeightsCall c(call);
  const Lookups lookups = c.lookups(call);
  const Tensor grad = facets::dense_as(c.grad, dtype_of<Real>), indices = facets::dense_as(lookups.indices, DType::i64);
  std::vector<Tensor> tables(c.tables.begin(), c.tables.end());
  for (Tensor& t : tables) {
    if (t.strides()[1] != 1) t = to_contiguous(t);  // views of rows are read where they are
  }
  for (const FeatureBags& f : lookups.features) {
    const Tensor& table = tables[static_cast<size_t>(f.table)];
    const int64_t rows = table.extents()[0], stride = table.strides()[0];
    visit_dtype(table.dtype(), [&]<class Value>() {
      if constexpr (!std::is_integral_v<Value> && sizeof(Value) > 1) {
        ThreadPool::current().parallel_for(
            f.bags, std::max<int64_t>(kParallelGrain / (f.width + 1), 1), [&](int64_t begin, int64_t end) {
              std::vector<Real> row(static_cast<size_t>(f.width));
              each_weight<Real>(
                  c, lookups, f, f.first_bag + begin, f.first_bag + end, [&](int64_t p, int64_t at, Real length) {
                    const int64_t index = indices.data<int64_t>()[p];
                    out.data<Real>()[p] = 0;
                    if (index < 0 || index >= rows) return;
                    const Value* from = static_cast<const Value*>(table.raw_data()) + index * stride;
                    facets::each_element(
                        from, f.width, [&](int64_t d, auto x) { row[static_cast<size_t>(d)] = static_cast<Real>(x); });
                    const Real* g = grad.data<Real>() + at;
                    out.data<Real>()[p] = facets::tree_sum<Real>(
                        0, f.width, [&](int64_t d) { return g[d] / length * row[static_cast<size_t>(d)]; });
                  });
            });
      }
    });
  }
}

const OpDef kWeightsBackward{
    .name = "table_batched_weights_backward",
    .num_inputs = -1,
    .infer = infer_weights,
    .reference = reference_weights,
    .gradient = {.none = "the gradient of the weights of table-batched bags is not differentiated again; that of "
                         "embedding_bag is"},
    .kernel =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          if (outputs[0].dtype() == DType::f64) run_weights<double>(call, outputs[0]);
          else run_weights<float>(call, outputs[0]);
        },
    .sharding = [](const OpCall& call) { return facets::whole_operands(call, 0) + "-> y[A]"; },
    .samples =
        [] {
          const Tensor indices = Tensor::of<int64_t>({6, 0, 6, 3, 3, 1}),
                       offsets = Tensor::of<int32_t>({0, 1, 3, 3, 6}),
                       layout = Tensor::of<int64_t>({0, -1, 0, 5, 1, -1, 5, 18}, {2, 4});
          const auto list = [&](DType grad, DType first) {
            return std::vector<Tensor>{facets::sample_tensor(1, {7, 5}, first),
                                       facets::sample_tensor(2, {4, 18}),
                                       facets::sample_tensor(3, {2, 23}, grad),
                                       layout,
                                       indices,
                                       offsets};
          };
          return std::vector<Sample>{
              {"sum", list(DType::f32, DType::f32), Attrs::of(WeightsAttrs{2, TablePooling::sum, BoundsCheck::fatal})},
              {"mean", list(DType::f32, DType::bf16),
               Attrs::of(WeightsAttrs{2, TablePooling::mean, BoundsCheck::fatal})},
              {"f64", list(DType::f64, DType::f64),
               Attrs::of(WeightsAttrs{2, TablePooling::mean, BoundsCheck::fatal})}};
        }};

}  // namespace

namespace facets {

Tensor table_weights_gradient(std::span<const Tensor> tables, std::span<const Tensor> inputs, TablePooling pooling,
                              BoundsCheck bounds) {
  std::vector<Tensor> joined(tables.begin(), tables.end());
  joined.insert(joined.end(), inputs.begin(), inputs.begin() + 4);
  return apply1(kWeightsBackward, joined,
                Attrs::of(WeightsAttrs{static_cast<int64_t>(tables.size()), pooling, bounds}));
}

}  // namespace facets

Tensor table_batched_weights_backward(std::span<const Tensor> tables, const TableUse& use,
                                      const TableBatchOptions& options) {
  std::vector<int64_t> columns;
  for (const Tensor& t : tables) {
    TUTTI_CHECK(t.defined() && t.ndim() == 2, "table_batched_weights_backward: table {} is {}; expected a matrix",
                columns.size(), describe(t));
    columns.push_back(t.size(1).guard_int());
  }
  TUTTI_CHECK(use.grad.defined() && use.batch.indices.defined() && use.batch.offsets.defined(),
              "table_batched_weights_backward: it needs the gradient, the indices and the offsets");
  const facets::TableLayout layout =
      facets::table_layout("table_batched_weights_backward", use.batch, columns, options.pooling);
  const Tensor inputs[] = {use.grad, beside(use.grad, layout.features), use.batch.indices, use.batch.offsets};
  return facets::table_weights_gradient(tables, inputs, options.pooling, options.bounds);
}

}  // namespace tutti

TUTTI_OPS(table_batched_weights_backward, &kWeightsBackward)
