#include "tutti/ops/cross_entropy.h"

#include <atomic>
#include <cmath>

#include "tutti/ops/engine/eager.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/softmax_rows/nodes.h"
#include "tutti/ops/softmax_rows/reference.h"

namespace tutti {
namespace {

using codegen::LoopKind;
using codegen::ReduceOp;
using codegen::TreeKind;

extern const OpDef kCrossEntropy, kCrossEntropyBackward;

std::atomic<int64_t>& leaf_setting() {
  static std::atomic<int64_t> leaf{512};
  return leaf;
}

// Inputs are logits [T, V] and labels [T, 1]; outputs the loss and the statistics m and r, [T, 1] each.
void infer(const OpCall& call, OutputMetas& out) {
  for (int k = 0; k < 3; ++k) out.add(compute_dtype(call[0].dtype()), {call[0].size(0), 1});
}

void check_labels(const OpCall& call) {
  const Tensor& labels = call[&call.op == &kCrossEntropy ? 1 : 2];
  const int64_t classes = call[0].extent(1);
  for (int64_t t = 0; t < labels.extent(0); ++t) {
    const int64_t label = facets::read_int64(labels, t * labels.strides()[0]);
    TUTTI_CHECK(label == kIgnoreLabel || (label >= 0 && label < classes),
                "cross_entropy: label {} at row {} is outside [0, {}); use {} for rows to ignore", label, t, classes,
                kIgnoreLabel);
  }
}

void build(RecipeBuilder& b) {
  const Expr x = b.in(0), label = cast(b.in(1), DType::i64);
  const auto [m, r] = b.softmax_rest(x, TreeKind::halving);
  const Expr hit = apply_scalar(ScalarOp::eq, b.inner_index(), label);
  // One element is the label's logit, all others are the identity of the sum: the sum is exact.
  const Expr target = b.reduce(ReduceOp::sum, where(hit, x, b.constant(-0.0, x.dtype())));
  const Expr ignored = apply_scalar(ScalarOp::eq, label, b.pool.constant_int(kIgnoreLabel, DType::i64));
  b.out(where(ignored, b.constant(0.0, x.dtype()), surprise_of({m, r}, target)));
  b.out(m);
  b.out(r);
}

// d logits = (p - [i == label]) * g. Inputs: logits, g, labels, m, r.
void build_backward(RecipeBuilder& b) {
  const Expr x = b.in(0), g = cast(b.in(1), x.dtype()), label = cast(b.in(2), DType::i64);
  const RestNode all{cast(b.in(3), x.dtype()), cast(b.in(4), x.dtype())};
  const Expr hit = apply_scalar(ScalarOp::eq, b.inner_index(), label);
  const Expr ignored = apply_scalar(ScalarOp::eq, label, b.pool.constant_int(kIgnoreLabel, DType::i64));
  b.out(where(ignored, b.constant(0.0, x.dtype()), probability_less(b, all, x, hit) * g));
}

void infer_backward(const OpCall& call, OutputMetas& out) { out.add(call[0].dtype(), call[0].sizes()); }

RestOfRow rest_of(const double* x, int64_t classes) {
  return rest_of_row(classes, [&](int64_t v) { return x[v]; });
}

void reference(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor& labels = call[1];
  const int64_t classes = call[0].extent(1);
  const std::vector<double> logits = facets::values(call[0], call[0].extents());
  for (int64_t t = 0; t < labels.extent(0); ++t) {
    const int64_t label = facets::read_int64(labels, t * labels.strides()[0]);
    const double* x = logits.data() + t * classes;
    const RestOfRow rest = rest_of(x, classes);
    facets::write_double(outputs[0], t, label == kIgnoreLabel ? 0.0 : rest.surprise(x[label]));
    facets::write_double(outputs[1], t, rest.m);
    facets::write_double(outputs[2], t, rest.r);
  }
}

void reference_backward(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor& labels = call[2];
  const Extents& sizes = call[0].extents();
  const std::vector<double> x = facets::values(call[0], sizes), g = facets::values(call[1], sizes);
  const std::vector<double> m = facets::values(call[3], sizes), r = facets::values(call[4], sizes);
  for (int64_t i = 0; i < call[0].numel(); ++i) {
    const int64_t label = facets::read_int64(labels, i / sizes[1] * labels.strides()[0]);
    const double d = RestOfRow{m[i], r[i]}.probability_less(x[i], i % sizes[1] == label) * g[i];
    facets::write_double(outputs[0], i, label == kIgnoreLabel ? 0.0 : d);
  }
}

void vjp(const VjpCall& call, std::span<Tensor> grads) {
  TUTTI_CHECK(!call.grads[1].defined() && !call.grads[2].defined(), "cross_entropy: the statistics have no gradient");
  if (!call.grads[0].defined() || !call.needs(0)) return;
  grads[0] = call_op(kCrossEntropyBackward, {}, call.inputs[0], call.grads[0], call.inputs[1], call.outputs[1],
                     call.outputs[2]);
}

std::vector<Sample> samples(bool backward) {
  std::vector<Sample> list;
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    for (const Extents& sizes : {Extents{5, 7}, Extents{3, 33}, Extents{2, 1300}, Extents{1, 1}, Extents{0, 4}}) {
      const Tensor x = facets::sample_tensor(3, sizes, dtype, -6, 6);
      const Tensor labels = facets::sample_tensor(4, {sizes[0], 1}, DType::i64, 0, static_cast<double>(sizes[1]));
      if (sizes[0] > 1) facets::write_int64(labels, 1, kIgnoreLabel);
      Sample s{fmt::format("{}_{}", name_of(dtype), list.size()), {x, labels}, {}};
      if (backward) {
        const Tensor m = Tensor::empty({sizes[0], 1}, compute_dtype(dtype)),
                     r = Tensor::empty({sizes[0], 1}, compute_dtype(dtype));
        const std::vector<double> logits = facets::values(x, sizes);
        for (int64_t t = 0; t < sizes[0]; ++t) {
          const RestOfRow rest = rest_of(logits.data() + t * sizes[1], sizes[1]);
          facets::write_double(m, t, rest.m);
          facets::write_double(r, t, rest.r);
        }
        s.inputs = {x, facets::sample_tensor(5, {sizes[0], 1}, compute_dtype(dtype)), labels, m, r};
      }
      list.push_back(s);
    }
  }
  return list;
}

const OpDef kCrossEntropy{
    .name = "cross_entropy",
    .num_inputs = 2,
    .num_outputs = 3,
    .infer = infer,
    .reference = reference,
    .gradient = {.vjp = vjp, .saves_inputs = 0b11, .saves_outputs = 0b110},
    .check = check_labels,
    .recipe = {.kind = LoopKind::row,
               .build = build,
               .per_row = 0b111 | kRowsOnly,
               .leaf = [](const OpCall&) { return class_leaf(); }},
    .sharding = [](const OpCall&) { return std::string("#x[aC] #t[a1] -> y[a1] m[a1] r[a1] | |"); },
    .samples = [] { return samples(false); }};
const OpDef kCrossEntropyBackward{
    .name = "cross_entropy_backward",
    .num_inputs = 5,
    .infer = infer_backward,
    .reference = reference_backward,
    .gradient = {.none = "gradients of this gradient are not defined; write the loss with log_softmax to have them"},
    .check = check_labels,
    .recipe = {.kind = LoopKind::row, .build = build_backward},
    .sharding = [](const OpCall&) { return std::string("#x[aC] g[a1] #t[a1] #m[a1] #r[a1] -> y[aC] | | lin"); },
    .samples = [] { return samples(true); },
    .tolerance = {.f32 = 3e-5}};

}  // namespace

int64_t class_leaf() { return leaf_setting().load(std::memory_order_relaxed); }

ClassLeafScope::ClassLeafScope(int64_t leaf) : previous_(class_leaf()) {
  TUTTI_CHECK(leaf > 0, "class leaf: {} classes; expected at least 1", leaf);
  leaf_setting() = leaf;
}
ClassLeafScope::~ClassLeafScope() { leaf_setting() = previous_; }

Tensor cross_entropy(const Tensor& logits, const Tensor& labels) {
  TUTTI_CHECK(logits.ndim() == 2 && is_floating(logits.dtype()),
              "cross_entropy: logits must be float [tokens, classes], got {}", describe(logits));
  TUTTI_CHECK(labels.ndim() == 1 && is_integral(labels.dtype()) && labels.size(0) == logits.size(0),
              "cross_entropy: labels must be integers [{}], got {}", logits.size(0), describe(labels));
  const Tensor inputs[] = {logits, reshape(labels, {-1, 1})};
  Tensor outputs[3];
  apply(kCrossEntropy, inputs, {}, outputs);
  return reshape(outputs[0], {-1});
}

}  // namespace tutti

TUTTI_OPS(cross_entropy, &::tutti::kCrossEntropy, &::tutti::kCrossEntropyBackward)
