// Gradients of linear cross entropy that its forward computes: the bits of those that the backward computes, and of
// linear and cross entropy apart; what happens when the cotangent is another than the forward took.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/support/same_bits.h"
#include "tutti/autograd/backward.h"
#include "tutti/core/error.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/gather.h"
#include "tutti/ops/linear_cross_entropy.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/sum_to.h"
#include "tutti/ops/unary.h"
#include "tutti/ops/where.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

using Options = LinearCrossEntropyOptions;

struct Problem {
  Tensor x, w, b, labels, class_weight, row_weight;

  Problem(int64_t N, int64_t F, int64_t V, DType dtype = DType::f32)
      : x(facets::sample_tensor(1, {N, F}, dtype, -1, 1)),
        w(facets::sample_tensor(2, {V, F}, dtype, -1, 1)),
        b(facets::sample_tensor(3, {V}, dtype, -1, 1)),
        labels(facets::sample_tensor(4, {N}, DType::i64, 0, static_cast<double>(V))),
        class_weight(facets::sample_tensor(5, {V}, DType::f32, 0.1, 1.2)),
        row_weight(facets::sample_tensor(6, {N}, DType::f32, 0.1, 1.2)) {
    for (int64_t n = 1; n < N; n += 5) facets::write_int64(labels, n, kIgnoreLabel);
    need(7);
  }
  void need(int wanted) const {
    requires_grad_(x, wanted & 1), requires_grad_(w, wanted & 2), requires_grad_(b, wanted & 4);
  }
};

struct Result {
  Tensor loss;
  std::vector<Tensor> grads;  // of x, w, b
};
Result with_gradients(const Tensor& loss, const Problem& p, const BackwardOptions& options = {}) {
  const Tensor outputs[] = {loss}, inputs[] = {p.x, p.w, p.b};
  return {detach(loss), grad(outputs, inputs, {}, options)};
}
void expect_same(const Result& a, const Result& b, const std::string& what) {
  expect_same_bits(a.loss, b.loss, what + " loss");
  for (size_t i = 0; i < 3; ++i) expect_same_bits(a.grads[i], b.grads[i], fmt::format("{} gradient {}", what, i));
}

Tensor loss_of(const Problem& p, Options options, LossGradients gradients) {
  options.gradients = gradients;
  return linear_cross_entropy(p.x, p.w, p.labels, options);
}
void expect_the_bits_of_recomputed(const Problem& p, const Options& options, const std::string& what) {
  expect_same(with_gradients(loss_of(p, options, LossGradients::in_forward), p),
              with_gradients(loss_of(p, options, LossGradients::recomputed), p), what);
}

// The same loss of logits that exist as a whole.
Tensor apart(const Problem& p, const Options& o) {
  const DType dtype = p.x.dtype() == DType::f64 ? DType::f64 : DType::f32;
  Tensor z = matmul(p.x, transpose(p.w, 0, 1), {.out_dtype = dtype == DType::f64 ? dtype : o.logits_dtype});
  if (o.bias.defined()) z = add(z, o.bias);
  if (o.softcap > 0) z = mul(tanh(truediv(z, o.softcap)), o.softcap);
  Tensor loss = cross_entropy(z, p.labels);
  const Tensor ignored = eq(p.labels, kIgnoreLabel);
  Tensor counts = where(ignored, 0.0, full({p.x.size(0)}, 1.0, dtype));
  if (o.class_weight.defined()) {
    const Tensor of_labels = cast(index_select(o.class_weight, 0, where(ignored, int64_t{0}, p.labels)), dtype);
    loss = mul(loss, of_labels);
    counts = where(ignored, 0.0, of_labels);
  }
  if (o.row_weight.defined()) {
    loss = mul(loss, cast(o.row_weight, dtype));
    counts = mul(cast(o.row_weight, dtype), counts);
  }
  const auto total = [](const Tensor& t) { return sum(t, {.dims = {0}, .leaf = token_grain()}); };
  return o.reduction == LossReduction::sum ? total(loss) : truediv(total(loss), total(counts));
}

TEST(LinearCrossEntropyInForward, HasTheBitsOfRecomputedGradientsAndOfTheComposite) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    const Problem p(301, 37, 1700, dtype);
    for (const LossReduction reduction : {LossReduction::mean, LossReduction::sum}) {
      for (int weights = 0; weights < 4; ++weights) {
        Options options{.bias = p.b, .reduction = reduction};
        if (weights & 1) options.class_weight = p.class_weight;
        if (weights & 2) options.row_weight = p.row_weight;
        const std::string what =
            fmt::format("{} {} weights {}", name_of(dtype), reduction == LossReduction::sum ? "sum" : "mean", weights);
        const Result expected = with_gradients(apart(p, options), p);
        expect_same(with_gradients(loss_of(p, options, LossGradients::recomputed), p), expected, what + " recomputed");
        for (const int64_t rows : {0, 151, 76}) {
          options.chunk_rows = rows;
          expect_same(with_gradients(loss_of(p, options, LossGradients::in_forward), p), expected,
                      fmt::format("{} chunks of {} rows", what, rows));
        }
      }
    }
  }
}

