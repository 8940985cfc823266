// Losses and gradients that are small beside their logits, in every form of cross entropy, against the formula in long
// double.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "tests/support/same_bits.h"
#include "tutti/autograd/backward.h"
#include "tutti/ops/cross_entropy.h"
#include "tutti/ops/cross_entropy_shard.h"
#include "tutti/ops/engine/dispatch.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/linear_cross_entropy.h"
#include "tutti/ops/linear_cross_entropy_shard.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/softmax.h"

namespace tutti {
namespace {

struct Result {
  float loss;
  std::vector<float> gradient;  // of the logits
};
using Form = Result (*)(const std::vector<float>& logits, int64_t label);

std::vector<float> values_of(const Tensor& t) {
  std::vector<float> values;
  for (int64_t i = 0; i < t.numel(); ++i) values.push_back(to_contiguous(t).data<float>()[i]);
  return values;
}
Tensor row_of(const std::vector<float>& logits) { return Tensor::of(logits, {1, static_cast<int64_t>(logits.size())}); }
Tensor label_of(int64_t label) { return Tensor::of(std::vector<int64_t>{label}); }
Tensor one() { return Tensor::of(std::vector<float>{1}); }

Result whole_rows(const std::vector<float>& logits, int64_t label) {
  const Tensor x = requires_grad_(row_of(logits)), loss = cross_entropy(x, label_of(label));
  const Tensor outputs[] = {loss}, inputs[] = {x};
  return {loss.data<float>()[0], values_of(grad(outputs, inputs)[0])};
}

Result references(const std::vector<float>& logits, int64_t label) {
  const Tensor x = row_of(logits), labels = reshape(label_of(label), {1, 1});
  const auto run = [](const char* name, std::vector<Tensor> inputs, size_t outputs) {
    std::vector<Tensor> results(outputs);
    run_reference({find_op(name), inputs, {}}, results);
    return results;
  };
  const std::vector<Tensor> rows = run("cross_entropy", {x, labels}, 3);
  return {rows[0].data<float>()[0],
          values_of(run("cross_entropy_backward", {x, reshape(one(), {1, 1}), labels, rows[1], rows[2]}, 1)[0])};
}

// Two parts of the classes, one of them of one class.
Result shards(const std::vector<float>& logits, int64_t label) {
  const Tensor x = row_of(logits), labels = label_of(label);
  const Tensor first = narrow(x, 1, 0, 1), rest = narrow(x, 1, 1, x.extent(1) - 1);
  const ClassStatistics all = combine(class_statistics(first, labels, 0), class_statistics(rest, labels, 1));
  Result result{cross_entropy_of(all, labels).data<float>()[0],
                values_of(cross_entropy_shard_backward(first, one(), labels, all, 0))};
  for (const float d : values_of(cross_entropy_shard_backward(rest, one(), labels, all, 1)))
    result.gradient.push_back(d);
  return result;
}

// The weight is the column of logits and the input is 1, so the gradient of the weight is that of the logits.
template <LossGradients kGradients>
Result linear(const std::vector<float>& logits, int64_t label) {
  const Tensor w = requires_grad_(reshape(row_of(logits), {-1, 1}));
  const Tensor loss = linear_cross_entropy(reshape(one(), {1, 1}), w, label_of(label),
                                           {.reduction = LossReduction::sum, .gradients = kGradients});
  const Tensor outputs[] = {loss}, inputs[] = {w};
  return {loss.data<float>()[0], values_of(grad(outputs, inputs)[0])};
}

Result linear_shards(const std::vector<float>& logits, int64_t label) {
  const Tensor w = reshape(row_of(logits), {-1, 1}), x = reshape(one(), {1, 1}), labels = label_of(label);
  const Tensor parts[] = {narrow(w, 0, 0, 1), narrow(w, 0, 1, w.extent(0) - 1)};
  const ClassStatistics all =
      combine(linear_class_statistics(x, parts[0], labels, 0), linear_class_statistics(x, parts[1], labels, 1));
  Result result{cross_entropy_of(all, labels).data<float>()[0], {}};
  for (const int64_t first : {0, 1})
    for (const float d :
         values_of(linear_cross_entropy_shard_backward(x, parts[first], one(), labels, all, first).weight))
      result.gradient.push_back(d);
  return result;
}

// One-hot probabilities: the loss that label smoothing mixes in.
Result probabilities(const std::vector<float>& logits, int64_t label) {
  const Tensor w = requires_grad_(reshape(row_of(logits), {-1, 1}));
  std::vector<float> target(logits.size());
  target[static_cast<size_t>(label)] = 1;
  const Tensor loss =
      linear_cross_entropy(reshape(one(), {1, 1}), w, row_of(target), {.reduction = LossReduction::sum});
  const Tensor outputs[] = {loss}, inputs[] = {w};
  return {loss.data<float>()[0], values_of(grad(outputs, inputs)[0])};
}

Result expected_of(const std::vector<float>& logits, int64_t label, std::vector<long double>& gradient,
                   long double& loss) {
  size_t first = 0;
  for (size_t i = 0; i < logits.size(); ++i) first = logits[i] > logits[first] ? i : first;
  const auto at = [&](size_t i) { return static_cast<long double>(logits[i]) - logits[first]; };
  long double rest = 0;
  for (size_t i = 0; i < logits.size(); ++i) rest += i == first ? 0 : std::exp(at(i));
  loss = std::log1p(rest) - at(static_cast<size_t>(label));
  long double others = 0;
  for (size_t i = 0; i < logits.size(); ++i) others += static_cast<int64_t>(i) == label ? 0 : std::exp(at(i));
  for (size_t i = 0; i < logits.size(); ++i)
    gradient.push_back(static_cast<int64_t>(i) == label ? -others / (1 + rest) : std::exp(at(i)) / (1 + rest));
  return {};
}

double ulps(float got, long double want) {
  if (want == 0) return got == 0 ? 0 : INFINITY;
  return static_cast<double>(std::fabs(got - want) / std::ldexp(1.0L, std::max(std::ilogb(want), -126) - 23));
}

struct NamedForm {
  const char* name;
  Form form;
};
constexpr NamedForm kForms[] = {{"cross_entropy", whole_rows},
                                {"reference", references},
                                {"class shards", shards},
                                {"linear_cross_entropy", linear<LossGradients::recomputed>},
                                {"linear_cross_entropy in the forward", linear<LossGradients::in_forward>},
                                {"linear class shards", linear_shards},
                                {"probabilities", probabilities}};

// Differences of these logits are exact in f32 at all four magnitudes.
const std::vector<std::vector<float>> kRows = {
    {30, 20, 19}, {0, -10, -11}, {-3, 14, -2, 14}, {2, 2, 2}, {8, 24, 7.5f, 9, 23.5f, -20}, {0, 0.5f}, {-80, 0, -1}};

TEST(SmallLosses, KeepTheirDigitsAtFourMagnitudesOfLogits) {
  for (const NamedForm& form : kForms) {
    double worst_loss = 0, worst_gradient = 0;
    for (const float magnitude : {0.0f, 100.0f, 10'000.0f, 1'000'000.0f}) {
      for (std::vector<float> row : kRows) {
        for (float& x : row) x += magnitude;
        for (size_t label = 0; label < row.size(); ++label) {
          std::vector<long double> gradient;
          long double loss = 0;
          expected_of(row, static_cast<int64_t>(label), gradient, loss);
          const Result result = form.form(row, static_cast<int64_t>(label));
          worst_loss = std::max(worst_loss, ulps(result.loss, loss));
          EXPECT_LE(ulps(result.loss, loss), 2) << form.name << " of row " << row[0] << " label " << label << ": "
                                                << result.loss << " instead of " << loss;
          for (size_t i = 0; i < row.size(); ++i) {
            worst_gradient = std::max(worst_gradient, ulps(result.gradient[i], gradient[i]));
            EXPECT_LE(ulps(result.gradient[i], gradient[i]), 2)
                << form.name << " of row " << row[0] << " label " << label << " class " << i;
          }
        }
      }
    }
    RecordProperty(form.name, fmt::format("{:.2f} ULP loss, {:.2f} ULP gradient", worst_loss, worst_gradient));
  }
}

// More classes than one block of a reduction tree has, with the maximum, or two equal ones, at the border of two
// blocks.
TEST(SmallLosses, KeepTheirDigitsOverSeveralBlocksOfClasses) {
  for (const float second : {3.0f, 2.5f, -9.0f}) {
    for (const float magnitude : {0.0f, 1'000'000.0f}) {
      std::vector<float> row;
      for (int i = 0; i < 1300; ++i) row.push_back(magnitude - 12 - static_cast<float>(i * 7919 % 29) / 4);
      row[511] = magnitude + 3;
      row[512] = magnitude + second;
      for (const NamedForm& form : kForms) {
        for (const int64_t label : {0, 511, 512, 1299}) {
          std::vector<long double> gradient;
          long double loss = 0;
          expected_of(row, label, gradient, loss);
          const Result result = form.form(row, label);
          EXPECT_LE(ulps(result.loss, loss), 2) << form.name << " with " << second << " at 512, label " << label << ": "
                                                << result.loss << " instead of " << loss;
          for (size_t i = 0; i < row.size(); ++i)
            ASSERT_LE(ulps(result.gradient[i], gradient[i]), 2)
                << form.name << " with " << second << " at 512, label " << label << " class " << i;
        }
      }
    }
  }
}

TEST(SmallLosses, DoNotDependOnAConstantThatAllLogitsHaveInCommon) {
  for (const NamedForm& form : kForms) {
    std::vector<float> row, moved;
    for (int i = 0; i < 1100; ++i) row.push_back(static_cast<float>((i * 7919) % 257 - 128) / 16);
    for (const float x : row) moved.push_back(x + 4096);
    for (const int64_t label : {0, 3, 1099}) {
      const Result a = form.form(row, label), b = form.form(moved, label);
      EXPECT_EQ(std::bit_cast<uint32_t>(a.loss), std::bit_cast<uint32_t>(b.loss)) << form.name;
      for (size_t i = 0; i < row.size(); ++i)
        ASSERT_EQ(std::bit_cast<uint32_t>(a.gradient[i]), std::bit_cast<uint32_t>(b.gradient[i]))
            << form.name << " " << i;
    }
  }
}

TEST(SmallLosses, SmoothedLabelsDoNotDependOnAConstantEither) {
  const auto loss_of = [](float constant) {
    std::vector<float> w;
    for (int i = 0; i < 1100; ++i) w.push_back(static_cast<float>((i * 7919) % 257 - 128) / 16 + constant);
    const Tensor weight = requires_grad_(Tensor::of(w, {1100, 1}));
    const Tensor loss =
        linear_cross_entropy(reshape(one(), {1, 1}), weight, label_of(5),
                             {.reduction = LossReduction::sum, .label_smoothing = 0.1, .chunk_classes = 300});
    const Tensor outputs[] = {loss}, inputs[] = {weight};
    return std::pair{detach(loss), grad(outputs, inputs)[0]};
  };
  const auto [loss, gradient] = loss_of(0);
  const auto [moved, moved_gradient] = loss_of(4096);
  expect_same_bits(moved, loss, "loss");
  expect_same_bits(moved_gradient, gradient, "gradient");
}

TEST(SmallLosses, LogSoftmaxAndLogsumexpKeepTheirDigits) {
  for (const std::vector<float>& row : kRows) {
    const std::vector<float> logs = values_of(log_softmax(row_of(row), 1));
    for (size_t i = 0; i < row.size(); ++i) {
      std::vector<long double> gradient;
      long double loss = 0;
      expected_of(row, static_cast<int64_t>(i), gradient, loss);
      EXPECT_LE(ulps(-logs[i], loss), 2.5) << "row " << row[0] << " class " << i;
    }
  }
  const Tensor sum = logsumexp(Tensor::of(std::vector<float>{0, -10, -11}), 0);
  EXPECT_LE(ulps(sum.data<float>()[0], std::log1p(std::exp(-10.0L) + std::exp(-11.0L))), 2);
}

// A probability is the exponential of the rounded logarithm y, which has |y| / 2 ULP more than its own.
TEST(SmallLosses, TheGradientOfLogSoftmaxKeepsItsDigits) {
  for (const int64_t dim : {1, 0}) {  // along the last dim, and along another one
    for (const std::vector<float>& row : kRows) {
      const int64_t classes = static_cast<int64_t>(row.size());
      for (int64_t label = 0; label < classes; ++label) {
        std::vector<float> logits;
        for (const float x : row) logits.insert(logits.end(), dim == 1 ? 1 : 3, x);
        const Tensor x = requires_grad_(dim == 1 ? row_of(row) : Tensor::of(logits, {classes, 3}));
        const Tensor outputs[] = {sum(narrow(log_softmax(x, dim), static_cast<int>(dim), label, 1))}, inputs[] = {x};
        const std::vector<float> got = values_of(grad(outputs, inputs)[0]);
        std::vector<long double> gradient;
        long double loss = 0;
        expected_of(row, label, gradient, loss);
        for (size_t i = 0; i < got.size(); ++i) {
          const size_t c = i / (got.size() / row.size());
          const double bound = 4 - (static_cast<int64_t>(c) == label ? 0 : std::log(static_cast<double>(gradient[c])));
          EXPECT_LE(ulps(got[i], -gradient[c]), bound)
              << "dim " << dim << " row " << row[0] << " label " << label << " class " << c;
        }
      }
    }
  }
}

TEST(SmallLosses, TheGradientOfLogsumexpDoesNotDependOnAConstant) {
  const auto gradient_at = [](float constant) {
    const Tensor x = requires_grad_(Tensor::of(std::vector<float>{constant, constant - 3, constant - 5}));
    const Tensor outputs[] = {logsumexp(x, 0)}, inputs[] = {x};
    return grad(outputs, inputs)[0];
  };
  expect_same_bits(gradient_at(8192), gradient_at(0), "gradient");
}

TEST(SmallLosses, LogsumexpOfAnInfiniteElementIsInfinite) {
  const float inf = INFINITY;
  EXPECT_EQ(logsumexp(Tensor::of(std::vector<float>{inf, 1}), 0).data<float>()[0], inf);
  EXPECT_EQ(logsumexp(Tensor::of(std::vector<float>{1, inf, inf}), 0).data<float>()[0], inf);
  EXPECT_EQ(logsumexp(Tensor::of(std::vector<float>{-inf, -inf}), 0).data<float>()[0], -inf);
  EXPECT_TRUE(std::isnan(logsumexp(Tensor::of(std::vector<float>{inf, NAN}), 0).data<float>()[0]));
  std::vector<float> long_row(1300, 1);
  long_row[1200] = inf;
  EXPECT_EQ(logsumexp(Tensor::of(long_row), 0).data<float>()[0], inf);
}

}  // namespace
}  // namespace tutti
