#include "tutti/nn/module.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/message_of.h"
#include "tutti/autograd/backward.h"
#include "tutti/nn/linear.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/reduction.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::nn {
namespace {

struct Leaf final : Module {
  Parameter weight = register_parameter("weight", {4, 3}, Init::normal(0.5));
  Parameter bias = register_parameter("bias", {4}, Init::zeros());
  Buffer table = register_buffer("table", Tensor::of<float>({1, 2}));
  Tensor forward(const Tensor& x) const { return x; }
};

struct Tree final : Module {
  Parameter scale = register_parameter("scale", {3}, Init::ones());
  Child<Leaf> left{this, "left"}, right{this, "right"};
  Tensor forward(const Tensor& x) const { return right(left(x)); }
};

// The head is the embedding.
struct Tied final : Module {
  explicit Tied(Leaf& shared) {
    register_module("embedding", shared);
    register_module("head", shared);
  }
};

template <class Named>
std::vector<std::string> names_of(const std::vector<Named>& list) {
  std::vector<std::string> names;
  for (const Named& t : list) names.push_back(t.name);
  return names;
}

std::vector<float> values(const Tensor& t) { return {t.data<float>(), t.data<float>() + t.numel()}; }

using Names = std::vector<std::string>;

TEST(Module, NamesParametersByTheirPathInOrderOfRegistration) {
  EXPECT_EQ(names_of(Tree().named_parameters()),
            (Names{"scale", "left.weight", "left.bias", "right.weight", "right.bias"}));
}

TEST(Module, PutsAPrefixInFront) { EXPECT_EQ(names_of(Leaf().named_parameters("model."))[0], "model.weight"); }

TEST(Module, BuffersAreNoParameters) {
  const Tree tree;
  EXPECT_EQ(names_of(tree.named_buffers()), (Names{"left.table", "right.table"}));
  EXPECT_EQ(tree.parameter_count(), 3 + 2 * (12 + 4));
}

TEST(Module, ASharedWeightAppearsOnceUnderItsFirstName) {
  Leaf shared;
  Tied tied(shared);
  EXPECT_EQ(names_of(tied.named_parameters()), (Names{"embedding.weight", "embedding.bias"}));
  EXPECT_EQ(names_of(tied.named_modules()), (Names{"", "embedding"}));
  EXPECT_EQ(tied.parameter_count(), 16);
}

TEST(Module, NamesModulesFromTheRootDownAndAppliesFromTheLeavesUp) {
  Tree tree;
  EXPECT_EQ(names_of(tree.named_modules("model")), (Names{"model", "model.left", "model.right"}));
  std::vector<Module*> order;
  tree.apply([&](Module& m) { order.push_back(&m); });
  EXPECT_EQ(order, (std::vector<Module*>{&*tree.left, &*tree.right, &tree}));
}

TEST(Module, OutlivesTheModuleThatItWasRegisteredWith) {
  Leaf shared;
  {
    const Tied tied(shared);
    EXPECT_EQ(shared.call_name(), "embedding");
  }
  const Tied another(shared);
  EXPECT_EQ(shared.call_name(), "embedding");
  EXPECT_EQ(another.named_parameters().size(), 2u);
}

TEST(Module, RefusesANameThatIsTaken) {
  struct Twice final : Module {
    Twice() {
      register_parameter("weight", {1}, Init::zeros());
      register_buffer("weight", Tensor::of<float>({1}));
    }
  };
  EXPECT_EQ(message_of([] { Twice(); }), "the module already has a parameter, buffer or submodule named 'weight'");
}

TEST(Module, RefusesDotsInNamesAndCircles) {
  struct Dotted final : Module {
    Dotted() { register_parameter("a.b", {1}, Init::zeros()); }
  };
  EXPECT_NE(message_of([] { Dotted(); }).find("'a.b' cannot name a parameter, buffer or submodule"), std::string::npos);
  struct Node final : Module {
    void hold(const std::string& name, Module& child) { register_module(name, child); }
  };
  Node a, b;
  a.hold("b", b);
  EXPECT_NE(message_of([&] { b.hold("a", a); }).find("cannot be a submodule of a module that it contains"),
            std::string::npos);
  EXPECT_NE(message_of([&] { a.hold("self", a); }).find("or of itself"), std::string::npos);
}

TEST(Module, ParametersWantTheirGradientAndBuffersDoNot) {
  Leaf leaf;
  initialize(leaf);
  EXPECT_TRUE(requires_grad(leaf.weight));
  EXPECT_FALSE(requires_grad(leaf.table));
  leaf.requires_grad_(false);
  EXPECT_FALSE(requires_grad(leaf.weight));
}

TEST(Module, ParametersAreCountedAsSuchOnceTheyHaveMemory) {
  const auto bytes = [] {
    return RankContext::current().allocator().statistics().current_by_category[static_cast<size_t>(
        MemoryCategory::parameters)];
  };
  const int64_t before = bytes();
  Leaf leaf;
  EXPECT_EQ(bytes(), before);
  initialize(leaf);
  EXPECT_GE(bytes() - before, leaf.weight.master().nbytes() + leaf.bias.master().nbytes());
}

TEST(Module, ModesReachAllModulesAndAScopeRestoresEach) {
  Tree tree;
  EXPECT_TRUE(tree.is_training() && tree.left->is_training());
  tree.right->eval();
  {
    const EvalScope evaluating(tree);
    EXPECT_FALSE(tree.is_training() || tree.left->is_training() || tree.right->is_training());
  }
  EXPECT_TRUE(tree.is_training() && tree.left->is_training());
  EXPECT_FALSE(tree.right->is_training());
  tree.train();
  EXPECT_TRUE(tree.right->is_training());
}

TEST(Module, HooksSeeAndReplaceInputsAndResultsUntilTheyAreRemoved) {
  Tree tree;
  std::vector<std::string> calls;
  const HookHandle before = tree.left->forward_hooks().before([&](const Module& module, std::vector<Tensor>& inputs) {
    calls.push_back("before " + module.call_name());
    inputs[0] = add(inputs[0], 1.0);
  });
  HookHandle after = tree.left->forward_hooks().after([&](const Module& module, const Tensor& output) {
    calls.push_back("after " + module.call_name());
    return mul(output, 10.0);
  });
  EXPECT_EQ(call(tree, Tensor::of<float>({2})).item(), 30.0);
  EXPECT_EQ(calls, (Names{"before left", "after left"}));
  after.remove();
  EXPECT_EQ(call(tree, Tensor::of<float>({2})).item(), 3.0);
}

TEST(Module, AHookThatReturnsNothingOnlyLooks) {
  Tree tree;
  std::vector<double> seen;
  HookHandle after =
      tree.left->forward_hooks().after([&](const Module&, const Tensor& output) { seen.push_back(output.item()); });
  tree.left->forward_hooks().after([](const Module&, const Tensor& output) { return mul(output, 10.0); });
  const double result = call(tree, Tensor::of<float>({2})).item();
  EXPECT_EQ(seen, (std::vector<double>{result / 10}));
  after.remove();
  call(tree, Tensor::of<float>({2}));
  EXPECT_EQ(seen.size(), 1u);
}

TEST(Module, AForwardThatReturnsNothingHasHooksBefore) {
  struct Sink final : Module {
    void forward(const Tensor& x) { got = x.item(); }
    double got = 0;
  };
  Sink sink;
  call(sink, Tensor::of<float>({2}));
  EXPECT_EQ(sink.got, 2.0);
  sink.forward_hooks().before([](const Module&, std::vector<Tensor>& inputs) { inputs[0] = add(inputs[0], 1.0); });
  call(sink, Tensor::of<float>({2}));
  EXPECT_EQ(sink.got, 3.0);
  sink.forward_hooks().after([](const Module&, const Tensor&) {});
  const std::string message = message_of([&] { call(sink, Tensor::of<float>({7})); });
  EXPECT_NE(message.find("whose forward does not return a Tensor"), std::string::npos) << message;
  EXPECT_EQ(sink.got, 3.0) << "the hook is refused before forward runs";
}

TEST(Module, AHookMayNotChangeTheNumberOfInputs) {
  Tree tree;
  tree.left->forward_hooks().before([](const Module&, std::vector<Tensor>& inputs) { inputs.clear(); });
  const std::string message = message_of([&] { call(tree, Tensor::of<float>({2})); });
  EXPECT_NE(message.find("a hook before 'left' left 0 tensors of 1; it may replace them, but not add or remove any"),
            std::string::npos)
      << message;
}

TEST(Module, AHookAfterAForwardThatReturnsSomethingElseIsRefused) {
  struct Pair final : Module {
    std::pair<Tensor, Tensor> forward(const Tensor& x) const { return {x, x}; }
  };
  Pair pair;
  pair.forward_hooks().after([](const Module&, const Tensor&) { return Tensor(); });
  const std::string message = message_of([&] { call(pair, Tensor::of<float>({2})); });
  EXPECT_NE(message.find("whose forward does not return a Tensor"), std::string::npos) << message;
}

TEST(Initialize, FillsByTheInitOfEachParameter) {
  seed_all(3);
  Tree tree;
  initialize(tree);
  EXPECT_EQ(values(tree.scale), (std::vector<float>{1, 1, 1}));
  EXPECT_EQ(values(tree.left->bias), std::vector<float>(4, 0.0f));
  for (const float w : values(tree.left->weight)) EXPECT_LT(std::fabs(w), 5 * 0.5f);
  Linear linear(100, 50);
  initialize(linear);
  double largest = 0, sum = 0;
  for (const float w : values(linear.weight)) largest = std::max(largest, std::fabs(static_cast<double>(w))), sum += w;
  EXPECT_LE(largest, 0.1);
  EXPECT_GT(largest, 0.0999);
  EXPECT_LT(std::fabs(sum) / 5000, 4 * 0.1 / std::sqrt(3.0 * 5000));
}

TEST(Initialize, DependsOnSeedAndNameOnly) {
  const auto weights = [](uint64_t seed) {
    seed_all(seed);
    Tree tree;
    initialize(tree);
    return std::pair(values(tree.left->weight), values(tree.right->weight));
  };
  EXPECT_EQ(weights(5), weights(5));
  EXPECT_NE(weights(5).first, weights(6).first);
  EXPECT_NE(weights(5).first, weights(5).second);
}

}  // namespace
}  // namespace tutti::nn
