// Linear cross entropy against linear and cross entropy: the same bits, whatever the chunks; against loops in double
// precision; and what is neither computed nor allocated.
#include "tutti/ops/linear_cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/same_bits.h"
#include "tutti/autograd/backward.h"
#include "tutti/core/error.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/sum_to.h"
#include "tutti/ops/unary.h"
#include "tutti/runtime/allocator.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

struct Problem {
  Tensor x, w, b, labels, g;

  Problem(int64_t N, int64_t F, int64_t V, DType dtype, DType label_type = DType::i64)
      : x(facets::sample_tensor(1, {N, F}, dtype, -1, 1)),
        w(facets::sample_tensor(2, {V, F}, dtype, -1, 1)),
        b(facets::sample_tensor(3, {V}, dtype, -1, 1)),
        labels(facets::sample_tensor(4, {N}, label_type, 0, static_cast<double>(V))),
        g(facets::sample_tensor(5, {N}, compute_dtype(dtype), -1, 1)) {
    for (int64_t n = 1; n < N; n += 5) facets::write_int64(labels, n, kIgnoreLabel);
    for (const Tensor& t : {x, w, b}) requires_grad_(t);
  }
};

struct Result {
  Tensor loss;
  std::vector<Tensor> grads;  // of x, w, b
};
Result with_gradients(const Tensor& loss, const Problem& p, const Tensor& cotangent = {}) {
  const Tensor outputs[] = {loss}, inputs[] = {p.x, p.w, p.b}, cotangents[] = {cotangent};
  return {detach(loss),
          grad(outputs, inputs, cotangent.defined() ? std::span<const Tensor>(cotangents) : std::span<const Tensor>{})};
}
void expect_same(const Result& a, const Result& b, const std::string& what) {
  expect_same_bits(a.loss, b.loss, what + " loss");
  for (size_t i = 0; i < 3; ++i) expect_same_bits(a.grads[i], b.grads[i], fmt::format("{} gradient {}", what, i));
}

// cross_entropy of logits that exist as a whole.
Tensor apart(const Problem& p, DType logits, double softcap = 0) {
  Tensor z = add(matmul(p.x, transpose(p.w, 0, 1), {.out_dtype = logits}), p.b);
  if (softcap > 0) z = mul(tanh(truediv(z, softcap)), softcap);
  return cross_entropy(z, p.labels);
}

TEST(LinearCrossEntropy, LabelsMayBeBytesThoughNoneOfThemCanBeTheIgnoredOne) {
  const Problem p(9, 8, 40, DType::f32);
  const Tensor labels = Tensor::of<int64_t>({0, 39, 7, 3, 3, 21, 12, 38, 1});
  expect_same_bits(linear_cross_entropy(p.x, p.w, cast(labels, DType::u8)), linear_cross_entropy(p.x, p.w, labels),
                   "u8");
}

TEST(LinearCrossEntropy, HasTheBitsOfLinearAndCrossEntropyForAnyChunks) {
  struct Chunks {
    int64_t rows, classes, bytes = kDefaultLossBytes;
  };
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    const Problem p(300, 40, 1700, dtype);
    const DType logits = dtype == DType::f64 ? DType::f64 : DType::f32;
    const Result expected = with_gradients(apart(p, logits), p, p.g);
    for (const Chunks& c : {Chunks{0, 0}, Chunks{150, 500}, Chunks{75, 0}, Chunks{0, 425}, Chunks{75, 425, 420 << 10},
                            Chunks{0, 0, 1 << 20}}) {
      const Tensor loss = linear_cross_entropy(p.x, p.w, p.labels,
                                               {.bias = p.b,
                                                .reduction = LossReduction::none,
                                                .max_bytes = c.bytes * itemsize(logits) / 4,
                                                .chunk_rows = c.rows,
                                                .chunk_classes = c.classes});
      expect_same(with_gradients(loss, p, p.g), expected,
                  fmt::format("{} {}x{} in {}", name_of(dtype), c.rows, c.classes, c.bytes));
    }
  }
}

