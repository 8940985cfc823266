#include "tutti/ops/pairwise_dots.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/ops/engine/eager.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/indexing/bags.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti {
namespace {

void check_features(const char* what, const Tensor& x) {
  TUTTI_CHECK(x.ndim() == 3 && is_floating(x.dtype()), "{}: x is {}; expected floats [batch, features, columns]", what,
              describe(x));
}

template <class Value>
using Wide = std::conditional_t<std::is_same_v<Value, double>, double, float>;

template <class Value>
void store(Value* target, Wide<Value> value) {
  if constexpr (std::is_arithmetic_v<Value>) *target = value;
  else store_from_double(target, dtype_of<Value>, static_cast<double>(value));
}

SymInt number_of_pairs(const SymInt& features) { return floordiv(features * (features - 1), 2); }
// Where the pairs of row i begin.
int64_t first_pair(int64_t i) { return i * (i - 1) / 2; }

void infer(const OpCall& call, OutputMetas& out) {
  check_features("pairwise_dots", call[0]);
  out.add(call[0].dtype(), Shape{call[0].size(0), number_of_pairs(call[0].size(1))});
}

void infer_backward(const OpCall& call, OutputMetas& out) {
  check_features("pairwise_dots_backward", call[1]);
  const Shape pairs{call[1].size(0), number_of_pairs(call[1].size(1))};
  TUTTI_CHECK(
      is_floating(call[0].dtype()) && call[0].sizes() == pairs,
      "pairwise_dots_backward: the gradient is {} and x {}; expected floats [batch, features (features - 1) / 2]",
      describe(call[0]), describe(call[1]));
  out.add(compute_dtype(call[1].dtype()), call[1].sizes());
}

void reference(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor& x = call[0];
  const int64_t B = x.extents()[0], F = x.extents()[1], D = x.extents()[2];
  int64_t at = 0;
  for (int64_t b = 0; b < B; ++b)
    for (int64_t i = 1; i < F; ++i)
      for (int64_t j = 0; j < i; ++j) {
        double dot = facets::kSumIdentity;
        for (int64_t d = 0; d < D; ++d)
          dot += facets::read_double(x, facets::offset_at(x, {b, i, d})) *
                 facets::read_double(x, facets::offset_at(x, {b, j, d}));
        facets::write_double(outputs[0], at++, dot);
      }
}

void reference_backward(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor &grad = call[0], &x = call[1];
  const int64_t B = x.extents()[0], F = x.extents()[1], D = x.extents()[2];
  int64_t at = 0;
  for (int64_t b = 0; b < B; ++b)
    for (int64_t i = 0; i < F; ++i)
      for (int64_t d = 0; d < D; ++d) {
        double sum = facets::kSumIdentity;
        for (int64_t j = 0; j < F; ++j) {
          if (j == i) continue;
          const int64_t pair = first_pair(std::max(i, j)) + std::min(i, j);
          sum += facets::read_double(grad, facets::offset_at(grad, {b, pair})) *
                 facets::read_double(x, facets::offset_at(x, {b, j, d}));
        }
        facets::write_double(outputs[0], at++, sum);
      }
}

// Writes to sums[0, width) the sum of factor(k) * row(k)[0, width) over [begin, end): chains of a leaf, halved. Rows
// without a factor, which is null there, are left out.
template <class Real, class Factor, class Row>
void add_rows(int64_t begin, int64_t end, int64_t width, const Factor& factor, const Row& row, Real* sums) {
  const int64_t n = end - begin;
  if (n > codegen::contraction_leaf()) {
    const int64_t middle = begin + (n + 1) / 2;
    std::vector<Real> second(static_cast<size_t>(width));
    add_rows(begin, middle, width, factor, row, sums);
    add_rows(middle, end, width, factor, row, second.data());
    for (int64_t w = 0; w < width; ++w) sums[w] += second[static_cast<size_t>(w)];
    return;
  }
  std::fill_n(sums, width, static_cast<Real>(facets::kSumIdentity));
  for (int64_t k = begin; k < end; ++k) {
    const Real* const by = factor(k);
    if (by == nullptr) continue;
    const Real value = *by;
    const Real* const values = row(k);
    for (int64_t w = 0; w < width; ++w) sums[w] = std::fma(value, values[w], sums[w]);
  }
}

// Calls body(b) for the examples, on several threads when there is much to do.
template <class Body>
void for_each_example(const Tensor& x, const Body& body) {
  const int64_t work = std::max<int64_t>(x.extents()[1] * x.extents()[1] * x.extents()[2], 1);
  ThreadPool::current().parallel_for(x.extents()[0], std::max<int64_t>(kParallelGrain / work, 1), body);
}

// Kernels and not recipes: a batched product packs its operands for each example, which takes longer than products as
// small as these.
template <class Value>
void run(const Tensor& input, const Tensor& output) {
  using Real = Wide<Value>;
  const Tensor x = facets::dense_as(input, dtype_of<Real>);
  const int64_t F = x.extents()[1], D = x.extents()[2];
  for_each_example(x, [&](int64_t begin, int64_t end) {
    std::vector<Real> columns(static_cast<size_t>(F * D)), sums(static_cast<size_t>(F));
    for (int64_t b = begin; b < end; ++b) {
      const Real* const rows = x.data<Real>() + b * F * D;
      Value* const to = static_cast<Value*>(output.raw_data()) + b * output.extents()[1];
      for (int64_t i = 0; i < F; ++i)
        for (int64_t d = 0; d < D; ++d) columns[static_cast<size_t>(d * F + i)] = rows[i * D + d];
      for (int64_t i = 1; i < F; ++i) {
        add_rows<Real>(
            0, D, i, [&](int64_t d) { return rows + i * D + d; }, [&](int64_t d) { return columns.data() + d * F; },
            sums.data());
        for (int64_t j = 0; j < i; ++j) store(to + first_pair(i) + j, sums[static_cast<size_t>(j)]);
      }
    }
  });
}

template <class Real>
void run_backward(const Tensor& grad_input, const Tensor& input, const Tensor& output) {
  const Tensor grad = facets::dense_as(grad_input, dtype_of<Real>), x = facets::dense_as(input, dtype_of<Real>);
  const int64_t F = x.extents()[1], D = x.extents()[2];
  for_each_example(x, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const Real* const rows = x.data<Real>() + b * F * D;
      const Real* const pairs = grad.data<Real>() + b * grad.extents()[1];
      for (int64_t i = 0; i < F; ++i) {
        const auto factor = [&](int64_t j) -> const Real* {
          return j == i ? nullptr : pairs + first_pair(std::max(i, j)) + std::min(i, j);
        };
        add_rows<Real>(0, F, D, factor, [&](int64_t j) { return rows + j * D; }, output.data<Real>() + (b * F + i) * D);
      }
    }
  });
}

