// Linear cross entropy in compiled training steps: the bits of an eager run, with gradients from the backward or the
// forward.
#include <gtest/gtest.h>

#include "tests/graph/support/same.h"
#include "tutti/autograd/backward.h"
#include "tutti/graph/compile.h"
#include "tutti/ops.h"
#include "tutti/runtime/trace/profiler.h"

namespace tutti {
namespace {

using graph_test::expect_same;
using graph_test::values;

struct Model {
  Tensor hidden, head;
};
Model model(int64_t F, int64_t V) { return {requires_grad_(values({F, F}, 1)), requires_grad_(values({V, F}, 2))}; }

// The loss, and gradients in the leaves.
Tensor step(const Model& m, const Tensor& x, const Tensor& labels, const Tensor& row_weight, LossGradients gradients,
            double scale) {
  const LinearCrossEntropyOptions options{.row_weight = row_weight, .chunk_rows = 130, .gradients = gradients};
  Tensor loss = linear_cross_entropy(silu(matmul(x, m.hidden)), m.head, labels, options);
  if (scale != 1) loss = mul(loss, scale);
  backward(loss);
  return detach(loss);
}

TEST(CompiledLinearCrossEntropy, TrainingStepsHaveTheBitsOfEagerOnes) {
  for (const LossGradients gradients : {LossGradients::recomputed, LossGradients::in_forward}) {
    for (const double scale : {1.0, 3.0}) {
      const Model mine = model(24, 1100), expected = model(24, 1100);
      const auto f = compile([&](const Tensor& x, const Tensor& labels, const Tensor& w) {
        return step(mine, x, labels, w, gradients, scale);
      });
      for (const int64_t N : {260, 260, 130, 200}) {  // the third size makes the rows a symbol
        const Tensor x = values({N, 24}, static_cast<uint64_t>(N)),
                     labels = facets::sample_tensor(3, {N}, DType::i64, 0, 1100);
        const Tensor row_weight = facets::sample_tensor(4, {N}, DType::f32, 0.1, 1.2);
        facets::write_int64(labels, 1, kIgnoreLabel);
        expect_same(f(x, labels, row_weight), step(expected, x, labels, row_weight, LossGradients::recomputed, scale));
        expect_same(grad_of(mine.hidden), grad_of(expected.hidden));
        expect_same(grad_of(mine.head), grad_of(expected.head));
        for (const Tensor& t : {mine.hidden, mine.head, expected.hidden, expected.head}) set_grad(t, {});
      }
    }
  }
}

// How often the logits of a chunk are computed.
template <class Body>
int products_of_logits(Body body) {
  Profiler profiler;
  EXPECT_TRUE(profiler.start({.filter = TraceFilter::this_thread, .memory = false}).ok());
  body();
  profiler.stop();
  int count = 0;
  for (const TraceHarvest::Thread& thread : profiler.trace().threads) {
    for (int64_t i = 0; i < thread.size; ++i) {
      const TraceEvent& e = (*thread.log)[i];
      count += e.category == TraceCategory::annotation && e.name == std::string("logits");
    }
  }
  return count;
}

TEST(CompiledLinearCrossEntropy, TheGuessOfTheForwardIsRightWhereTheLossIsNotScaled) {
  const Tensor x = values({260, 24}, 5), labels = facets::sample_tensor(3, {260}, DType::i64, 0, 1100),
               row_weight = facets::sample_tensor(4, {260}, DType::f32, 0.1, 1.2);
  for (const double scale : {1.0, 3.0}) {
    const Model m = model(24, 1100);
    const auto f =
        compile([&](const Tensor& a) { return step(m, a, labels, row_weight, LossGradients::in_forward, scale); });
    f(x);
    EXPECT_EQ(products_of_logits([&] { f(x); }) == 2, scale == 1) << f.explain();  // two chunks of 130 rows
  }
}

TEST(CompiledLinearCrossEntropy, ACompiledForwardKeepsItsGradientsForAnEagerBackward) {
  const Model mine = model(12, 300), expected = model(12, 300);
  const Tensor x = values({70, 12}, 5), labels = facets::sample_tensor(3, {70}, DType::i64, 0, 300);
  const auto loss = [&](const Model& m) {
    return linear_cross_entropy(matmul(x, m.hidden), m.head, labels, {.gradients = LossGradients::in_forward});
  };
  const auto f = compile([&](const Tensor&) { return loss(mine); });
  for (int call = 0; call < 2; ++call) {
    backward(f(x));
    backward(loss(expected));
    expect_same(grad_of(mine.hidden), grad_of(expected.hidden));
    expect_same(grad_of(mine.head), grad_of(expected.head));
  }
}

}  // namespace
}  // namespace tutti