TEST(LinearCrossEntropy, RoundsLogitsWhenAskedTo) {
  const Problem p(200, 24, 1100, DType::bf16, DType::i32);
  const Result expected = with_gradients(apart(p, DType::bf16), p, p.g);
  for (const int64_t rows : {0, 100})
    expect_same(with_gradients(linear_cross_entropy(p.x, p.w, p.labels,
                                                    {.bias = p.b,
                                                     .reduction = LossReduction::none,
                                                     .logits_dtype = DType::bf16,
                                                     .chunk_rows = rows,
                                                     .chunk_classes = 300}),
                               p, p.g),
                expected, "bf16 logits");
}

TEST(LinearCrossEntropy, CapsLogitsAsTheComposite) {
  for (const DType logits : {DType::f32, DType::bf16}) {
    const Problem p(70, 24, 600, logits);
    const Result expected = with_gradients(apart(p, logits, 3.5), p, p.g);
    const Tensor loss = linear_cross_entropy(
        p.x, p.w, p.labels,
        {.bias = p.b, .reduction = LossReduction::none, .softcap = 3.5, .logits_dtype = logits, .chunk_classes = 300});
    expect_same(with_gradients(loss, p, p.g), expected, "softcap");
  }
}

TEST(LinearCrossEntropy, HasTheSameBitsOnAnyNumberOfThreads) {
  const Problem p(260, 33, 1500, DType::f32);
  RankContext& context = RankContext::current();
  context.set_threads(1);
  const auto run = [&] {
    return with_gradients(
        linear_cross_entropy(p.x, p.w, p.labels, {.bias = p.b, .label_smoothing = 0.1, .z_loss = 1e-3}), p);
  };
  const Result one = run();
  for (const int threads : {2, 3}) {
    context.set_threads(threads);
    expect_same(run(), one, fmt::format("{} threads", threads));
  }
  context.set_threads(0);
}

TEST(LinearCrossEntropy, TakesOperandsOfAnyStrides) {
  const Problem p(40, 12, 530, DType::f32);
  const Result expected = with_gradients(linear_cross_entropy(p.x, p.w, p.labels, {.bias = p.b}), p);
  Problem q = p;
  q.x = requires_grad_(transpose(to_contiguous(transpose(detach(p.x), 0, 1)), 0, 1));
  q.w = requires_grad_(facets::strided_copy(p.w));
  q.b = requires_grad_(facets::strided_copy(p.b));
  expect_same(with_gradients(linear_cross_entropy(q.x, q.w, facets::strided_copy(p.labels), {.bias = q.b}), q),
              expected, "strides");
}

TEST(LinearCrossEntropy, TakesLeadingDims) {
  const Problem p(12, 5, 9, DType::f32);
  const Tensor x = reshape(detach(p.x), {3, 4, 5}), labels = reshape(p.labels, {3, 4});
  const Tensor loss = linear_cross_entropy(x, p.w, labels, {.reduction = LossReduction::none});
  EXPECT_EQ(loss.extents(), (Extents{3, 4}));
  expect_same_bits(reshape(loss, {12}), linear_cross_entropy(p.x, p.w, p.labels, {.reduction = LossReduction::none}),
                   "leading dims");
}

// ---- the formula, in double precision -------------------------------------------------------------------------------

