#include "tutti/ops/softmax.h"

#include <cmath>
#include <limits>

#include "tutti/ops/binary.h"
#include "tutti/ops/engine/dim_attrs.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/softmax_rows/nodes.h"
#include "tutti/ops/softmax_rows/reference.h"
#include "tutti/ops/squeeze.h"
#include "tutti/ops/unary.h"

namespace tutti {
namespace {

using codegen::LoopKind;
using codegen::ReduceOp;
using facets::values;

extern const OpDef kSoftmax, kSoftmaxBackward, kLogSoftmax, kLogSoftmaxBackward, kLogsumexp;

// The attrs of all of them: the dim that rows lie along, normalized.
int64_t dim_of(const OpCall& call) { return call.attrs.as<DimAttrs>().dim; }

void infer_same(const OpCall& call, OutputMetas& out) { out.add(call[0].dtype(), call[0].sizes()); }
void infer_row(const OpCall& call, OutputMetas& out) {
  Shape sizes = call[0].sizes();
  sizes[static_cast<size_t>(dim_of(call))] = 1;
  out.add(call[0].dtype(), sizes);
}
Dims row_dims(const OpCall& call) { return {dim_of(call)}; }

void build_softmax(RecipeBuilder& b) {
  const Expr x = b.in(0);
  const auto [m, l] = b.softmax_stats(x);
  b.out(apply_scalar(ScalarOp::exp, x - m) / l);
}
void build_log_softmax(RecipeBuilder& b) {
  const Expr x = b.in(0);
  const auto [m, r] = b.softmax_rest(x);
  b.out((x - m) - cast(apply_scalar(ScalarOp::log1p, wide(r)), x.dtype()));
}
void build_logsumexp(RecipeBuilder& b) {
  const auto [m, r] = b.softmax_rest(b.in(0));
  b.out(logsumexp_of({m, r}));
}
// dx = y (g - sum(g y))
void build_softmax_backward(RecipeBuilder& b) {
  const Expr g = cast(b.in(0), b.in(1).dtype()), y = b.in(1);
  b.out(y * (g - b.reduce(ReduceOp::sum, g * y)));
}
// A logarithm above this is of a probability above 0.6, which only one class of a row can have.
constexpr double kLikely = -0.5;
// dx = g - exp(y) sum(g). For a likely class this is g (1 - exp(y)) - exp(y) (sum of the g of all others), so that
// nothing cancels where it has nearly all of g and nearly all of the probability.
void build_log_softmax_backward(RecipeBuilder& b) {
  const Expr y = b.in(1), g = cast(b.in(0), y.dtype()), none = b.constant(-0.0, y.dtype());
  const Expr is_likely = apply_scalar(ScalarOp::gt, y, b.constant(kLikely, y.dtype())),
             minus_p = -apply_scalar(ScalarOp::exp, y);
  const Expr others = b.reduce(ReduceOp::sum, where(is_likely, none, g)),
             likely = b.reduce(ReduceOp::sum, where(is_likely, g, none));
  const Expr of_likely = apply_scalar(ScalarOp::fma, minus_p, others, g * -apply_scalar(ScalarOp::expm1, y));
  b.out(where(is_likely, of_likely, apply_scalar(ScalarOp::fma, minus_p, others + likely, g)));
}

// One row among the elements of a dense tensor: x[first], x[first + step], ...
struct Row {
  int64_t index, first, step, n;
};
template <class Visit>
void for_each_row(const OpCall& call, const Tensor& x, Visit visit) {
  const Extents sizes = x.extents();
  const int64_t dim = dim_of(call), n = sizes[static_cast<size_t>(dim)];
  int64_t step = 1;
  for (int64_t d = dim + 1; d < x.ndim(); ++d) step *= sizes[static_cast<size_t>(d)];
  const int64_t rows = n == 0 ? 0 : x.numel() / n;
  for (int64_t r = 0; r < rows; ++r) visit(Row{r, r / step * step * n + r % step, step, n});
}
template <class Visit>
void for_each_place(const Row& row, Visit visit) {
  for (int64_t i = 0; i < row.n; ++i) visit(row.first + i * row.step);
}

RestOfRow rest_of(const std::vector<double>& x, const Row& row) {
  return rest_of_row(row.n, [&](int64_t i) { return x[static_cast<size_t>(row.first + i * row.step)]; });
}

void reference_softmax(const OpCall& call, std::span<const Tensor> outputs) {
  const auto x = values(call[0], call[0].extents());
  for_each_row(call, call[0], [&](const Row& row) {
    const RestOfRow rest = rest_of(x, row);
    for_each_place(row, [&](int64_t i) { facets::write_double(outputs[0], i, rest.probability_less(x[i], false)); });
  });
}
void reference_log_softmax(const OpCall& call, std::span<const Tensor> outputs) {
  const auto x = values(call[0], call[0].extents());
  for_each_row(call, call[0], [&](const Row& row) {
    const RestOfRow rest = rest_of(x, row);
    for_each_place(row, [&](int64_t i) { facets::write_double(outputs[0], i, -rest.surprise(x[i])); });
  });
}
void reference_logsumexp(const OpCall& call, std::span<const Tensor> outputs) {
  const auto x = values(call[0], call[0].extents());
  for (int64_t r = 0; r < outputs[0].numel(); ++r)
    facets::write_double(outputs[0], r, -std::numeric_limits<double>::infinity());
  for_each_row(call, call[0],
               [&](const Row& row) { facets::write_double(outputs[0], row.index, rest_of(x, row).logsumexp()); });
}
void reference_softmax_backward(const OpCall& call, std::span<const Tensor> outputs) {
  const auto g = values(call[0], call[0].extents()), y = values(call[1], call[1].extents());
  for_each_row(call, call[1], [&](const Row& row) {
    double sum = 0;
    for_each_place(row, [&](int64_t i) { sum += g[i] * y[i]; });
    for_each_place(row, [&](int64_t i) { facets::write_double(outputs[0], i, y[i] * (g[i] - sum)); });
  });
}
void reference_log_softmax_backward(const OpCall& call, std::span<const Tensor> outputs) {
  const auto g = values(call[0], call[0].extents()), y = values(call[1], call[1].extents());
  for_each_row(call, call[1], [&](const Row& row) {
    double others = -0.0, likely = -0.0;
    for_each_place(row, [&](int64_t i) { (y[i] > kLikely ? likely : others) += g[i]; });
    for_each_place(row, [&](int64_t i) {
      const double of_likely = -g[i] * std::expm1(y[i]) - std::exp(y[i]) * others,
                   plain = g[i] - std::exp(y[i]) * (others + likely);
      facets::write_double(outputs[0], i, y[i] > kLikely ? of_likely : plain);
    });
  });
}

void vjp_softmax(const VjpCall& call, std::span<Tensor> grads) {
  if (call.grads[0].defined()) grads[0] = call_op(kSoftmaxBackward, call.attrs, call.grads[0], call.outputs[0]);
}
void vjp_log_softmax(const VjpCall& call, std::span<Tensor> grads) {
  if (call.grads[0].defined()) grads[0] = call_op(kLogSoftmaxBackward, call.attrs, call.grads[0], call.outputs[0]);
}
void vjp_logsumexp(const VjpCall& call, std::span<Tensor> grads) {
  // Not exp(x - y): y is rounded at its own size, and its error would be a relative one here.
  if (call.grads[0].defined()) grads[0] = mul(call.grads[0], call_op(kSoftmax, call.attrs, call.inputs[0]));
}
void infer_backward(const OpCall& call, OutputMetas& out) { out.add(call[1].dtype(), call[1].sizes()); }

std::string sharding(const OpCall& call) {
  const std::string row = facets::dim_letters(call[0].ndim(), 1u << dim_of(call));
  std::string inputs, out = row;
  for (size_t i = 0; i < call.inputs.size(); ++i) inputs += fmt::format("#x[{}] ", row);
  if (&call.op == &kLogsumexp) out[static_cast<size_t>(dim_of(call))] = '1';
  return fmt::format("{}-> y[{}] | |", inputs, out);
}

template <int kInputs>
std::vector<Sample> samples() {
  std::vector<Sample> list;
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    for (const auto& [sizes, dim] : std::vector<std::pair<Extents, int64_t>>{{{5, 7}, 1},
                                                                             {{3, 2, 33}, 2},
                                                                             {{2, 1300}, 1},
                                                                             {{1}, 0},
                                                                             {{2, 1}, 1},
                                                                             {{35, 21}, 0},
                                                                             {{3, 33, 5}, 1},
                                                                             {{1300, 4}, 0},
                                                                             {{7, 3}, 0},
                                                                             {{1, 6}, 0}}) {
      Sample s{fmt::format("{}_{}", name_of(dtype), list.size()), {}, Attrs::of(DimAttrs{dim})};
      for (int i = 0; i < kInputs; ++i)
        s.inputs.push_back(
            facets::sample_tensor(static_cast<uint64_t>(i) + 3, sizes, dtype, i ? 0.01 : -6.0, i ? 0.9 : 6.0));
      list.push_back(s);
    }
  }
  return list;
}

const OpDef kSoftmax{.name = "softmax",
                     .num_inputs = 1,
                     .infer = infer_same,
                     .reference = reference_softmax,
                     .gradient = {.vjp = vjp_softmax, .saves_outputs = 1},
                     .recipe = {.kind = LoopKind::row, .build = build_softmax, .row_dims = row_dims},
                     .sharding = sharding,
                     .samples = samples<1>};
const OpDef kLogSoftmax{.name = "log_softmax",
                        .num_inputs = 1,
                        .infer = infer_same,
                        .reference = reference_log_softmax,
                        .gradient = {.vjp = vjp_log_softmax, .saves_outputs = 1},
                        .recipe = {.kind = LoopKind::row, .build = build_log_softmax, .row_dims = row_dims},
                        .sharding = sharding,
                        .samples = samples<1>};
const OpDef kLogsumexp{.name = "logsumexp",
                       .num_inputs = 1,
                       .infer = infer_row,
                       .reference = reference_logsumexp,
                       .gradient = {.vjp = vjp_logsumexp, .saves_inputs = 1},
                       .recipe = {.kind = LoopKind::row, .build = build_logsumexp, .row_dims = row_dims, .per_row = 1},
                       .sharding = sharding,
                       .samples = samples<1>};
constexpr const char* kOnce =
    "gradients of this gradient are not defined; write it with exp, sum and truediv to have them";
const OpDef kSoftmaxBackward{.name = "softmax_backward",
                             .num_inputs = 2,
                             .infer = infer_backward,
                             .reference = reference_softmax_backward,
                             .gradient = {.none = kOnce},
                             .recipe = {.kind = LoopKind::row, .build = build_softmax_backward, .row_dims = row_dims},
                             .sharding = sharding,
                             .samples = samples<2>,
                             .tolerance = {.f32 = 1e-4}};
const OpDef kLogSoftmaxBackward{
    .name = "log_softmax_backward",
    .num_inputs = 2,
    .infer = infer_backward,
    .reference = reference_log_softmax_backward,
    .gradient = {.none = kOnce},
    .recipe = {.kind = LoopKind::row, .build = build_log_softmax_backward, .row_dims = row_dims},
    .sharding = sharding,
    .samples = samples<2>,
    .tolerance = {.f32 = 1e-4}};

Tensor along(const OpDef& op, const Tensor& x, int64_t dim) {
  TUTTI_CHECK(is_floating(x.dtype()), "{}: needs a float tensor, got {}", op.name, describe(x));
  return call_op(op, Attrs::of(DimAttrs{normalize_dim(dim, x.ndim(), op.name)}), x);
}

}  // namespace

Tensor softmax(const Tensor& x, int64_t dim) { return along(kSoftmax, x, dim); }
Tensor log_softmax(const Tensor& x, int64_t dim) { return along(kLogSoftmax, x, dim); }
Tensor logsumexp(const Tensor& x, int64_t dim, bool keepdim) {
  const Tensor y = along(kLogsumexp, x, dim);
  return keepdim ? y : squeeze(y, dim);
}

}  // namespace tutti

TUTTI_OPS(softmax, &::tutti::kSoftmax, &::tutti::kLogSoftmax, &::tutti::kLogsumexp, &::tutti::kSoftmaxBackward,
          &::tutti::kLogSoftmaxBackward)
