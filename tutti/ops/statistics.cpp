#include "tutti/ops/statistics.h"

#include <algorithm>
#include <cmath>

#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/engine/row_ops.h"
#include "tutti/ops/expand.h"
#include "tutti/ops/extremes.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/where.h"

namespace tutti {
namespace {

using codegen::LoopKind;
using codegen::ReduceOp;
using rows::reduce_attrs;
using rows::ReduceAttrs;

double row_mean(const Tensor& x, const std::vector<int64_t>& offsets) {
  double total = -0.0;
  for (const int64_t at : offsets) total += facets::read_double(x, at);
  return total / static_cast<double>(offsets.size());
}

SymInt row_size(const VjpCall& c) { return rows::row_length(c.input_metas[0].sizes, c.attrs.as<ReduceAttrs>().dims); }

Tensor kept(const VjpCall& c, const Tensor& t) {
  return rows::keep_dims(t, c.input_metas[0].sizes, c.attrs.as<ReduceAttrs>().dims);
}

// ---- mean -----------------------------------------------------------------------------------------------------------

void build_mean(RecipeBuilder& b) {
  const DType dtype = compute_dtype(b.output_dtypes[0]);
  b.out(b.reduce(ReduceOp::sum, cast(b.in(0), dtype)) / b.row_length(dtype));
}

void mean_reference(const OpCall& call, std::span<const Tensor> outputs) {
  rows::for_each_row(call[0], reduce_attrs(call).dims, [&](int64_t row, const std::vector<int64_t>& offsets) {
    facets::write_double(outputs[0], row, row_mean(call[0], offsets));
  });
}

void mean_vjp(const VjpCall& c, std::span<Tensor> grads) {
  if (!c.grads[0].defined()) return;
  const Tensor g = cast(truediv(kept(c, c.grads[0]), row_size(c)), c.input_metas[0].dtype);
  grads[0] = expand(g, c.input_metas[0].sizes);
}

const OpDef kMean{
    .name = "mean",
    .num_inputs = 1,
    .infer = rows::infer_reduction,
    .reference = mean_reference,
    .gradient = {.vjp = mean_vjp},
    .recipe = {.kind = LoopKind::row, .build = build_mean, .row_dims = rows::reduce_dims, .per_row = 1},
    .sharding = [](const OpCall& call) { return rows::reduction_sharding(call, "avg!", "lin"); },
    .cost = rows::reduce_cost,
    .samples =
        [] {
          constexpr DType dtypes[] = {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i64};
          const auto fill = [](const Tensor& x, ReduceAttrs& a) {
            a.dtype = is_floating(x.dtype()) ? x.dtype() : DType::f32;
          };
          return rows::reduction_samples(dtypes, -2, 2, fill, true);
        },
};

// ---- var and stddev -------------------------------------------------------------------------------------------------

Expr variance(RecipeBuilder& b) {
  const DType dtype = compute_dtype(b.output_dtypes[0]);
  const Expr x = cast(b.in(0), dtype), n = b.row_length(dtype);
  const Expr centered = x - b.reduce(ReduceOp::sum, x) / n;
  const Expr degrees = apply_scalar(ScalarOp::maximum, n - b.param(0, dtype), b.constant(0.0, dtype));
  return b.reduce(ReduceOp::sum, centered * centered) / degrees;
}
void build_var(RecipeBuilder& b) { b.out(variance(b)); }
void build_stddev(RecipeBuilder& b) { b.out(apply_scalar(ScalarOp::sqrt, variance(b))); }

template <bool root>
void reference(const OpCall& call, std::span<const Tensor> outputs) {
  rows::for_each_row(call[0], reduce_attrs(call).dims, [&](int64_t row, const std::vector<int64_t>& offsets) {
    const double mean = row_mean(call[0], offsets);
    double total = 0;
    for (const int64_t at : offsets) {
      const double centered = facets::read_double(call[0], at) - mean;
      total += centered * centered;
    }
    const double degrees = static_cast<double>(offsets.size()) - reduce_attrs(call).correction;
    const double variance = total / std::max(degrees, 0.0);
    facets::write_double(outputs[0], row, root ? std::sqrt(variance) : variance);
  });
}

// (x - mean) slope / (n - correction), the slope [.., 1, ..] being one of each row.
Tensor spread(const VjpCall& c, const Tensor& slope) {
  const ReduceAttrs& a = c.attrs.as<ReduceAttrs>();
  const Tensor& x = c.inputs[0];
  if (a.dims.empty()) return sub(x, x);
  // The mean of a constant row is rounded, and its distance from the elements would count for a spread.
  const Tensor range = sub(amax(x, {.dims = a.dims, .keepdim = true}), amin(x, {.dims = a.dims, .keepdim = true}));
  const Tensor centered = where(eq(range, 0.0), 0.0, sub(x, mean(x, {.dims = a.dims, .keepdim = true})));
  const SymFloat degrees = maximum(SymFloat(row_size(c)) - a.correction, 0.0);
  return cast(mul(centered, truediv(slope, degrees)), c.input_metas[0].dtype);
}

// d var / dx = 2 (x - mean) / (n - correction)
void var_vjp(const VjpCall& c, std::span<Tensor> grads) {
  if (c.grads[0].defined()) grads[0] = spread(c, mul(kept(c, c.grads[0]), 2.0));
}

// d std / dx = (x - mean) / (std (n - correction)), and 0 for a row that is constant.
void stddev_vjp(const VjpCall& c, std::span<Tensor> grads) {
  if (!c.grads[0].defined()) return;
  const Tensor std = kept(c, c.outputs[0]);
  grads[0] = spread(c, where(eq(std, 0.0), 0.0, truediv(kept(c, c.grads[0]), std)));
}

int correction_param(const OpCall& call, codegen::ParamValue* values) {
  values[0].f = reduce_attrs(call).correction;
  return 1;
}

Cost spread_cost(const OpCall& call) {
  Cost cost = rows::reduce_cost(call);
  cost.flops *= 4;
  return cost;
}

std::vector<Sample> spread_samples() {
  constexpr DType dtypes[] = {DType::f32, DType::f64, DType::bf16, DType::f16};
  const auto fill = [](const Tensor& x, ReduceAttrs& a) {
    a.dtype = x.dtype();
    a.correction = rows::row_length(x.sizes(), a.dims) == 1 ? 0 : 1;  // else 0 / 0
  };
  return rows::reduction_samples(dtypes, -2, 3, fill, false);
}

const OpDef kVar{
    .name = "var",
    .num_inputs = 1,
    .infer = rows::infer_reduction,
    .reference = reference<false>,
    .gradient = {.vjp = var_vjp, .saves_inputs = 1},
    .recipe = {.kind = LoopKind::row,
               .build = build_var,
               .row_dims = rows::reduce_dims,
               .per_row = 1,
               .params = correction_param},
    .sharding = rows::whole_row_sharding,
    .cost = spread_cost,
    .samples = spread_samples,
};
const OpDef kStddev{
    .name = "stddev",
    .num_inputs = 1,
    .infer = rows::infer_reduction,
    .reference = reference<true>,
    .gradient = {.vjp = stddev_vjp, .saves_inputs = 1, .saves_outputs = 1},
    .recipe = {.kind = LoopKind::row,
               .build = build_stddev,
               .row_dims = rows::reduce_dims,
               .per_row = 1,
               .params = correction_param},
    .sharding = rows::whole_row_sharding,
    .cost = spread_cost,
    .samples = spread_samples,
};

Tensor spread_of(const OpDef& op, const Tensor& x, const VarOptions& options) {
  TUTTI_CHECK(is_floating(x.dtype()), "{}: x is {}; expected floats, cast() it first", op.name, describe(x));
  return call_op(op,
                 Attrs::of(ReduceAttrs{.dims = normalize_dims(options.dims, x.ndim(), op.name),
                                       .keepdim = options.keepdim,
                                       .dtype = x.dtype(),
                                       .correction = options.correction}),
                 x);
}

}  // namespace

namespace {

// The same bits in steps: the sum is a tree that ranks may cut where a mean may not, because the division comes after
// the last addition.
Tensor divided_sum(const Tensor& x, const MeanOptions& options) {
  const Tensor all = sum(x, {.dims = options.dims, .keepdim = options.keepdim, .dtype = compute_dtype(x.dtype())});
  return cast(truediv(all, rows::row_length(x.sizes(), normalize_dims(options.dims, x.ndim(), "mean"))), x.dtype());
}

}  // namespace

Tensor mean(const Tensor& x, const MeanOptions& options) {
  TUTTI_CHECK(x.defined(), "mean: the tensor is undefined");
  if (x.storage()->state() == StorageState::sharded && is_floating(x.dtype())) return divided_sum(x, options);
  return call_op(kMean,
                 Attrs::of(ReduceAttrs{.dims = normalize_dims(options.dims, x.ndim(), "mean"),
                                       .keepdim = options.keepdim,
                                       .dtype = is_floating(x.dtype()) ? x.dtype() : DType::f32}),
                 x);
}

Tensor var(const Tensor& x, const VarOptions& options) { return spread_of(kVar, x, options); }

Tensor stddev(const Tensor& x, const VarOptions& options) { return spread_of(kStddev, x, options); }

}  // namespace tutti

TUTTI_OPS(statistics, &kMean, &kVar, &kStddev)