TEST(LinearCrossEntropyInForward, RoundsAndCapsLogits) {
  const Problem p(200, 24, 1100, DType::bf16);
  for (const DType logits : {DType::f32, DType::bf16}) {
    for (const double softcap : {0.0, 3.5}) {
      const Options options{.bias = p.b, .softcap = softcap, .logits_dtype = logits, .chunk_rows = 100};
      const std::string what = fmt::format("{} logits, softcap {}", name_of(logits), softcap);
      expect_the_bits_of_recomputed(p, options, what);
      if (logits == DType::bf16 || softcap == 0)
        expect_same(with_gradients(loss_of(p, options, LossGradients::in_forward), p),
                    with_gradients(apart(p, options), p), what);
    }
  }
}

TEST(LinearCrossEntropyInForward, HasTheSameBitsForAnyBoundAndNumberOfThreads) {
  const Problem p(1000, 33, 1500);
  const Result expected = with_gradients(loss_of(p, {.bias = p.b}, LossGradients::recomputed), p);
  RankContext& context = RankContext::current();
  for (const int threads : {1, 2, 3}) {
    context.set_threads(threads);
    for (int64_t bytes = 1'500'000; bytes < 8'000'000; bytes += bytes / 3)
      expect_same(with_gradients(loss_of(p, {.bias = p.b, .max_bytes = bytes}, LossGradients::in_forward), p), expected,
                  fmt::format("{} threads, {} bytes", threads, bytes));
  }
  context.set_threads(0);
}

TEST(LinearCrossEntropyInForward, OddSizesEmptyRowsAndNoKeptRows) {
  for (const int64_t N : {0, 1, 2, 127, 129, 257}) {
    for (const int64_t V : {1, 2, 513}) {
      for (const LossReduction reduction : {LossReduction::mean, LossReduction::sum}) {
        const Problem p(N, 5, V);
        expect_the_bits_of_recomputed(p, {.bias = p.b, .reduction = reduction}, fmt::format("{} x {}", N, V));
        expect_the_bits_of_recomputed(
            p, {.bias = p.b, .class_weight = p.class_weight, .row_weight = p.row_weight, .reduction = reduction},
            fmt::format("{} x {} weighted", N, V));
      }
    }
  }
  const Problem p(5, 4, 7);
  for (int64_t n = 0; n < 5; ++n) facets::write_int64(p.labels, n, kIgnoreLabel);
  for (const LossReduction reduction : {LossReduction::mean, LossReduction::sum})
    expect_the_bits_of_recomputed(p, {.bias = p.b, .reduction = reduction}, "no kept row");
}

TEST(LinearCrossEntropyInForward, TakesLeadingDimsStridesAndOtherIgnoredLabels) {
  const Problem p(60, 12, 530);
  facets::write_int64(p.labels, 0, 2);
  Problem q = p;
  q.x = requires_grad_(transpose(to_contiguous(transpose(detach(p.x), 0, 1)), 0, 1));
  q.w = requires_grad_(facets::strided_copy(p.w));
  q.b = requires_grad_(facets::strided_copy(p.b));
  q.labels = facets::strided_copy(p.labels);
  q.row_weight = facets::strided_copy(p.row_weight);
  expect_same(with_gradients(loss_of(q, {.bias = q.b, .row_weight = q.row_weight}, LossGradients::in_forward), q),
              with_gradients(loss_of(p, {.bias = p.b, .row_weight = p.row_weight}, LossGradients::recomputed), p),
              "strides");

  Problem r = p;
  r.x = requires_grad_(reshape(detach(p.x), {3, 20, 12}));
  r.labels = reshape(p.labels, {3, 20});
  for (int64_t n = 1; n < 60; n += 5) facets::write_int64(r.labels, n, 2);
  expect_the_bits_of_recomputed(r, {.bias = r.b, .ignore_index = 2}, "leading dims");
}

