#include "tutti/nn/embedding.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/message_of.h"
#include "tutti/autograd/backward.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/row_step.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::nn {
namespace {

// The rows of `sparse` are rows of `dense`, bit by bit.
void expect_rows_of(const RowGradients& sparse, const Tensor& dense) {
  const RowGradients g = sparse.trimmed();
  const size_t columns = static_cast<size_t>(dense.extent(1));
  ASSERT_GT(g.rows.numel(), 0);
  for (int64_t i = 0; i < g.rows.numel(); ++i) {
    const size_t row = static_cast<size_t>(g.rows.data<int64_t>()[i]);
    EXPECT_EQ(std::memcmp(g.values.data<float>() + static_cast<size_t>(i) * columns,
                          dense.data<float>() + row * columns, columns * 4),
              0)
        << row;
  }
}

template <class M>
M& filled(M& module) {
  seed_all(3);
  initialize(module);
  return module;
}

TEST(Embedding, SparseGradientsAreRowsOfTheDenseOne) {
  const Tensor a = facets::sample_tensor(1, {6, 4}, DType::i64, 0, 30),
               b = facets::sample_tensor(2, {9}, DType::i64, 0, 30);
  Embedding dense(30, 5, {.padding_idx = 4}), sparse(30, 5, {.padding_idx = 4, .sparse = true});
  filled(dense), filled(sparse);
  for (Embedding* m : {&dense, &sparse}) {
    const Tensor x = m->forward(a), y = m->forward(b);
    backward(add(sum(mul(x, x)), sum(mul(y, y))));
  }
  expect_rows_of(sparse.take_row_gradients(), dense.weight.grad());
  EXPECT_FALSE(sparse.weight.grad().defined());
  EXPECT_EQ(message_of([&] { sparse.take_row_gradients(); }),
            "take_row_gradients: backward() reached no lookup since the last call");
}

TEST(EmbeddingBag, SparseGradientsAreRowsOfTheDenseOne) {
  const Tensor indices = facets::sample_tensor(1, {40}, DType::i64, 0, 30),
               offsets = Tensor::of<int64_t>({0, 7, 7, 30});
  for (const BagMode mode : {BagMode::sum, BagMode::mean, BagMode::max}) {
    EmbeddingBag dense(30, 5, mode), sparse(30, 5, mode, {.sparse = true});
    filled(dense), filled(sparse);
    for (EmbeddingBag* m : {&dense, &sparse}) {
      const Tensor y = m->forward(indices, offsets);
      backward(sum(mul(y, y)));
    }
    expect_rows_of(sparse.take_row_gradients(), dense.weight.grad());
  }
}

TEST(EmbeddingBag, WeightsOfSamplesTakeTheirGradientBesideASparseTable) {
  const Tensor indices = facets::sample_tensor(1, {8}, DType::i64, 0, 6), offsets = Tensor::of<int64_t>({0, 5});
  EmbeddingBag dense(6, 3), sparse(6, 3, BagMode::sum, {.sparse = true});
  filled(dense), filled(sparse);
  Tensor grads[2];
  size_t k = 0;
  for (EmbeddingBag* m : {&dense, &sparse}) {
    const Tensor weights = facets::sample_tensor(2, {8});
    requires_grad_(weights);
    const Tensor y = m->forward(indices, offsets, weights);
    backward(sum(mul(y, y)));
    grads[k++] = grad_of(weights);
  }
  EXPECT_EQ(std::memcmp(grads[0].raw_data(), grads[1].raw_data(), 32), 0);
  expect_rows_of(sparse.take_row_gradients(), dense.weight.grad());
}

TEST(EmbeddingBag, TakesBagsOfOneLength) {
  EmbeddingBag bags(9, 3, BagMode::mean, {}, true);
  filled(bags);
  const Tensor indices = facets::sample_tensor(1, {4, 5}, DType::i64, 0, 9);
  const Tensor y = bags.forward(indices), z = embedding_bag(bags.weight, indices, {.mode = BagMode::mean});
  EXPECT_EQ(y.extents(), (Extents{4, 3}));
  EXPECT_EQ(std::memcmp(y.raw_data(), z.raw_data(), static_cast<size_t>(y.nbytes())), 0);
  EXPECT_EQ(message_of([&] { bags.forward(Tensor::of<int64_t>({1, 2})); }),
            "EmbeddingBag: without offsets the indices are [bags, length]; got [2] i64 cpu");
}

TEST(Embedding, RowsTrainLikeADenseTable) {
  const Tensor tokens = facets::sample_tensor(1, {12}, DType::i64, 0, 20);
  Embedding dense(20, 4), sparse(20, 4, {.sparse = true});
  filled(dense), filled(sparse);
  for (int step = 0; step < 3; ++step) {
    for (Embedding* m : {&dense, &sparse}) {
      const Tensor x = m->forward(tokens);
      backward(sum(mul(x, mul(x, x))));
    }
    NoGradScope no_grad;
    sgd_rows_step_(sparse.weight, sparse.take_row_gradients(), {.lr = 0.01});
    sgd_step_(dense.weight, dense.weight.grad(), zeros({20, 4}), {.lr = 0.01});
    dense.weight.set_grad({});
  }
  EXPECT_EQ(std::memcmp(dense.weight.master().raw_data(), sparse.weight.master().raw_data(),
                        static_cast<size_t>(dense.weight.master().nbytes())),
            0);
}

TEST(Embedding, RefusesWhatItCannotDo) {
  EXPECT_EQ(message_of([] { Embedding(4, 2, {.padding_idx = 4}); }),
            "Embedding: padding_idx is 4; expected a row of a table of 4");
  Embedding dense(4, 2);
  EXPECT_EQ(
      message_of([&] { dense.take_row_gradients(); }),
      "take_row_gradients: the table is not sparse; its gradient is weight.grad(), or set EmbeddingOptions::sparse");
}

}  // namespace
}  // namespace tutti::nn
