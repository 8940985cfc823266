#include "tutti/nn/moe.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/support/message_of.h"
#include "tests/support/same_bits.h"
#include "tutti/autograd/backward.h"
#include "tutti/autograd/checkpoint.h"
#include "tutti/graph/compile.h"
#include "tutti/nn/token_dispatcher.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/fake.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/sum_to.h"
#include "tutti/ops/unary.h"

namespace tutti::nn {
namespace {

using facets::sample_tensor;

MoEOptions small() {
  return {.dim = 12,
          .hidden_dim = 10,
          .router = {.num_experts = 6,
                     .top_k = 2,
                     .score_func = ScoreFunction::softmax,
                     .route_norm = true,
                     .init = Init::normal(0.5)},
          .init = Init::normal(0.5)};
}

std::vector<int64_t> counts_of(const MoE& layer) {
  const Tensor counts = layer.tokens_per_expert.use();
  return {counts.data<int64_t>(), counts.data<int64_t>() + counts.numel()};
}
int64_t counted(const MoE& layer) {
  const std::vector<int64_t> counts = counts_of(layer);
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

struct Outcome {
  Tensor y, grad_x;
  std::vector<Tensor> grads;
};

enum class Way { eager, recomputed, compiled, compiled_recomputed };

Outcome run(MoE& layer, const Tensor& x, Way way = Way::eager) {
  layer.zero_grad();
  const bool recomputes = way == Way::recomputed || way == Way::compiled_recomputed;
  const auto forward = [&](std::span<const Tensor> inputs) { return layer.forward(inputs[0]); };
  const auto step = [&](const Tensor& input) {
    const Tensor leaf[] = {neg(input)};  // a value between layers, whose cotangent has its dtype
    const Tensor y = recomputes ? checkpoint(forward, leaf) : forward(leaf);
    backward(y, mul(detach(y), 0.5));
    return detach(y);
  };
  const Tensor leaf = requires_grad_(x.alias());
  Outcome outcome;
  if (way == Way::eager || way == Way::recomputed) outcome.y = step(leaf);
  else outcome.y = compile(step)(leaf);
  outcome.grad_x = grad_of(leaf);
  for (const NamedParameter& p : layer.named_parameters()) outcome.grads.push_back(p.parameter.grad());
  return outcome;
}

void expect_same(const Outcome& a, const Outcome& b, const std::string& what) {
  expect_same_bits(a.y, b.y, what + ": y");
  expect_same_bits(a.grad_x, b.grad_x, what + ": gradient of x");
  ASSERT_EQ(a.grads.size(), b.grads.size());
  for (size_t i = 0; i < a.grads.size(); ++i)
    expect_same_bits(a.grads[i], b.grads[i], fmt::format("{}: gradient {}", what, i));
}

TEST(MoE, HasTheBitsOfEagerCompiledAndRecomputed) {
  const TokenGrainScope grain(8);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    MoEOptions options = small();
    options.shared_hidden_dim = 7;
    MoE layer(options);
    initialize(layer);
    layer.to(dtype);
    const Tensor x = sample_tensor(1, {40, 12}, dtype);
    const Outcome eager = run(layer, x);
    expect_same(run(layer, x, Way::recomputed), eager, "recomputed");
    expect_same(run(layer, x, Way::compiled), eager, "compiled");
    expect_same(run(layer, x, Way::compiled_recomputed), eager, "compiled and recomputed");
  }
}

TEST(MoE, CountsTokensOnceInTrainingOnly) {
  MoE layer(small());
  initialize(layer);
  const Tensor x = sample_tensor(1, {40, 12});
  const Routing routing = layer.gate->forward(neg(x));
  for (const Way way : {Way::eager, Way::recomputed, Way::compiled, Way::compiled_recomputed}) {
    zero_(layer.tokens_per_expert.use());
    run(layer, x, way);
    expect_same_bits(layer.tokens_per_expert.use(), routing.tokens_per_expert_E,
                     fmt::format("way {}", static_cast<int>(way)));
  }
  run(layer, x);
  EXPECT_EQ(counted(layer), 2 * 40 * 2) << "counters add up until they are set to 0";
  {
    const EvalScope evaluating(layer);
    layer.forward(x);
  }
  EXPECT_EQ(counted(layer), 2 * 40 * 2);
}

TEST(MoE, GivesEmptyExpertsGradientsOfExactlyZero) {
  MoE layer(small());
  initialize(layer);
  const Tensor bias = layer.gate->expert_bias.use();
  bias.data<float>()[1] = bias.data<float>()[4] = -100;
  for (const Way way : {Way::eager, Way::compiled}) {
    const Outcome outcome = run(layer, sample_tensor(1, {40, 12}), way);
    for (size_t p = 1; p < outcome.grads.size(); ++p) {  // but for the gate, whose softmax sees all experts
      for (const int64_t expert : {1, 4}) {
        const Tensor dense = to_contiguous(select(outcome.grads[p], 0, expert));
        for (int64_t i = 0; i < dense.numel(); ++i) ASSERT_EQ(dense.data<float>()[i], 0.0f) << p;
      }
    }
  }
  EXPECT_EQ(counts_of(layer)[1], 0);
}

TEST(MoE, TakesNoTokens) {
  MoE layer(small());
  initialize(layer);
  const Outcome outcome = run(layer, zeros({0, 12}));
  EXPECT_EQ(outcome.y.extents(), (Extents{0, 12}));
  for (const Tensor& grad : outcome.grads) {
    const Tensor dense = to_contiguous(grad);
    for (int64_t i = 0; i < dense.numel(); ++i) ASSERT_EQ(dense.data<float>()[i], 0.0f);
  }
  EXPECT_EQ(counted(layer), 0);
}

// A row does not depend on what else is in the batch.
TEST(MoE, GivesATokenTheBitsThatItHasAlone) {
  MoE layer(small());
  initialize(layer);
  const NoGradScope no_grad;
  const Tensor x = sample_tensor(1, {33, 12}), y = layer.forward(x);
  for (const int64_t t : {0, 5, 32})
    expect_same_bits(layer.forward(reshape(select(x, 0, t), {1, 12})), reshape(select(y, 0, t), {1, 12}),
                     fmt::format("token {}", t));
}

TEST(MoE, IsPlannedOnFakeTensors) {
  MoE layer(small());
  const FakeScope fake;
  for (const NamedParameter& p : layer.named_parameters())
    p.parameter.set_master(fake.empty(p.parameter.sizes(), p.parameter.dtype()));
  const Tensor y = layer.forward(fake.empty({40, 12}, DType::f32));
  backward(y, fake.empty({40, 12}, DType::f32));
  EXPECT_EQ(y.extents(), (Extents{40, 12}));
  EXPECT_EQ(counted(layer), 0);
}

// A dispatcher of one's own sees what the experts take, and has the bits of the usual one.
TEST(MoE, TakesAnotherDispatcher) {
  struct Watching final : TokenDispatcher {
    explicit Watching(int64_t& rows) : rows(rows) {}
    Dispatched dispatch(const Tensor& x_TD, const Routing& routing, SymInt most_tokens) const override {
      Dispatched result = local.dispatch(x_TD, routing, most_tokens);
      rows += result.experts.rows_ND.extent(0);
      return result;
    }
    Tensor combine(const Tensor& outputs_ND, const Dispatched& dispatched, const Routing& routing) const override {
      return local.combine(outputs_ND, dispatched, routing);
    }
    int64_t& rows;
    LocalDispatcher local;
  };
  MoE layer(small());
  initialize(layer);
  const Tensor x = sample_tensor(1, {40, 12});
  const Outcome usual = run(layer, x);
  int64_t rows = 0;
  layer.set_dispatcher(std::make_unique<Watching>(rows));
  expect_same(run(layer, x), usual, "another dispatcher");
  EXPECT_EQ(rows, 40 * 2);
  EXPECT_EQ(message_of([&] { layer.set_dispatcher(nullptr); }),
            "MoE::set_dispatcher: the dispatcher is null; give a TokenDispatcher, such as LocalDispatcher");
}

TEST(MoEErrors, NameTheInput) {
  MoE layer(small());
  initialize(layer);
  EXPECT_EQ(message_of([&] { layer.forward(zeros({2, 3, 12})); }),
            "MoE: the input is [2, 3, 12] f32 cpu; expected [tokens, 12]");
}

TEST(MoE, ListsTheLayersOfAModel) {
  struct Model : Module {
    Child<MoE> first{this, "first", small()}, second{this, "second", small()};
  } model;
  const std::vector<NamedMoE> layers = moe_layers(model);
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(layers[1].name, "second");
  EXPECT_EQ(layers[1].layer, &*model.second);
}

}  // namespace
}  // namespace tutti::nn