TEST(LinearCrossEntropyInForward, ComputesWhatIsNeeded) {
  const Problem p(300, 9, 700);
  for (int wanted = 1; wanted < 8; ++wanted) {
    p.need(wanted);
    expect_the_bits_of_recomputed(p, {.bias = p.b}, fmt::format("needs {}", wanted));
  }
  // Gradients that the forward computed and this backward does not ask for.
  p.need(7);
  const Tensor outputs[] = {loss_of(p, {.bias = p.b}, LossGradients::in_forward)},
               same[] = {loss_of(p, {.bias = p.b}, LossGradients::recomputed)};
  for (const Tensor& t : {p.x, p.w, p.b}) {
    const Tensor inputs[] = {t};
    expect_same_bits(grad(outputs, inputs, {}, {.retain_graph = true})[0],
                     grad(same, inputs, {}, {.retain_graph = true})[0], "one of three");
  }
}

TEST(LinearCrossEntropyInForward, AnotherCotangentGivesTheGradientsOfThatOne) {
  const Problem p(300, 20, 900);
  const Options options{.bias = p.b, .row_weight = p.row_weight};
  const std::function<Tensor(const Tensor&)> uses[] = {
      [](const Tensor& t) { return mul(t, 3.0); }, [](const Tensor& t) { return add(t, mul(t, t)); },
      [](const Tensor& t) { return neg(t); }, [](const Tensor& t) { return mul(t, 1.0); }};
  for (size_t k = 0; k < std::size(uses); ++k)
    expect_same(with_gradients(uses[k](loss_of(p, options, LossGradients::in_forward)), p),
                with_gradients(uses[k](loss_of(p, options, LossGradients::recomputed)), p), fmt::format("use {}", k));
  const Tensor cotangents[] = {Tensor::of(std::vector<float>{0.25f}, {})}, inputs[] = {p.x};
  const Tensor mine[] = {loss_of(p, options, LossGradients::in_forward)},
               expected[] = {loss_of(p, options, LossGradients::recomputed)};
  expect_same_bits(grad(mine, inputs, cotangents)[0], grad(expected, inputs, cotangents)[0], "cotangent 0.25");
}

TEST(LinearCrossEntropyInForward, ARetainedGraphGivesItsGradientsAgain) {
  const Problem p(150, 6, 40);
  const Tensor loss = loss_of(p, {.bias = p.b}, LossGradients::in_forward);
  const Result expected = with_gradients(loss_of(p, {.bias = p.b}, LossGradients::recomputed), p);
  const Result first = with_gradients(loss, p, {.retain_graph = true});
  for (const Tensor& g : first.grads)
    std::memset(g.raw_data(), 0x55, static_cast<size_t>(g.nbytes()));  // its own memory
  expect_same(with_gradients(loss, p, {.retain_graph = true}), expected, "second");
  backward(mul(loss, 2.0), {}, {.retain_graph = true});  // not the guess: nothing of what is saved changes
  expect_same(with_gradients(loss, p), expected, "third");
  try {
    backward(loss);
    ADD_FAILURE() << "a backward after the last";
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("pass retain_graph = true to the first backward"), std::string::npos)
        << e.what();
  }
}

TEST(LinearCrossEntropyInForward, AFactorOfRowsHasItsGradientToo) {
  const Problem p(40, 6, 30);
  requires_grad_(p.row_weight);
  std::vector<Tensor> grads[2];
  for (const bool in_forward : {false, true}) {
    const Tensor outputs[] = {loss_of(p, {.row_weight = p.row_weight},
                                      in_forward ? LossGradients::in_forward : LossGradients::recomputed)},
                 inputs[] = {p.row_weight, p.x};
    grads[in_forward] = grad(outputs, inputs);
  }
  for (size_t i = 0; i < 2; ++i) expect_same_bits(grads[1][i], grads[0][i], fmt::format("gradient {}", i));
}

// Along every third element, of the loss in f64.
TEST(LinearCrossEntropyInForward, GradientsAreThoseOfDifferences) {
  const Problem p(9, 6, 21, DType::f64);
  const Options options{.bias = p.b, .class_weight = p.class_weight, .row_weight = p.row_weight};
  const Result result = with_gradients(loss_of(p, options, LossGradients::in_forward), p);
  const Tensor operands[] = {p.x, p.w, p.b};
  const NoGradScope no_grad;
  for (size_t i = 0; i < 3; ++i) {
    for (int64_t e = 0; e < operands[i].numel(); e += 3) {
      const double value = facets::read_double(operands[i], e), h = 1e-5;
      const auto loss_at = [&](double v) {
        facets::write_double(operands[i], e, v);
        return apart(p, options).item();
      };
      const double difference = (loss_at(value + h) - loss_at(value - h)) / (2 * h);
      facets::write_double(operands[i], e, value);
      EXPECT_NEAR(facets::read_double(result.grads[i], e), difference, 1e-8) << "operand " << i << " element " << e;
    }
  }
}

}  // namespace
}  // namespace tutti
