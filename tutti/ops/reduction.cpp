#include "tutti/ops/reduction.h"

#include <cmath>

#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/engine/row_ops.h"
#include "tutti/ops/expand.h"
#include "tutti/ops/where.h"

namespace tutti {
namespace {

using codegen::LoopKind;
using codegen::ReduceOp;
using rows::reduce_attrs;
using rows::ReduceAttrs;

// ---- sum and prod ---------------------------------------------------------------------------------------------------

// The type elements are combined in.
DType accumulates_in(DType input, DType result) {
  const DType wide = compute_dtype(result);
  return is_floating(input) && is_floating(wide) ? promote(compute_dtype(input), wide) : wide;
}

template <ReduceOp op>
void build_fold(RecipeBuilder& b) {
  b.out(b.reduce(op, cast(b.in(0), accumulates_in(b.call[0].dtype(), b.output_dtypes[0]))));
}

template <ReduceOp op>
void fold_reference(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor& x = call[0];
  rows::for_each_row(x, reduce_attrs(call).dims, [&](int64_t row, const std::vector<int64_t>& offsets) {
    if (is_floating(x.dtype()) || is_floating(outputs[0].dtype())) {
      double total = op == ReduceOp::sum ? -0.0 : 1.0;
      for (const int64_t at : offsets) {
        const double v = facets::read_double(x, at);
        total = op == ReduceOp::sum ? total + v : total * v;
      }
      facets::write_double(outputs[0], row, total);
      return;
    }
    uint64_t total = op == ReduceOp::sum ? 0 : 1;
    for (const int64_t at : offsets) {
      const uint64_t v = static_cast<uint64_t>(facets::read_int64(x, at));
      total = op == ReduceOp::sum ? total + v : total * v;
    }
    facets::write_int64(outputs[0], row, static_cast<int64_t>(total));
  });
}

// The cotangent of a result against the input: reduced dims as 1, dtype of the input.
Tensor kept(const VjpCall& c, const Tensor& t) {
  return rows::keep_dims(t, c.input_metas[0].sizes, c.attrs.as<ReduceAttrs>().dims);
}

void sum_vjp(const VjpCall& c, std::span<Tensor> grads) {
  if (c.grads[0].defined()) grads[0] = expand(cast(kept(c, c.grads[0]), c.input_metas[0].dtype), c.input_metas[0].sizes);
}

// Each element takes the product of the others: prod / x without zeros; with one zero only that element takes any.
void prod_vjp(const VjpCall& c, std::span<Tensor> grads) {
  if (!c.grads[0].defined()) return;
  const Dims& dims = c.attrs.as<ReduceAttrs>().dims;
  if (dims.empty()) {
    grads[0] = cast(c.grads[0], c.input_metas[0].dtype);
    return;
  }
  const Tensor& x = c.inputs[0];
  const ReduceOptions over{.dims = dims, .keepdim = true};
  const Tensor is_zero = eq(x, 0.0);
  const Tensor zeros = sum(cast(is_zero, DType::i64), over);
  const Tensor nonzero = where(is_zero, 1.0, x);
  const Tensor product = prod(nonzero, over);
  const Tensor at_zero = where(eq(zeros, 1), product, 0.0);
  const Tensor elsewhere = where(eq(zeros, 0), truediv(product, nonzero), 0.0);
  grads[0] = cast(mul(where(is_zero, at_zero, elsewhere), kept(c, c.grads[0])), c.input_metas[0].dtype);
}

std::vector<Sample> fold_samples(double lo, double hi) {
  constexpr DType dtypes[] = {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i64, DType::u8, DType::boolean};
  const auto fill = [](const Tensor& x, ReduceAttrs& a) { a.dtype = is_floating(x.dtype()) ? x.dtype() : DType::i64; };
  std::vector<Sample> samples = rows::reduction_samples(dtypes, lo, hi, fill, true);
  ReduceAttrs to_f32{.dims = {0}, .dtype = DType::f32};
  samples.push_back({"bf16_to_f32", {facets::sample_tensor(9, {40, 21}, DType::bf16, lo, hi)}, Attrs::of(to_f32)});
  return samples;
}

const OpDef kSum{
    .name = "sum",
    .num_inputs = 1,
    .infer = rows::infer_reduction,
    .reference = fold_reference<ReduceOp::sum>,
    .gradient = {.vjp = sum_vjp},
    .recipe = {.kind = LoopKind::row,
               .build = build_fold<ReduceOp::sum>,
               .row_dims = rows::reduce_dims,
               .per_row = 1,
               .leaf = rows::reduce_leaf},
    .sharding = [](const OpCall& call) { return rows::reduction_sharding(call, "sum", "lin"); },
    .cost = rows::reduce_cost,
    .samples = [] { return fold_samples(-2, 2); },
};

const OpDef kProd{
    .name = "prod",
    .num_inputs = 1,
    .infer = rows::infer_reduction,
    .reference = fold_reference<ReduceOp::prod>,
    .gradient = {.vjp = prod_vjp, .saves_inputs = 1},
    .recipe = {.kind = LoopKind::row,
               .build = build_fold<ReduceOp::prod>,
               .row_dims = rows::reduce_dims,
               .per_row = 1,
               .leaf = rows::reduce_leaf},
    .sharding = [](const OpCall& call) { return rows::reduction_sharding(call, "prod", "+prod"); },
    .cost = rows::reduce_cost,
    .samples =
        [] {
          std::vector<Sample> samples = fold_samples(0.8, 1.2);
          const Attrs over_rows = Attrs::of(ReduceAttrs{.dims = {1}, .dtype = DType::f64});
          const Tensor zeros = Tensor::of<double>({1, 2, 3, 4, 0, 5, 0, 0, 6, 0, 0, 0}, {4, 3});
          samples.push_back({"zeros", {zeros}, over_rows});
          return samples;
        },
    .tolerance = {.f32 = 1e-4, .f64 = 1e-12},
};

// ---- extremes -------------------------------------------------------------------------------------------------------

// Booleans are compared as integers.
Expr comparable(RecipeBuilder& b) {
  return cast(b.in(0), b.call[0].dtype() == DType::boolean ? DType::i32 : compute_dtype(b.call[0].dtype()));
}

void infer_extreme(const OpCall& call, OutputMetas& out) {
  const ReduceAttrs& a = reduce_attrs(call);
  for (const int64_t d : a.dims) {
    TUTTI_CHECK(call[0].sizes()[static_cast<size_t>(d)] != 0,
                "{}: dim {} of x, which is {}, has no elements, and nothing has no extreme; give dims that are not empty",
                call.op.name, d, describe(call[0]));
  }
  rows::infer_reduction(call, out);
}

// Position in `offsets` of the first extreme, NaN before all.
template <bool maximum>
size_t first_extreme(const Tensor& x, const std::vector<int64_t>& offsets) {
  size_t best = 0;
  for (size_t i = 1; i < offsets.size(); ++i) {
    if (is_floating(x.dtype())) {
      const double v = facets::read_double(x, offsets[i]), b = facets::read_double(x, offsets[best]);
      if (std::isnan(b)) break;
      if (std::isnan(v) || (maximum ? v > b : v < b)) best = i;
    } else {
      const int64_t v = facets::read_int64(x, offsets[i]), b = facets::read_int64(x, offsets[best]);
      if (maximum ? v > b : v < b) best = i;
    }
  }
  return best;
}

template <bool maximum>
void extreme_reference(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor& x = call[0];
  rows::for_each_row(x, reduce_attrs(call).dims, [&](int64_t row, const std::vector<int64_t>& offsets) {
    const int64_t at = offsets[first_extreme<maximum>(x, offsets)];
    if (is_floating(x.dtype())) facets::write_double(outputs[0], row, facets::read_double(x, at));
    else facets::write_int64(outputs[0], row, facets::read_int64(x, at));
  });
}

template <bool maximum>
void arg_reference(const OpCall& call, std::span<const Tensor> outputs) {
  rows::for_each_row(call[0], reduce_attrs(call).dims, [&](int64_t row, const std::vector<int64_t>& offsets) {
    facets::write_int64(outputs[0], row, static_cast<int64_t>(first_extreme<maximum>(call[0], offsets)));
  });
}

void extreme_vjp(const VjpCall& c, std::span<Tensor> grads) {
  if (!c.grads[0].defined()) return;
  const Dims& dims = c.attrs.as<ReduceAttrs>().dims;
  const Tensor hit = eq(c.inputs[0], kept(c, c.outputs[0]));
  Tensor share = kept(c, c.grads[0]);
  if (!dims.empty()) share = truediv(share, sum(cast(hit, share.dtype()), {.dims = dims, .keepdim = true}));
  grads[0] = cast(where(hit, share, 0.0), c.input_metas[0].dtype);
}

template <ReduceOp op>
void build_extreme(RecipeBuilder& b) {
  b.out(b.reduce(op, comparable(b)));
}

std::vector<Sample> extreme_samples(bool index) {
  constexpr DType dtypes[] = {DType::f32, DType::f64, DType::bf16, DType::i64, DType::i8, DType::u8, DType::boolean};
  const auto fill = [index](const Tensor& x, ReduceAttrs& a) { a.dtype = index ? DType::i64 : x.dtype(); };
  std::vector<Sample> samples = rows::reduction_samples(dtypes, 0, 9, fill, false);
  ReduceAttrs attrs{.dims = {1}, .dtype = index ? DType::i64 : DType::f32};
  const Tensor special = Tensor::of<float>({1, NAN, 3, NAN, INFINITY, -INFINITY, 2, 2, 0.0f, -0.0f, 0.0f, -1}, {3, 4});
  samples.push_back({"nan_ties_infinity", {special}, Attrs::of(attrs)});
  Tensor long_row = facets::sample_tensor(8, {2, 1200}, DType::f32, 0, 1);
  for (const int64_t i : {700, 30, 1199}) long_row.data<float>()[i] = 2.0f, long_row.data<float>()[1200 + i] = -1.0f;
  samples.push_back({"ties_far_apart", {long_row}, Attrs::of(attrs)});
  return samples;
}

template <ReduceOp op>
constexpr Recipe extreme_recipe() {
  return {.kind = LoopKind::row, .build = build_extreme<op>, .row_dims = rows::reduce_dims, .per_row = 1};
}

const OpDef kAmax{
    .name = "amax",
    .num_inputs = 1,
    .infer = infer_extreme,
    .reference = extreme_reference<true>,
    .gradient = {.vjp = extreme_vjp, .saves_inputs = 1, .saves_outputs = 1},
    .recipe = extreme_recipe<ReduceOp::max>(),
    .sharding = [](const OpCall& call) { return rows::reduction_sharding(call, "max", "+max"); },
    .cost = rows::reduce_cost,
    .samples = [] { return extreme_samples(false); },
    .tolerance = {0, 0},
};

const OpDef kAmin{
    .name = "amin",
    .num_inputs = 1,
    .infer = infer_extreme,
    .reference = extreme_reference<false>,
    .gradient = {.vjp = extreme_vjp, .saves_inputs = 1, .saves_outputs = 1},
    .recipe = extreme_recipe<ReduceOp::min>(),
    .sharding = [](const OpCall& call) { return rows::reduction_sharding(call, "min", "+min"); },
    .cost = rows::reduce_cost,
    .samples = [] { return extreme_samples(false); },
    .tolerance = {0, 0},
};

const OpDef kArgmax{
    .name = "argmax",
    .num_inputs = 1,
    .infer = infer_extreme,
    .reference = arg_reference<true>,
    .gradient = {.none = "the result is a position"},
    .recipe = extreme_recipe<ReduceOp::argmax>(),
    .sharding = rows::whole_row_sharding,
    .cost = rows::reduce_cost,
    .samples = [] { return extreme_samples(true); },
};

const OpDef kArgmin{
    .name = "argmin",
    .num_inputs = 1,
    .infer = infer_extreme,
    .reference = arg_reference<false>,
    .gradient = {.none = "the result is a position"},
    .recipe = extreme_recipe<ReduceOp::argmin>(),
    .sharding = rows::whole_row_sharding,
    .cost = rows::reduce_cost,
    .samples = [] { return extreme_samples(true); },
};

// ---- truth ----------------------------------------------------------------------------------------------------------

template <ReduceOp op>
void truth_reference(const OpCall& call, std::span<const Tensor> outputs) {
  rows::for_each_row(call[0], reduce_attrs(call).dims, [&](int64_t row, const std::vector<int64_t>& offsets) {
    bool result = op == ReduceOp::all;
    for (const int64_t at : offsets) {
      const bool v = facets::read_double(call[0], at) != 0;
      result = op == ReduceOp::all ? result && v : result || v;
    }
    facets::write_int64(outputs[0], row, result);
  });
}

std::vector<Sample> truth_samples() {
  constexpr DType dtypes[] = {DType::boolean, DType::f32, DType::bf16, DType::i64, DType::u8};
  return rows::reduction_samples(dtypes, 0, 2, [](const Tensor&, ReduceAttrs& a) { a.dtype = DType::boolean; }, true);
}

template <ReduceOp op>
OpDef truth_op(const char* name) {
  return {.name = name,
          .num_inputs = 1,
          .infer = rows::infer_reduction,
          .reference = truth_reference<op>,
          .gradient = {.none = "the result is a truth value"},
          .recipe = {.kind = LoopKind::row,
                     .build = [](RecipeBuilder& b) { b.out(b.reduce(op, cast(b.in(0), DType::boolean))); },
                     .row_dims = rows::reduce_dims,
                     .per_row = 1},
          .sharding = rows::whole_row_sharding,
          .cost = rows::reduce_cost,
          .samples = truth_samples};
}
const OpDef kAny = truth_op<ReduceOp::any>("any");
const OpDef kAll = truth_op<ReduceOp::all>("all");

// ---- calls ----------------------------------------------------------------------------------------------------------

Tensor fold(const OpDef& op, const Tensor& x, const ReduceOptions& options) {
  const DType natural = is_floating(x.dtype()) ? x.dtype() : DType::i64;
  const DType dtype = options.dtype.value_or(natural);
  TUTTI_CHECK(is_floating(dtype) || dtype == natural,
              "{}: a result of {} was asked for, x is {}; the result is a float type or {}", op.name, name_of(dtype),
              describe(x), name_of(natural));
  TUTTI_CHECK(options.leaf >= 0, "{}: leaf is {}; expected a positive number of elements, or 0 for the default", op.name,
              options.leaf);
  return call_op(op, Attrs::of(ReduceAttrs{.dims = normalize_dims(options.dims, x.ndim(), op.name),
                                           .keepdim = options.keepdim,
                                           .dtype = dtype,
                                           .leaf = options.leaf}), x);
}

Tensor pick(const OpDef& op, const Tensor& x, const ReduceOptions& options, DType dtype) {
  TUTTI_CHECK(!options.dtype && options.leaf == 0, "{}: dtype and leaf are options of sum and prod", op.name);
  return call_op(op, Attrs::of(ReduceAttrs{.dims = normalize_dims(options.dims, x.ndim(), op.name),
                                           .keepdim = options.keepdim,
                                           .dtype = dtype}), x);
}

Tensor position(const OpDef& op, const Tensor& x, const ArgOptions& options) {
  const Dims dims = options.dim ? Dims{*options.dim} : Dims{};
  return pick(op, x, {.dims = dims, .keepdim = options.keepdim}, DType::i64);
}

}  // namespace

Tensor sum(const Tensor& x, const ReduceOptions& options) { return fold(kSum, x, options); }
Tensor prod(const Tensor& x, const ReduceOptions& options) { return fold(kProd, x, options); }
Tensor amax(const Tensor& x, const ReduceOptions& options) { return pick(kAmax, x, options, x.dtype()); }
Tensor amin(const Tensor& x, const ReduceOptions& options) { return pick(kAmin, x, options, x.dtype()); }
Tensor any(const Tensor& x, const ReduceOptions& options) { return pick(kAny, x, options, DType::boolean); }
Tensor all(const Tensor& x, const ReduceOptions& options) { return pick(kAll, x, options, DType::boolean); }
Tensor argmax(const Tensor& x, const ArgOptions& options) { return position(kArgmax, x, options); }
Tensor argmin(const Tensor& x, const ArgOptions& options) { return position(kArgmin, x, options); }

}  // namespace tutti

TUTTI_OPS(reduction, &kSum, &kProd, &kAmax, &kAmin, &kArgmax, &kArgmin, &kAny, &kAll)
