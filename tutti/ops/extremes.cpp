#include "tutti/ops/extremes.h"

#include <cmath>

#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/engine/row_ops.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/where.h"

namespace tutti {
namespace {

using codegen::LoopKind;
using codegen::ReduceOp;
using rows::reduce_attrs;
using rows::ReduceAttrs;

// A result of a reduction against its input: reduced dims as 1.
Tensor kept(const VjpCall& c, const Tensor& t) {
  return rows::keep_dims(t, c.input_metas[0].sizes, c.attrs.as<ReduceAttrs>().dims);
}

// Booleans are compared as integers.
Expr comparable(RecipeBuilder& b) {
  return cast(b.in(0), b.call[0].dtype() == DType::boolean ? DType::i32 : compute_dtype(b.call[0].dtype()));
}

void infer_extreme(const OpCall& call, OutputMetas& out) {
  const ReduceAttrs& a = reduce_attrs(call);
  for (const int64_t d : a.dims) {
    TUTTI_CHECK(
        call[0].sizes()[static_cast<size_t>(d)] != 0,
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
    if (is_floating(x.dtype())) {
      double extreme = facets::read_double(x, at);
      // If there are zeros of both signs, 0 is the larger.
      for (const int64_t other : offsets) {
        if (extreme == 0 && facets::read_double(x, other) == 0 &&
            std::signbit(facets::read_double(x, other)) != maximum)
          extreme = maximum ? 0.0 : -0.0;
      }
      facets::write_double(outputs[0], row, extreme);
    } else facets::write_int64(outputs[0], row, facets::read_int64(x, at));
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

// ---- calls ----------------------------------------------------------------------------------------------------------

Tensor extreme(const OpDef& op, const Tensor& x, const ExtremeOptions& options) {
  return call_op(
      op,
      Attrs::of(ReduceAttrs{
          .dims = normalize_dims(options.dims, x.ndim(), op.name), .keepdim = options.keepdim, .dtype = x.dtype()}),
      x);
}

Tensor position(const OpDef& op, const Tensor& x, const ArgOptions& options) {
  const Dims dims = options.dim ? Dims{*options.dim} : Dims{};
  return call_op(op,
                 Attrs::of(ReduceAttrs{
                     .dims = normalize_dims(dims, x.ndim(), op.name), .keepdim = options.keepdim, .dtype = DType::i64}),
                 x);
}

}  // namespace

Tensor amax(const Tensor& x, const ExtremeOptions& options) { return extreme(kAmax, x, options); }
Tensor amin(const Tensor& x, const ExtremeOptions& options) { return extreme(kAmin, x, options); }
Tensor argmax(const Tensor& x, const ArgOptions& options) { return position(kArgmax, x, options); }
Tensor argmin(const Tensor& x, const ArgOptions& options) { return position(kArgmin, x, options); }

}  // namespace tutti

TUTTI_OPS(extremes, &kAmax, &kAmin, &kArgmax, &kArgmin)