struct Formula {
  double smoothing = 0, z_loss = 0;
  std::vector<double> class_weight, row_weight, probabilities;
};
// Losses of rows and what they count in a mean.
std::pair<std::vector<double>, double> losses_of(const Problem& p, const Formula& f) {
  const int64_t N = p.x.extent(0), F = p.x.extent(1), V = p.w.extent(0);
  std::vector<double> losses;
  double weight = 0;
  for (int64_t n = 0; n < N; ++n) {
    std::vector<double> z;
    double sum = 0, loss = 0;
    for (int64_t c = 0; c < V; ++c) {
      z.push_back(facets::read_double(p.b, c));
      for (int64_t k = 0; k < F; ++k)
        z.back() += facets::read_double(p.x, n * F + k) * facets::read_double(p.w, c * F + k);
      sum += std::exp(z.back());
    }
    const auto weight_of = [&](int64_t c) {
      return f.class_weight.empty() ? 1.0 : f.class_weight[static_cast<size_t>(c)];
    };
    const double lse = std::log(sum), factor = f.row_weight.empty() ? 1.0 : f.row_weight[static_cast<size_t>(n)];
    const int64_t label = facets::read_int64(p.labels, n);
    if (!f.probabilities.empty()) {
      for (int64_t c = 0; c < V; ++c)
        loss += f.probabilities[static_cast<size_t>(n * V + c)] * (lse - z[static_cast<size_t>(c)]);
      weight += factor;
    } else if (label != kIgnoreLabel) {
      loss = (1 - f.smoothing) * weight_of(label) * (lse - z[static_cast<size_t>(label)]);
      for (int64_t c = 0; c < V; ++c)
        loss += f.smoothing / static_cast<double>(V) * weight_of(c) * (lse - z[static_cast<size_t>(c)]);
      weight += weight_of(label) * factor;
    }
    if (!f.probabilities.empty() || label != kIgnoreLabel) loss += f.z_loss * lse * lse;
    losses.push_back(loss * factor);
  }
  return {losses, weight};
}

std::vector<double> random(uint64_t seed, int64_t n) {
  return facets::values(facets::sample_tensor(seed, {n}, DType::f64, 0.1, 1.2), {n});
}

TEST(LinearCrossEntropy, ComputesTheStatedFormula) {
  Problem p(9, 6, 21, DType::f64);
  for (const bool probabilities : {false, true}) {
    for (const double smoothing : {0.0, 0.2}) {
      for (const bool weighted : {false, true}) {
        if (probabilities && smoothing > 0) continue;
        Formula f{.smoothing = smoothing, .z_loss = 0.01};
        LinearCrossEntropyOptions options{
            .bias = p.b, .label_smoothing = smoothing, .z_loss = 0.01, .chunk_classes = 0};
        if (weighted) options.row_weight = Tensor::of(f.row_weight = random(7, 9));
        if (weighted && !probabilities) options.class_weight = Tensor::of(f.class_weight = random(8, 21));
        if (probabilities) f.probabilities = random(9, 9 * 21);
        const Tensor target = probabilities ? Tensor::of(f.probabilities, {9, 21}) : p.labels;
        const auto [losses, weight] = losses_of(p, f);
        double total = 0;
        for (const double loss : losses) total += loss;
        options.reduction = LossReduction::none;
        const Tensor rows = linear_cross_entropy(p.x, p.w, target, options);
        for (int64_t n = 0; n < 9; ++n)
          EXPECT_NEAR(facets::read_double(rows, n), losses[static_cast<size_t>(n)], 1e-12) << n;
        options.reduction = LossReduction::sum;
        EXPECT_NEAR(linear_cross_entropy(p.x, p.w, target, options).item(), total, 1e-11);
        options.reduction = LossReduction::mean;
        const Tensor mean = linear_cross_entropy(p.x, p.w, target, options);
        EXPECT_NEAR(mean.item(), total / weight, 1e-12);

        // Gradients against differences of the formula, along every third element.
        const Result result = with_gradients(mean, p);
        const Tensor operands[] = {p.x, p.w, p.b};
        for (size_t i = 0; i < 3; ++i) {
          for (int64_t e = 0; e < operands[i].numel(); e += 3) {
            const double value = facets::read_double(operands[i], e), h = 1e-5;
            const auto mean_at = [&](double v) {
              facets::write_double(operands[i], e, v);
              const auto [terms, all] = losses_of(p, f);
              double sum = 0;
              for (const double t : terms) sum += t;
              return sum / all;
            };
            const double difference = (mean_at(value + h) - mean_at(value - h)) / (2 * h);
            facets::write_double(operands[i], e, value);
            EXPECT_NEAR(facets::read_double(result.grads[i], e), difference, 1e-8)
                << "operand " << i << " element " << e;
          }
        }
      }
    }
  }
}

// ---- edges ----------------------------------------------------------------------------------------------------------

