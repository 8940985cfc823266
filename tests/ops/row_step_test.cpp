#include "tutti/ops/row_step.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/support/message_of.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

bool same_bits(const Tensor& a, const Tensor& b) {
  return std::memcmp(a.raw_data(), b.raw_data(), static_cast<size_t>(a.nbytes())) == 0;
}

RowGradients gradients(const Tensor& grad, std::vector<int64_t> indices, int64_t vocab) {
  return embedding_row_gradients(grad, Tensor::of<int64_t>(indices), vocab);
}

TEST(RowSteps, OfAllRowsAreDenseSteps) {
  const Tensor grad = facets::sample_tensor(1, {5, 37}), start = facets::sample_tensor(2, {5, 37});
  const RowGradients rows = gradients(grad, {0, 1, 2, 3, 4}, 5);
  const SgdStep sgd{.lr = 0.1, .weight_decay = 0.01, .grad_scale = 0.7};
  const Tensor a = clone(start), b = clone(start);
  sgd_rows_step_(a, rows, sgd);
  sgd_step_(b, grad, zeros({5, 37}), sgd);
  EXPECT_TRUE(same_bits(a, b));
  const Tensor m = zeros({5, 37}), v = zeros({5, 37}), m2 = zeros({5, 37}), v2 = zeros({5, 37});
  for (int64_t step = 1; step < 4; ++step) {
    const AdamWStep adamw{.lr = 0.1, .step = step, .grad_scale = 0.7};
    adamw_rows_step_(a, m, v, rows, adamw);
    adamw_step_(b, grad, m2, v2, adamw);
  }
  EXPECT_TRUE(same_bits(a, b));
  EXPECT_TRUE(same_bits(m, m2));
  EXPECT_TRUE(same_bits(v, v2));
}

TEST(RowSteps, LeaveOtherRowsAlone) {
  const Tensor w = ones({4, 2}), h = zeros({4});
  adagrad_rows_step_(w, h, gradients(full({3, 2}, 1.0), {2, 0, 2}, 4), {.lr = 0.5, .eps = 0.0});
  // Row 2 has the gradient (2, 2): h = 4, w = 1 - 0.5 / 2 * 2. Row 0: h = 1, w = 1 - 0.5.
  const float w_expected[] = {0.5f, 0.5f, 1, 1, 0.5f, 0.5f, 1, 1}, h_expected[] = {1, 0, 4, 0};
  EXPECT_EQ(std::memcmp(w.raw_data(), w_expected, sizeof w_expected), 0);
  EXPECT_EQ(std::memcmp(h.raw_data(), h_expected, sizeof h_expected), 0);
}

// Halves of ceil(n/2) and floor(n/2) until 16 elements, whose lanes are combined by halving.
float halved_squares(const float* g, int64_t n) {
  if (n > 16) {
    const float first = halved_squares(g, (n + 1) / 2);
    return first + halved_squares(g + (n + 1) / 2, n / 2);
  }
  std::vector<float> lanes(16);
  for (int64_t d = 0; d < n; ++d) lanes[static_cast<size_t>(d)] = g[d] * g[d];
  for (size_t width = 8; width > 0; width /= 2) {
    for (size_t d = 0; d < width; ++d) lanes[d] += lanes[d + width];
  }
  return lanes[0];
}

TEST(RowSteps, AdagradAddsSquaresInATreeWithLeavesOf16) {
  for (const int64_t columns : {1, 7, 16, 17, 32, 48, 100, 128, 600, 1100}) {
    const Tensor grad = facets::sample_tensor(3, {1, columns}), w = zeros({1, columns}), h = zeros({1});
    adagrad_rows_step_(w, h, gradients(grad, {0}, 1), {.lr = 0.1});
    double exact = 0;
    for (int64_t d = 0; d < columns; ++d) exact += static_cast<double>(grad.data<float>()[d]) * grad.data<float>()[d];
    EXPECT_NEAR(*h.data<float>(), exact / static_cast<double>(columns), 1e-6);
    EXPECT_EQ(*h.data<float>(), halved_squares(grad.data<float>(), columns) / static_cast<float>(columns)) << columns;
  }
}

TEST(RowSteps, HaveTheSameBitsOnAnyNumberOfThreads) {
  const Tensor grad = facets::sample_tensor(1, {4000, 64}), start = facets::sample_tensor(2, {3000, 64});
  const RowGradients rows = embedding_row_gradients(grad, facets::sample_tensor(3, {4000}, DType::i64, 0, 3000), 3000);
  RankContext& context = RankContext::current();
  const auto run = [&](int threads) {
    context.set_threads(threads);
    const Tensor w = clone(start);
    adagrad_rows_step_(w, ones({3000}), rows, {.lr = 0.1, .weight_decay = 0.1});
    return w;
  };
  const Tensor one = run(1), four = run(4);
  context.set_threads(0);
  EXPECT_TRUE(same_bits(one, four));
}

TEST(RowSteps, NameWhatIsWrong) {
  const Tensor w = zeros({3, 2});
  const RowGradients g = gradients(ones({1, 2}), {4}, 5);
  EXPECT_EQ(message_of([&] { sgd_rows_step_(w, g, {.lr = 1}); }),
            "sgd_rows_step_: a gradient of row 4; the table has 3 rows");
  const RowGradients twice{Tensor::of<int64_t>({1, 1}), ones({2, 2}), Tensor::scalar<int64_t>(2)};
  EXPECT_EQ(message_of([&] { sgd_rows_step_(w, twice, {.lr = 1}); }),
            "sgd_rows_step_: row 1 stands behind row 1; rows ascend, and -1 stands behind the last");
  const RowGradients ok = gradients(ones({1, 2}), {1}, 3);
  EXPECT_EQ(message_of([&] { sgd_rows_step_(w, ok, {.lr = 1, .momentum = 0.9}); }).substr(0, 31),
            "sgd_rows_step_: momentum is 0.9");
  EXPECT_EQ(message_of([&] { sgd_rows_step_(zeros({3, 4}), ok, {.lr = 1}); }),
            "sgd_rows_step_: gradients [1, 2] f32 cpu for the rows of [3, 4] f32 cpu; expected [K, D] and [V, D]");
  EXPECT_EQ(message_of([&] { adagrad_rows_step_(w, zeros({2}), ok, {.lr = 1}); }),
            "adagrad_rows_step_: state [2] f32 cpu beside the table [3, 2] f32 cpu; expected its sizes, or one element "
            "a row");
  EXPECT_THROW(adagrad_rows_step_(w, zeros({3, 2}), ok, {.lr = 1}), UsageError);
  EXPECT_THROW(adamw_rows_step_(w, zeros({3, 2}), zeros({3, 2}), ok, {.lr = 1, .step = 0}), UsageError);
}

}  // namespace
}  // namespace tutti
