#include "tutti/ops/cross_entropy_shard.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tutti/core/tree_cut.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/slice.h"

namespace tutti {
namespace {

void expect_same_bits(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.extents(), b.extents());
  EXPECT_EQ(std::memcmp(to_contiguous(a).raw_data(), to_contiguous(b).raw_data(), static_cast<size_t>(a.nbytes())), 0);
}

struct Parts {
  Tensor logits, labels;
  std::vector<TreeCut> cuts;
  ClassStatistics all;
  Tensor loss;
};

// Cross entropy of 1303 classes, computed in `ranks` parts and combined by halving.
Parts in_parts(int ranks) {
  Parts p{facets::sample_tensor(1, {6, 1303}, DType::f32, -8, 8),
          Tensor::of(std::vector<int32_t>{0, 651, 652, 1302, -100, 900}),
          {},
          {},
          {}};
  std::vector<ClassStatistics> nodes;
  for (int r = 0; r < ranks; ++r) {
    p.cuts.push_back(tree_cut(1303, class_leaf(), r, ranks, "classes"));
    nodes.push_back(class_statistics(narrow(p.logits, 1, p.cuts.back().begin, p.cuts.back().size()), p.labels,
                                     p.cuts.back().begin));
  }
  for (; nodes.size() > 1; nodes.resize(nodes.size() / 2)) {
    for (size_t i = 0; i < nodes.size() / 2; ++i) nodes[i] = combine(nodes[2 * i], nodes[2 * i + 1]);
  }
  p.all = nodes[0];
  p.loss = cross_entropy_of(p.all, p.labels);
  return p;
}

TEST(CrossEntropyShard, TheLossOfCutClassesHasTheBitsOfWholeRows) {
  for (const int ranks : {1, 2}) {
    const Parts p = in_parts(ranks);
    expect_same_bits(p.loss, cross_entropy(p.logits, p.labels));
  }
  const ClassLeafScope leaf(64);
  const Parts p = in_parts(8);
  expect_same_bits(p.loss, cross_entropy(p.logits, p.labels));
}

TEST(CrossEntropyShard, GradientsOfPartsAreThoseOfTheWhole) {
  const Parts whole = in_parts(1), p = in_parts(2);
  const Tensor grad = facets::sample_tensor(2, {6});
  const Tensor all = cross_entropy_shard_backward(whole.logits, grad, whole.labels, whole.all, 0);
  for (const TreeCut& cut : p.cuts) {
    const Tensor mine = narrow(p.logits, 1, cut.begin, cut.size());
    expect_same_bits(cross_entropy_shard_backward(mine, grad, p.labels, p.all, cut.begin),
                     narrow(all, 1, cut.begin, cut.size()));
  }
}

}  // namespace
}  // namespace tutti
