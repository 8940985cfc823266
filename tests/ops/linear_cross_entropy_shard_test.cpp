// Classes cut over 2, 4 and 8 ranks: statistics, loss and gradients of the parts against the whole, bit by bit.
#include "tutti/ops/linear_cross_entropy_shard.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tutti/core/tree_cut.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/slice.h"

namespace tutti {
namespace {

void expect_same_bits(const Tensor& a, const Tensor& b, const std::string& what) {
  ASSERT_EQ(a.extents(), b.extents()) << what;
  ASSERT_EQ(a.dtype(), b.dtype()) << what;
  EXPECT_EQ(std::memcmp(to_contiguous(a).raw_data(), to_contiguous(b).raw_data(), static_cast<size_t>(a.nbytes())), 0)
      << what;
}

constexpr int64_t kRows = 150, kFeatures = 20, kClasses = 5003;

struct Whole {
  Tensor x, w, b, labels, g;
  explicit Whole(DType dtype)
      : x(facets::sample_tensor(1, {kRows, kFeatures}, dtype)),
        w(facets::sample_tensor(2, {kClasses, kFeatures}, dtype)),
        b(facets::sample_tensor(3, {kClasses}, dtype)),
        labels(facets::sample_tensor(4, {kRows}, DType::i64, 0, kClasses)),
        g(facets::sample_tensor(5, {kRows}, compute_dtype(dtype))) {
    for (int64_t n = 2; n < kRows; n += 7) facets::write_int64(labels, n, kIgnoreLabel);
  }
};

struct Results {
  Tensor loss, x, w, b;
};

// What `ranks` ranks compute; chunk: bounds of theirs.
Results in_parts(const Whole& p, int ranks, int64_t chunk) {
  std::vector<TreeCut> cuts;
  std::vector<ClassStatistics> nodes;
  const auto options = [&](const TreeCut& cut) {
    return LinearShardOptions{.bias = narrow(p.b, 0, cut.begin, cut.size()),
                              .max_bytes = 4 << 20,
                              .chunk_rows = chunk > 0 ? kRows / 2 : 0,
                              .chunk_classes = chunk};
  };
  const auto rows_of = [&](const TreeCut& cut) { return narrow(p.w, 0, cut.begin, cut.size()); };
  for (int r = 0; r < ranks; ++r) {
    cuts.push_back(tree_cut(kClasses, class_leaf(), r, ranks, "classes"));
    nodes.push_back(
        linear_class_statistics(p.x, rows_of(cuts.back()), p.labels, cuts.back().begin, options(cuts.back())));
  }
  for (; nodes.size() > 1; nodes.resize(nodes.size() / 2)) {
    for (size_t i = 0; i < nodes.size() / 2; ++i) nodes[i] = combine(nodes[2 * i], nodes[2 * i + 1]);
  }
  const ClassStatistics& all = nodes[0];
  const auto halved = [](std::vector<Tensor> parts) {
    for (; parts.size() > 1; parts.resize(parts.size() / 2)) {
      for (size_t i = 0; i < parts.size() / 2; ++i) parts[i] = add(parts[2 * i], parts[2 * i + 1]);
    }
    return parts[0];
  };
  std::vector<Tensor> x;
  Results results{cross_entropy_of(all, p.labels),
                  {},
                  Tensor::empty({kClasses, kFeatures}, p.g.dtype()),
                  Tensor::empty({kClasses}, p.g.dtype())};
  for (const TreeCut& cut : cuts) {
    const LinearShardGradients mine = linear_cross_entropy_shard_backward(p.x, rows_of(cut), p.g, p.labels, all,
                                                                          cut.begin, {.bias = true}, options(cut));
    EXPECT_EQ(mine.input.dtype(), p.g.dtype());  // a partial value is not rounded
    x.push_back(mine.input);
    copy_elements(narrow(results.w, 0, cut.begin, cut.size()), mine.weight);
    copy_elements(narrow(results.b, 0, cut.begin, cut.size()), mine.bias);
  }
  results.x = cast(halved(x), p.x.dtype());
  return results;
}

TEST(LinearCrossEntropyShard, PartsOfTheClassesHaveTheBitsOfTheWhole) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Whole p(dtype);
    const Results whole = in_parts(p, 1, 0);
    expect_same_bits(whole.loss,
                     linear_cross_entropy(p.x, p.w, p.labels, {.bias = p.b, .reduction = LossReduction::none}),
                     "loss of one rank");
    for (const int ranks : {2, 4, 8}) {
      for (const int64_t chunk : {0, 700}) {
        const Results parts = in_parts(p, ranks, chunk);
        const std::string what = fmt::format("{} over {} ranks, chunks of {}: ", name_of(dtype), ranks, chunk);
        expect_same_bits(parts.loss, whole.loss, what + "loss");
        expect_same_bits(parts.x, whole.x, what + "input");
        expect_same_bits(parts.w, whole.w, what + "weight");
        expect_same_bits(parts.b, whole.b, what + "bias");
      }
    }
  }
}

TEST(LinearCrossEntropyShard, HasTheStatisticsOfLogits) {
  const Whole p(DType::f32);
  const Tensor logits = matmul(p.x, transpose(p.w, 0, 1));
  const ClassStatistics expected = class_statistics(logits, p.labels, 100),
                        actual = linear_class_statistics(p.x, p.w, p.labels, 100, {.chunk_classes = 700});
  expect_same_bits(actual.maximum, expected.maximum, "maximum");
  expect_same_bits(actual.rest, expected.rest, "rest");
  expect_same_bits(actual.target, expected.target, "target");
}

TEST(LinearCrossEntropyShard, GivesWhatIsNeededOnly) {
  const Whole p(DType::f32);
  const LinearShardGradients g = linear_cross_entropy_shard_backward(p.x, p.w, p.g, p.labels, {p.g, p.g, p.g}, 0,
                                                                     {.input = false, .weight = true});
  EXPECT_FALSE(g.input.defined());
  EXPECT_TRUE(g.weight.defined());
  EXPECT_FALSE(g.bias.defined());
}

}  // namespace
}  // namespace tutti
