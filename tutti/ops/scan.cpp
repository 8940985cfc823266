#include "tutti/ops/scan.h"

#include <cmath>
#include <limits>

#include "tutti/ops/binary.h"
#include "tutti/ops/bitwise.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/engine/row_ops.h"
#include "tutti/ops/flip.h"
#include "tutti/ops/scatter_add.h"
#include "tutti/ops/where.h"

namespace tutti {
namespace {

using codegen::LoopKind;
using codegen::ReduceOp;

struct ScanAttrs {
  int64_t dim;
  static constexpr auto fields() { return field_list(field::number<&ScanAttrs::dim>("dim")); }
};

// A 0-dim tensor is one row of one element.
Dims scan_dims(const OpCall& call) { return call[0].ndim() == 0 ? Dims{} : Dims{call.attrs.as<ScanAttrs>().dim}; }

DType total_dtype(DType dtype) { return is_floating(dtype) ? dtype : DType::i64; }

std::string scan_letters(const OpCall& call) {
  return facets::dim_letters(call[0].ndim(), call[0].ndim() == 0 ? 0 : 1u << call.attrs.as<ScanAttrs>().dim);
}

std::vector<Sample> scan_samples(std::span<const DType> dtypes, double lo, double hi) {
  std::vector<Sample> samples;
  const auto add = [&](std::string name, const Tensor& x, int64_t dim) {
    samples.push_back({std::move(name), {x}, Attrs::of(ScanAttrs{dim})});
  };
  for (const DType dtype : dtypes)
    add(fmt::format("rows_{}", name_of(dtype)), facets::sample_tensor(3, {3, 19}, dtype, lo, hi), 1);
  const auto make = [&](const Extents& sizes) { return facets::sample_tensor(4, sizes, dtypes[0], lo, hi); };
  add("columns", make({7, 5}), 0);
  add("middle", make({2, 9, 3}), 1);
  add("strided", facets::strided_copy(make({3, 8})), 1);
  add("one_element", make({1}), 0);
  add("scalar", make({}), 0);
  add("empty", make({3, 0}), 1);
  return samples;
}

// ---- cumsum and cumprod ---------------------------------------------------------------------------------------------

void infer_total(const OpCall& call, OutputMetas& out) { out.add(total_dtype(call[0].dtype()), call[0].sizes()); }

template <ReduceOp op>
void build_total(RecipeBuilder& b) {
  b.out(b.reduce(op, cast(b.in(0), compute_dtype(b.output_dtypes[0]))));
}

template <ReduceOp op>
void total_reference(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor& x = call[0];
  std::vector<std::vector<int64_t>> targets;  // of the rows of the dense output
  rows::for_each_row(outputs[0], scan_dims(call),
                     [&](int64_t, const std::vector<int64_t>& at) { targets.push_back(at); });
  rows::for_each_row(x, scan_dims(call), [&](int64_t row, const std::vector<int64_t>& offsets) {
    double total = op == ReduceOp::sum ? -0.0 : 1.0;
    uint64_t integer = op == ReduceOp::sum ? 0 : 1;
    for (size_t i = 0; i < offsets.size(); ++i) {
      const int64_t target = targets[static_cast<size_t>(row)][i];
      if (is_floating(x.dtype())) {
        const double v = facets::read_double(x, offsets[i]);
        facets::write_double(outputs[0], target, total = op == ReduceOp::sum ? total + v : total * v);
      } else {
        const uint64_t v = static_cast<uint64_t>(facets::read_int64(x, offsets[i]));
        integer = op == ReduceOp::sum ? integer + v : integer * v;
        facets::write_int64(outputs[0], target, static_cast<int64_t>(integer));
      }
    }
  });
}

// The running sum from the end.
Tensor cumsum_back(const Tensor& x, int64_t dim) {
  return x.ndim() == 0 ? x : flip(cumsum(flip(x, {dim}), dim), {dim});
}

void cumsum_vjp(const VjpCall& c, std::span<Tensor> grads) {
  if (c.grads[0].defined())
    grads[0] = cast(cumsum_back(c.grads[0], c.attrs.as<ScanAttrs>().dim), c.input_metas[0].dtype);
}

// Before the first zero: sum over i >= k of g_i y_i, by x_k. At it: the same sum of the products without it. Behind: 0.
void cumprod_vjp(const VjpCall& c, std::span<Tensor> grads) {
  if (!c.grads[0].defined()) return;
  const int64_t dim = c.attrs.as<ScanAttrs>().dim;
  const Tensor &g = c.grads[0], &x = c.inputs[0], &y = c.outputs[0];
  const Tensor is_zero = eq(x, 0.0);
  const Tensor zeros = cumsum(is_zero, dim);
  const Tensor is_first = bit_and(is_zero, eq(zeros, 1));
  const Tensor without = cumsum_back(mul(g, cumprod(where(is_first, 1.0, x), dim)), dim);
  const Tensor before = truediv(cumsum_back(mul(g, y), dim), where(is_zero, 1.0, x));
  grads[0] = cast(where(is_first, without, where(eq(zeros, 0), before, 0.0)), c.input_metas[0].dtype);
}

constexpr DType kTotalDTypes[] = {DType::f32, DType::f64, DType::bf16, DType::i64, DType::u8, DType::boolean};

const OpDef kCumsum{
    .name = "cumsum",
    .num_inputs = 1,
    .infer = infer_total,
    .reference = total_reference<ReduceOp::sum>,
    .gradient = {.vjp = cumsum_vjp},
    .recipe = {.kind = LoopKind::scan, .build = build_total<ReduceOp::sum>, .row_dims = scan_dims},
    .sharding = [](const OpCall& call) { return fmt::format("x[{0}] -> y[{0}] | | lin", scan_letters(call)); },
    .samples = [] { return scan_samples(kTotalDTypes, -2, 2); },
};

const OpDef kCumprod{
    .name = "cumprod",
    .num_inputs = 1,
    .infer = infer_total,
    .reference = total_reference<ReduceOp::prod>,
    .gradient = {.vjp = cumprod_vjp, .saves_inputs = 1, .saves_outputs = 1},
    .recipe = {.kind = LoopKind::scan, .build = build_total<ReduceOp::prod>, .row_dims = scan_dims},
    .sharding = [](const OpCall& call) { return fmt::format("#x[{0}] -> y[{0}] | |", scan_letters(call)); },
    .samples =
        [] {
          std::vector<Sample> samples = scan_samples(kTotalDTypes, 0.5, 1.6);
          const Tensor zeros = Tensor::of<float>({1, 2, 3, 4, 5, 0, 2, 3, 1, 0, 2, 0}, {3, 4});
          samples.push_back({"zeros", {zeros}, Attrs::of(ScanAttrs{1})});
          return samples;
        },
};

// ---- cummax and cummin ----------------------------------------------------------------------------------------------

void infer_extreme(const OpCall& call, OutputMetas& out) {
  out.add(call[0].dtype(), call[0].sizes());
  out.add(DType::i64, call[0].sizes());
}

template <bool maximum>
void build_extreme(RecipeBuilder& b) {
  const Expr x = cast(b.in(0), b.call[0].dtype() == DType::boolean ? DType::i32 : compute_dtype(b.call[0].dtype()));
  b.out(b.reduce(maximum ? ReduceOp::max : ReduceOp::min, x));
  b.out(b.reduce(maximum ? ReduceOp::argmax : ReduceOp::argmin, x));
}

template <bool maximum>
void extreme_reference(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor& x = call[0];
  std::vector<std::vector<int64_t>> targets;
  rows::for_each_row(outputs[0], scan_dims(call),
                     [&](int64_t, const std::vector<int64_t>& at) { targets.push_back(at); });
  rows::for_each_row(x, scan_dims(call), [&](int64_t row, const std::vector<int64_t>& offsets) {
    size_t best = 0;
    for (size_t i = 0; i < offsets.size(); ++i) {
      const int64_t target = targets[static_cast<size_t>(row)][i];
      if (is_floating(x.dtype())) {
        const double v = facets::read_double(x, offsets[i]), b = facets::read_double(x, offsets[best]);
        if (!std::isnan(b) && (std::isnan(v) || (maximum ? v > b : v < b))) best = i;
        facets::write_double(outputs[0], target, facets::read_double(x, offsets[best]));
      } else {
        const int64_t v = facets::read_int64(x, offsets[i]), b = facets::read_int64(x, offsets[best]);
        if (maximum ? v > b : v < b) best = i;
        facets::write_int64(outputs[0], target, facets::read_int64(x, offsets[best]));
      }
      facets::write_int64(outputs[1], target, static_cast<int64_t>(best));
    }
  });
}

void extreme_vjp(const VjpCall& c, std::span<Tensor> grads) {
  const Tensor& g = c.grads[0];
  if (!g.defined()) return;
  const OutputMeta& meta = c.input_metas[0];
  if (meta.sizes.ndim() == 0) grads[0] = cast(g, meta.dtype);
  else
    grads[0] =
        cast(scatter_add(full_beside(g, meta.sizes, 0.0, g.dtype()), c.attrs.as<ScanAttrs>().dim, c.outputs[1], g),
             meta.dtype);
}

std::vector<Sample> extreme_samples() {
  constexpr DType dtypes[] = {DType::f32, DType::f64, DType::bf16, DType::i64, DType::u8, DType::boolean};
  std::vector<Sample> samples = scan_samples(dtypes, -5, 5);
  const Tensor special = Tensor::of<float>({1, 1, 3, 3, 2, NAN, 5, NAN, -INFINITY, 0.0f, -0.0f, INFINITY}, {3, 4});
  samples.push_back({"nan_ties_infinity", {special}, Attrs::of(ScanAttrs{1})});
  constexpr int64_t most = std::numeric_limits<int64_t>::max(), least = std::numeric_limits<int64_t>::min();
  samples.push_back({"extreme_i64",
                     {Tensor::of<int64_t>({0, most - 1, most, most, least, least + 1, least, 1}, {2, 4})},
                     Attrs::of(ScanAttrs{1})});
  return samples;
}

template <bool maximum>
OpDef extreme_op(const char* name) {
  return {
      .name = name,
      .num_inputs = 1,
      .num_outputs = 2,
      .infer = infer_extreme,
      .reference = extreme_reference<maximum>,
      .gradient = {.vjp = extreme_vjp, .saves_outputs = 2},
      .recipe = {.kind = LoopKind::scan, .build = build_extreme<maximum>, .row_dims = scan_dims},
      .sharding = [](const OpCall& call) { return fmt::format("#x[{0}] -> v[{0}] #i[{0}] | |", scan_letters(call)); },
      .samples = extreme_samples,
      .tolerance = {0, 0}};
}
const OpDef kCummax = extreme_op<true>("cummax");
const OpDef kCummin = extreme_op<false>("cummin");

Attrs attrs_for(const Tensor& x, int64_t dim, const char* where) {
  return Attrs::of(ScanAttrs{normalize_dim(dim, std::max(x.ndim(), 1), where)});
}

std::pair<Tensor, Tensor> two(const OpDef& op, const Tensor& x, int64_t dim) {
  Tensor outputs[2];
  apply(op, {&x, 1}, attrs_for(x, dim, op.name), outputs);
  return {outputs[0], outputs[1]};
}

}  // namespace

Tensor cumsum(const Tensor& x, int64_t dim) { return call_op(kCumsum, attrs_for(x, dim, "cumsum"), x); }
Tensor cumprod(const Tensor& x, int64_t dim) { return call_op(kCumprod, attrs_for(x, dim, "cumprod"), x); }
std::pair<Tensor, Tensor> cummax(const Tensor& x, int64_t dim) { return two(kCummax, x, dim); }
std::pair<Tensor, Tensor> cummin(const Tensor& x, int64_t dim) { return two(kCummin, x, dim); }

}  // namespace tutti

TUTTI_OPS(scan, &kCumsum, &kCumprod, &kCummax, &kCummin)
