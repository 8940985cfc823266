#include "tutti/ops/reduction.h"

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
  if (c.grads[0].defined())
    grads[0] = expand(cast(kept(c, c.grads[0]), c.input_metas[0].dtype), c.input_metas[0].sizes);
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
  TUTTI_CHECK(options.leaf >= 0, "{}: leaf is {}; expected a positive number of elements, or 0 for the default",
              op.name, options.leaf);
  return call_op(op,
                 Attrs::of(ReduceAttrs{.dims = normalize_dims(options.dims, x.ndim(), op.name),
                                       .keepdim = options.keepdim,
                                       .dtype = dtype,
                                       .leaf = options.leaf}),
                 x);
}

Tensor truth(const OpDef& op, const Tensor& x, const ReduceOptions& options) {
  TUTTI_CHECK(!options.dtype && options.leaf == 0, "{}: dtype and leaf are options of sum and prod", op.name);
  return call_op(op,
                 Attrs::of(ReduceAttrs{.dims = normalize_dims(options.dims, x.ndim(), op.name),
                                       .keepdim = options.keepdim,
                                       .dtype = DType::boolean}),
                 x);
}

}  // namespace

Tensor sum(const Tensor& x, const ReduceOptions& options) { return fold(kSum, x, options); }
Tensor prod(const Tensor& x, const ReduceOptions& options) { return fold(kProd, x, options); }
Tensor any(const Tensor& x, const ReduceOptions& options) { return truth(kAny, x, options); }
Tensor all(const Tensor& x, const ReduceOptions& options) { return truth(kAll, x, options); }

}  // namespace tutti

TUTTI_OPS(reduction, &kSum, &kProd, &kAny, &kAll)