void kernel(const OpCall& call, std::span<const Tensor> outputs) {
  visit_dtype(call[0].dtype(), [&]<class Value>() {
    if constexpr (!std::is_integral_v<Value>) run<Value>(call[0], outputs[0]);
  });
}
void kernel_backward(const OpCall& call, std::span<const Tensor> outputs) {
  if (outputs[0].dtype() == DType::f32) run_backward<float>(call[0], call[1], outputs[0]);
  else run_backward<double>(call[0], call[1], outputs[0]);
}

// x is [B, F, D]. The forward multiplies a pair once, the backward twice.
Cost cost_of_pairs(const Tensor& x, double products) {
  const double B = static_cast<double>(x.extents()[0]), F = static_cast<double>(x.extents()[1]),
               D = static_cast<double>(x.extents()[2]);
  const double pairs = B * F * std::max(F - 1, 0.0) / 2;
  return {.flops = 2 * products * pairs * D,
          .bytes = (products * B * F * D + pairs) * static_cast<double>(itemsize(x.dtype()))};
}

std::vector<Sample> samples() {
  return {{"f32", {facets::sample_tensor(1, {5, 4, 6})}, {}},
          {"f64", {facets::sample_tensor(2, {3, 7, 2}, DType::f64)}, {}},
          {"long", {facets::sample_tensor(3, {2, 3, 300})}, {}},
          {"bf16", {facets::sample_tensor(7, {4, 3, 5}, DType::bf16)}, {}},
          {"strided", {facets::strided_copy(facets::sample_tensor(4, {3, 3, 4}))}, {}},
          {"one_row", {facets::sample_tensor(5, {3, 1, 4})}, {}},
          {"empty", {facets::sample_tensor(6, {0, 4, 3})}, {}}};
}
std::vector<Sample> samples_backward() {
  return {{"f32", {facets::sample_tensor(1, {5, 6}), facets::sample_tensor(2, {5, 4, 6})}, {}},
          {"f64", {facets::sample_tensor(3, {3, 21}, DType::f64), facets::sample_tensor(4, {3, 7, 2}, DType::f64)}, {}},
          {"many_rows", {facets::sample_tensor(5, {1, 9870}), facets::sample_tensor(6, {1, 141, 3})}, {}},
          {"one_row", {facets::sample_tensor(7, {3, 0}), facets::sample_tensor(8, {3, 1, 4})}, {}},
          {"empty", {facets::sample_tensor(9, {0, 6}), facets::sample_tensor(10, {0, 4, 3})}, {}}};
}

const OpDef kPairwiseDots{
    .name = "pairwise_dots",
    .num_inputs = 1,
    .infer = infer,
    .reference = reference,
    .gradient = {.vjp =
                     [](const VjpCall& c, std::span<Tensor> grads) {
                       if (c.needs(0) && c.grads[0].defined())
                         grads[0] = pairwise_dots_backward(c.grads[0], c.inputs[0]);
                     },
                 .saves_inputs = 0b1},
    .kernel = kernel,
    .sharding = [](const OpCall&) { return std::string("x[bFD] -> y[bP]"); },
    .cost = [](const OpCall& call) { return cost_of_pairs(call[0], 1); },
    .samples = samples,
};

const OpDef kPairwiseDotsBackward{
    .name = "pairwise_dots_backward",
    .num_inputs = 2,
    .infer = infer_backward,
    .reference = reference_backward,
    .gradient = {.none = "second derivatives of pairwise_dots are not supported; use bmm"},
    .kernel = kernel_backward,
    .sharding = [](const OpCall&) { return std::string("g[bP] x[bFD] -> d[bFD]"); },
    .cost = [](const OpCall& call) { return cost_of_pairs(call[1], 2); },
    .samples = samples_backward,
};

}  // namespace

Tensor pairwise_dots(const Tensor& x) { return call_op(kPairwiseDots, {}, x); }

Tensor pairwise_dots_backward(const Tensor& grad, const Tensor& x) {
  return call_op(kPairwiseDotsBackward, {}, grad, x);
}

}  // namespace tutti

TUTTI_OPS(pairwise_dots, &kPairwiseDots, &kPairwiseDotsBackward)
