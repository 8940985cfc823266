#include "tutti/ops/logcumsumexp.h"

#include <cmath>
#include <limits>

#include "tutti/ops/binary.h"
#include "tutti/ops/bitwise.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/decayed_cumsum.h"
#include "tutti/ops/engine/dim_attrs.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/engine/row_ops.h"
#include "tutti/ops/pad.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/softmax_rows/nodes.h"
#include "tutti/ops/softmax_rows/reference.h"
#include "tutti/ops/unary.h"
#include "tutti/ops/where.h"

namespace tutti {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A 0-dim tensor is one row of one element.
Dims scan_dims(const OpCall& call) { return call[0].ndim() == 0 ? Dims{} : Dims{call.attrs.as<DimAttrs>().dim}; }

void build(RecipeBuilder& b) {
  const auto [m, r] = b.softmax_rest(b.in(0), codegen::TreeKind::halving);
  b.out(logsumexp_of({m, r}));
}

// Every sum by itself.
void reference(const OpCall& call, std::span<const Tensor> outputs) {
  std::vector<std::vector<int64_t>> targets;
  rows::for_each_row(outputs[0], scan_dims(call),
                     [&](int64_t, const std::vector<int64_t>& at) { targets.push_back(at); });
  rows::for_each_row(call[0], scan_dims(call), [&](int64_t row, const std::vector<int64_t>& offsets) {
    for (size_t i = 0; i < offsets.size(); ++i) {
      const RestOfRow all = rest_of_row(static_cast<int64_t>(i) + 1, [&](int64_t j) {
        return facets::read_double(call[0], offsets[static_cast<size_t>(j)]);
      });
      facets::write_double(outputs[0], targets[static_cast<size_t>(row)][i], all.logsumexp());
    }
  });
}

// dx_j = exp(x_j - y_j) s_j, where s_j = sum over i >= j of g_i exp(y_j - y_i) = g_j + exp(y_j - y_(j + 1)) s_(j + 1).
// No exponent is positive, and no logarithm of g is needed, so g may have any sign and the gradient can be
// differentiated again.
void vjp(const VjpCall& c, std::span<Tensor> grads) {
  if (!c.grads[0].defined()) return;
  const DType dtype = c.input_metas[0].dtype, wide = compute_dtype(dtype);
  const int64_t dim = c.attrs.as<DimAttrs>().dim;
  const Tensor x = cast(c.inputs[0], wide), g = cast(c.grads[0], wide);
  const Tensor y = wide == dtype ? c.outputs[0] : logcumsumexp(x, dim);  // not rounded to the narrow float
  const Tensor share = exp(where(eq(y, -kInfinity), -kInfinity, sub(x, y)));
  if (x.ndim() == 0) {
    grads[0] = cast(mul(share, g), dtype);
    return;
  }
  const Tensor before = slice(pad(y, dim, 1, 0, -kInfinity), dim, 0, y.size(dim));
  const Tensor same_infinity = bit_and(isinf(before), eq(before, y));
  const Tensor decay = exp(where(same_infinity, 0.0, sub(before, y)));
  grads[0] = cast(mul(share, decayed_cumsum(g, decay, dim, true)), dtype);
}

std::vector<Sample> samples() {
  std::vector<Sample> samples;
  const auto add = [&](std::string name, const Tensor& x, int64_t dim) {
    samples.push_back({std::move(name), {x}, Attrs::of(DimAttrs{dim})});
  };
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16})
    add(fmt::format("rows_{}", name_of(dtype)), facets::sample_tensor(3, {3, 19}, dtype, -6, 6), 1);
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  add("columns", facets::sample_tensor(4, {7, 5}), 0);
  add("middle", facets::sample_tensor(4, {2, 9, 3}), 1);
  add("strided", facets::strided_copy(facets::sample_tensor(4, {3, 8})), 1);
  add("far_apart", facets::sample_tensor(5, {2, 12}, DType::f32, -900, 900), 1);
  add("infinite", Tensor::of<float>({-inf, -inf, 1, 2, 1, inf, -inf, 3, 1, nan, 2, inf}, {3, 4}), 1);
  add("one_element", facets::sample_tensor(4, {1}), 0);
  add("scalar", facets::sample_tensor(4, {}), 0);
  add("empty", facets::sample_tensor(4, {3, 0}), 1);
  return samples;
}

const OpDef kLogcumsumexp{
    .name = "logcumsumexp",
    .num_inputs = 1,
    .infer = [](const OpCall& call, OutputMetas& out) { out.add(call[0].dtype(), call[0].sizes()); },
    .reference = reference,
    .gradient = {.vjp = vjp, .saves_inputs = 1, .saves_outputs = 1},
    .recipe = {.kind = codegen::LoopKind::scan, .build = build, .row_dims = scan_dims},
    .sharding =
        [](const OpCall& call) {
          const uint32_t whole = call[0].ndim() == 0 ? 0 : 1u << call.attrs.as<DimAttrs>().dim;
          return fmt::format("#x[{0}] -> y[{0}] | |", facets::dim_letters(call[0].ndim(), whole));
        },
    // An exponential and a logarithm per element.
    .cost = [](const OpCall& call) -> Cost {
      return {.flops = 40 * static_cast<double>(call[0].numel()), .bytes = 2 * static_cast<double>(call[0].nbytes())};
    },
    .samples = samples,
};

}  // namespace

Tensor logcumsumexp(const Tensor& x, int64_t dim) {
  TUTTI_CHECK(is_floating(x.dtype()), "logcumsumexp: x is {}; expected floats, cast() it", describe(x));
  return call_op(kLogcumsumexp, Attrs::of(DimAttrs{normalize_dim(dim, std::max(x.ndim(), 1), "logcumsumexp")}), x);
}

}  // namespace tutti

TUTTI_OPS(logcumsumexp, &kLogcumsumexp)