TEST(LinearCrossEntropy, NoRowsAndNoKeptRows) {
  const Problem none(0, 4, 7, DType::f32);
  EXPECT_EQ(linear_cross_entropy(none.x, none.w, none.labels, {.reduction = LossReduction::sum}).item(), 0);
  EXPECT_TRUE(std::isnan(linear_cross_entropy(none.x, none.w, none.labels).item()));
  const Result gradients = with_gradients(
      linear_cross_entropy(none.x, none.w, none.labels, {.bias = none.b, .reduction = LossReduction::sum}), none);
  for (int64_t i = 0; i < 28; ++i) EXPECT_EQ(gradients.grads[1].data<float>()[i], 0);
  for (int64_t i = 0; i < 7; ++i) EXPECT_EQ(gradients.grads[2].data<float>()[i], 0);

  Problem p(5, 4, 7, DType::f32);
  for (int64_t n = 0; n < 5; ++n) facets::write_int64(p.labels, n, kIgnoreLabel);
  EXPECT_TRUE(std::isnan(linear_cross_entropy(p.x, p.w, p.labels).item()));
  const Tensor sum = linear_cross_entropy(
      p.x, p.w, p.labels, {.bias = p.b, .reduction = LossReduction::sum, .label_smoothing = 0.3, .z_loss = 1});
  EXPECT_EQ(sum.item(), 0);
  for (const Tensor& g : with_gradients(sum, p).grads) {
    for (int64_t i = 0; i < g.numel(); ++i) EXPECT_EQ(g.data<float>()[i], 0);
  }
}

TEST(LinearCrossEntropy, OneClassHasNoLoss) {
  const Problem p(6, 3, 1, DType::f32);
  for (int64_t n = 0; n < 6; ++n)
    EXPECT_EQ(linear_cross_entropy(p.x, p.w, p.labels, {.reduction = LossReduction::none}).data<float>()[n], 0);
  expect_same(
      with_gradients(linear_cross_entropy(p.x, p.w, p.labels, {.bias = p.b, .reduction = LossReduction::none}), p, p.g),
      with_gradients(apart(p, DType::f32), p, p.g), "one class");
}

TEST(LinearCrossEntropy, AnIgnoredRowIsZeroWhateverItsLogits) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const double smoothing : {0.0, 0.1}) {
    Problem p(7, 3, 600, DType::f32);
    p.x.data<float>()[3] = kInf;  // of row 1, which is ignored
    p.x.data<float>()[4] = std::nanf("");
    const Tensor loss = linear_cross_entropy(
        p.x, p.w, p.labels,
        {.bias = p.b, .reduction = LossReduction::none, .label_smoothing = smoothing, .z_loss = 0.1});
    EXPECT_EQ(loss.data<float>()[1], 0);
    const Result result = with_gradients(loss, p, p.g);
    for (int64_t f = 0; f < 3; ++f) EXPECT_EQ(result.grads[0].data<float>()[3 + f], 0);
    for (int64_t c = 0; c < 600; ++c) EXPECT_TRUE(std::isfinite(result.grads[2].data<float>()[c]));
  }
}

TEST(LinearCrossEntropy, InfiniteLogitsAreThoseOfCrossEntropy) {
  Problem p(6, 2, 700, DType::f32);
  for (const int64_t c : {3, 650}) p.b.data<float>()[c] = -std::numeric_limits<float>::infinity();
  expect_same_bits(
      linear_cross_entropy(p.x, p.w, p.labels, {.bias = p.b, .reduction = LossReduction::none, .chunk_classes = 400}),
      apart(p, DType::f32), "-inf");
}

TEST(LinearCrossEntropy, AnotherIgnoreIndexIsTheOnlyOne) {
  Problem p(4, 3, 5, DType::f32);
  facets::write_int64(p.labels, 1, 2), facets::write_int64(p.labels, 0, 2);
  const Tensor loss = linear_cross_entropy(p.x, p.w, p.labels, {.reduction = LossReduction::none, .ignore_index = 2});
  EXPECT_EQ(loss.data<float>()[0], 0);
  EXPECT_EQ(loss.data<float>()[1], 0);
  facets::write_int64(p.labels, 3, kIgnoreLabel);
  EXPECT_THROW(linear_cross_entropy(p.x, p.w, p.labels, {.ignore_index = 2}), UsageError);
}

}  // namespace
}  // namespace tutti
