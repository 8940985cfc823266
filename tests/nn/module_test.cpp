#include "tutti/nn/module.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tutti/autograd/tape.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::nn {
namespace {

struct Leaf final : Module {
  Leaf() : weight(add_parameter("weight", {4, 3}, Init::normal(0.5))), bias(add_parameter("bias", {4}, Init{})) {
    table = add_buffer("table", Tensor::of<float>({1, 2}));
  }
  Tensor weight, bias, table;
};

struct Tree final : Module {
  Tree() : scale(add_parameter("scale", {3}, Init::ones())) {
    add_module("left", left);
    add_module("right", right);
  }
  Tensor scale;
  Leaf left, right;
};

// The head is the embedding.
struct Tied final : Module {
  explicit Tied(Leaf& shared) {
    add_module("embedding", shared);
    add_module("head", shared);
  }
};

std::vector<std::string> names_of(const std::vector<NamedTensor>& list) {
  std::vector<std::string> names;
  for (const NamedTensor& t : list) names.push_back(t.name);
  return names;
}

std::vector<float> values(const Tensor& t) { return {t.data<float>(), t.data<float>() + t.numel()}; }

TEST(Module, NamesParametersByTheirPathInOrderOfRegistration) {
  EXPECT_EQ(names_of(Tree().named_parameters()),
            (std::vector<std::string>{"scale", "left.weight", "left.bias", "right.weight", "right.bias"}));
}

TEST(Module, PutsAPrefixInFront) { EXPECT_EQ(names_of(Leaf().named_parameters("model."))[0], "model.weight"); }

TEST(Module, BuffersAreNoParameters) {
  const Tree tree;
  EXPECT_EQ(names_of(tree.named_buffers()), (std::vector<std::string>{"left.table", "right.table"}));
  EXPECT_EQ(tree.parameter_count(), 3 + 2 * (12 + 4));
}

TEST(Module, ASharedWeightAppearsOnceUnderItsFirstName) {
  Leaf shared;
  const Tied tied(shared);
  EXPECT_EQ(names_of(tied.named_parameters()), (std::vector<std::string>{"embedding.weight", "embedding.bias"}));
  EXPECT_EQ(tied.parameter_count(), 16);
}

TEST(Module, HandlesShareTheParametersStorage) {
  Tree tree;
  tree.named_parameters()[1].tensor.data<float>()[5] = 7;
  EXPECT_EQ(tree.left.weight.data<float>()[5], 7);
}

TEST(Module, ParametersWantTheirGradientAndBuffersDoNot) {
  const Leaf leaf;
  EXPECT_TRUE(requires_grad(leaf.weight));
  EXPECT_FALSE(requires_grad(leaf.table));
}

TEST(Module, ParametersAreCountedAsSuch) {
  const auto bytes = [] {
    return RankContext::current().allocator().statistics().current_by_category[static_cast<size_t>(MemoryCategory::parameters)];
  };
  const int64_t before = bytes();
  const Leaf leaf;
  EXPECT_GE(bytes() - before, leaf.weight.nbytes() + leaf.bias.nbytes());
}

TEST(Initialize, FillsByTheInitOfEachParameter) {
  seed_all(3);
  Tree tree;
  initialize(tree);
  EXPECT_EQ(values(tree.scale), (std::vector<float>{1, 1, 1}));
  EXPECT_EQ(values(tree.left.bias), std::vector<float>(4, 0.0f));
  for (const float w : values(tree.left.weight)) EXPECT_LT(std::fabs(w), 5 * 0.5f);
}

TEST(Initialize, DependsOnSeedAndNameOnly) {
  const auto weights = [](uint64_t seed) {
    seed_all(seed);
    Tree tree;
    initialize(tree);
    return std::pair(values(tree.left.weight), values(tree.right.weight));
  };
  EXPECT_EQ(weights(5), weights(5));
  EXPECT_NE(weights(5).first, weights(6).first);
  EXPECT_NE(weights(5).first, weights(5).second);
}

}  // namespace
}  // namespace tutti::nn
