// Experts on several ranks: outputs, losses and gradients of a rank that has all of them, bit for bit, and gradients of
// the right size.
#include "tutti/parallel/expert_parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/parallel/support/expert_steps.h"
#include "tests/support/message_of.h"
#include "tutti/autograd/backward.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/dist/dtensor.h"
#include "tutti/nn/moe.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/sum_to.h"
#include "tutti/parallel/shards.h"
#include "tutti/parallel/tensor_parallel.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::parallel {

using namespace expert_steps;

namespace {

class ExpertParallel : public testing::TestWithParam<Case> {};

TEST_P(ExpertParallel, HasTheOutputsAndGradientsOfOneRank) {
  const TokenGrainScope grain(2);
  expect_one_rank(GetParam());
}

// Ranges of tokens restart at every shard: 5, 5 and 2 of them, or one range that the shard does not fill.
// Tensor-parallel ranks have 6 tokens each.
TEST_P(ExpertParallel, HasTheBitsOfOneRankWhereShardsEndInsideARange) {
  for (const int64_t range : {5, 100}) {
    const TokenGrainScope grain(GetParam().tensor == 1 ? range : range == 5 ? 3 : 6);
    expect_one_rank(GetParam());
  }
}

const Case kCases[] = {
    {"Ep2", 2, 2},
    {"Ep4", 4, 4},
    {"Ep8", 8, 8},
    {"Dp2Ep2", 4, 2},
    {"Dp3Ep2", 6, 2},
    {"Dp2Ep4", 8, 4},
    {"WithoutEp", 3, 1},
    {"Ep4InBf16", 4, 4, DType::bf16},
    {"Dp3Ep2InBf16", 6, 2, DType::bf16},
    {"Ep2Exact", 2, 2, DType::f32, 1, ExpertExchange::standard_exact},
    {"Dp2Ep4ExactInBf16", 8, 4, DType::bf16, 1, ExpertExchange::standard_exact},
    {"Ep4ExactRecomputed", 4, 4, DType::f32, 1, ExpertExchange::standard_exact, true},
    {"Ep2DirectStore", 2, 2, DType::f32, 1, ExpertExchange::direct_store},
    {"Ep4DirectStore", 4, 4, DType::f32, 1, ExpertExchange::direct_store},
    {"Dp2Ep2DirectStoreInBf16", 4, 2, DType::bf16, 1, ExpertExchange::direct_store},
    {"Ep4DirectStoreRecomputed", 4, 4, DType::f32, 1, ExpertExchange::direct_store, true},
    {"Ep2GatherOnRead", 2, 2, DType::f32, 1, ExpertExchange::gather_on_read},
    {"Ep4GatherOnRead", 4, 4, DType::f32, 1, ExpertExchange::gather_on_read},
    {"Dp2Ep2GatherOnReadInBf16", 4, 2, DType::bf16, 1, ExpertExchange::gather_on_read},
    {"Ep4GatherOnReadRecomputed", 4, 4, DType::f32, 1, ExpertExchange::gather_on_read, true},
    {"Tp2", 2, 1, DType::f32, 2},
    {"Tp2Ep2", 2, 2, DType::f32, 2},
    {"Dp2Tp2Ep4", 4, 4, DType::f32, 2},
    {"Dp3Tp2Ep2", 6, 2, DType::f32, 2},
    {"Dp4Tp2Ep4InBf16", 8, 4, DType::bf16, 2},
    {"Dp2Tp2Ep4DirectStore", 4, 4, DType::f32, 2, ExpertExchange::direct_store},
    {"Dp4Tp2Ep4GatherOnReadInBf16", 8, 4, DType::bf16, 2, ExpertExchange::gather_on_read},
    {"Dp2Tp2Ep4Exact", 4, 4, DType::f32, 2, ExpertExchange::standard_exact},
};
INSTANTIATE_TEST_SUITE_P(Layouts, ExpertParallel, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

// The loss of all shards in f64 as a function of one element of a parameter.
double loss_with(const std::string& changed, int64_t element, double by) {
  seed_all(11);
  nn::MoE layer(options());
  nn::initialize(layer);
  const NoGradScope no_grad;
  layer.to(DType::f64);
  for (const auto& [name, p] : layer.named_parameters()) {
    if (name == changed) p.use().data<double>()[element] += by;
  }
  double loss = 0;
  for (int64_t s = 0; s < kShards; ++s) {
    const Tensor y = layer.forward(tokens_of(s, DType::f64));
    loss += 0.5 * sum(mul(y, y)).item();
  }
  return loss;
}

// A gradient that every rank of a line added would be as many times too large as it has ranks.
TEST(ExpertParallel, GradientsHaveTheSizeOfFiniteDifferencesOnAnyNumberOfRanks) {
  const TokenGrainScope grain(2);
  constexpr int64_t kOne = kHidden * kDim;  // elements of an expert
  const std::pair<const char*, int64_t> elements[] = {{"experts.w1", 5},
                                                      {"experts.w1", 7 * kOne + 3},
                                                      {"experts.w2", 2 * kOne + 1},
                                                      {"experts.w3", 4 * kOne + 8},
                                                      {"gate.weight", 12}};
  std::vector<std::string> names;
  for (const auto& [name, p] : nn::MoE(options()).named_parameters()) names.push_back(name);
  const std::pair<int, int> degrees[] = {{1, 1}, {2, 1}, {4, 1}, {1, 2}, {2, 2}, {4, 2}};
  for (const auto& [experts, tensor] : degrees) {
    comm::run_ranks(4, [&](comm::ProcessGroup& world) {
      const Values seen = step_of({"sizes", 4, experts, DType::f32, tensor}, world);
      if (world.rank() != 0) return;
      for (const auto& [name, element] : elements) {
        const double slope = (loss_with(name, element, 1e-5) - loss_with(name, element, -1e-5)) / 2e-5;
        const auto p = std::find(names.begin(), names.end(), name) - names.begin();
        EXPECT_NEAR(seen.at(fmt::format("gradient {}", p))[static_cast<size_t>(element)], slope,
                    1e-4 * std::max(1.0, std::abs(slope)))
            << name << " over " << experts << " ranks of " << tensor;
      }
    });
  }
}

// A rank may have fewer tokens than others, or none.
TEST(ExpertParallel, RanksMayHaveUnequalNumbersOfTokens) {
  const TokenGrainScope grain(4);
  comm::run_ranks(4, [&](comm::ProcessGroup& world) {
    const dist::Mesh mesh = dist::init_device_mesh("cpu", {4}, {.names = {"ep"}});
    seed_all(11);
    nn::MoE layer(options()), all(options());
    expert_parallel(layer, mesh, {.max_tokens = kTokens});
    nn::initialize(layer);
    nn::initialize(all);
    const int64_t counts[] = {kTokens, 0, 5, 1};
    const Tensor x =
        requires_grad_(facets::sample_tensor(static_cast<uint64_t>(world.rank()) + 1, {counts[world.rank()], kDim}));
    const Tensor y = layer.forward(x);
    TUTTI_CHECK(have_same_bits(values_of(y), values_of(all.forward(detach(x)))), "the outputs have other bits");
    backward(y, full_like(y, 1.0));
    TUTTI_CHECK(layer.experts->w1.grad().defined(), "the experts have no gradient");
  });
}

// Without max_tokens, places of tokens would be numbered differently.
TEST(ExpertParallel, UnequalNumbersOfTokensAreAnErrorOnAllRanks) {
  const TokenGrainScope grain(4);
  comm::run_ranks(2, [&](comm::ProcessGroup& world) {
    const dist::Mesh mesh = dist::init_device_mesh("cpu", {2}, {.names = {"ep"}});
    seed_all(11);
    nn::MoE layer(options());
    expert_parallel(layer, mesh);
    nn::initialize(layer);
    const std::string said = message_of([&] { layer.forward(zeros({world.rank() == 0 ? 8 : 12, kDim})); });
    EXPECT_NE(said.find(world.rank() == 0 ? "has at most 8 tokens with 3 experts each, of 8"
                                          : "has at most 12 tokens with 3 experts each, of 8"),
              std::string::npos)
        << said;
    EXPECT_EQ(layer.forward(zeros({8, kDim})).extents(), (Extents{8, kDim})) << "the next step";
  });
}

// A step that is refused leaves nothing behind.
TEST(ExpertParallel, AStepAfterARefusedOneIsAsWithoutIt) {
  const TokenGrainScope grain(4);
  comm::run_ranks(2, [&](comm::ProcessGroup& world) {
    const dist::Mesh all = dist::init_device_mesh("cpu", {1, 2}, {.names = {"efsdp", "ep"}});
    seed_all(11);
    nn::MoE layer(options());
    expert_parallel(layer, all->slice({"ep"}));
    nn::initialize(layer);
    std::vector<Tensor> leaves;
    for (const auto& [name, p] : layer.named_parameters()) leaves.push_back(p.leaf());
    const ExpertRanks ranks{.all = &world, .experts = all->slice({"ep"}), .replicas = all->group("efsdp").get()};
    Shards shards(kShards, &world, leaves, Schedule::every_round, Overlap::none,
                  expert_classes(leaves, kShards, ranks));
    const auto run = [&](int64_t s) {
      const Tensor y = layer.forward(tokens_of(s, DType::f32));
      backward(y, full_like(y, 0.5), {.sink = shards.sink()});
    };
    const auto step = [&] {
      for (const int64_t s : shards.local_shards()) run(s), shards.add(zeros({1}));
      return shards.finish();
    };
    const ShardSums before = step();
    run(shards.local_shards()[0]);
    EXPECT_THROW(shards.add(zeros({1}, DType::f64)), UsageError);
    const ShardSums after = step();
    for (size_t p = 0; p < leaves.size(); ++p)
      EXPECT_TRUE(have_same_bits(values_of(before.gradients[p]), values_of(after.gradients[p]))) << p;
  });
}

// Biases of routers are buffers, which every tensor-parallel rank has as a distributed tensor.
TEST(ExpertParallel, StateDictsOfOneRankAreLoaded) {
  comm::run_ranks(4, [&](comm::ProcessGroup&) {
    const dist::Mesh tensor = dist::init_device_mesh("cpu", {2, 2}, {.names = {"dp", "tp"}})->slice({"tp"}),
                     experts = dist::init_device_mesh("cpu", {4}, {.names = {"ep"}});
    seed_all(11);
    nn::MoE one(options()), layer(options());
    nn::initialize(one);
    const Tensor bias = one.gate->expert_bias.use();
    for (int64_t e = 0; e < kExperts; ++e) bias.data<float>()[e] = static_cast<float>(e) * 0.01f - 0.03f;
    expert_parallel(layer, experts);
    parallelize_module(layer, tensor, ParallelPlan{});
    layer.load_state_dict(one.state_dict());
    for (const auto& [name, values] : one.state_dict()) {
      for (const auto& [other, loaded] : layer.state_dict())
        TUTTI_CHECK(name != other || have_same_bits(values_of(values), values_of(loaded)), "{} has other values", name);
    }
    TUTTI_CHECK(have_same_bits(values_of(layer.gate->bias()), values_of(bias)), "the rank's bias has other values");
  });
}

// Samples have few tokens: the last of the tensor-parallel ranks may have fewer than others, or none.
TEST(ExpertParallel, TensorParallelRanksMayHaveUnequalNumbersOfTokens) {
  comm::run_ranks(4, [&](comm::ProcessGroup&) {
    const dist::Mesh tensor = dist::init_device_mesh("cpu", {4}, {.names = {"tp"}}),
                     experts = dist::init_device_mesh("cpu", {2, 2}, {.names = {"efsdp", "ep"}})->slice({"ep"});
    seed_all(11);
    nn::MoE layer(options()), all(options());
    expert_parallel(layer, experts);
    parallelize_module(layer, tensor, ParallelPlan{});
    nn::initialize(layer);
    nn::initialize(all);
    const NoGradScope no_grad;
    for (const int64_t tokens : {1, 2, 3, 5, 7, 12}) {
      const Tensor x = facets::sample_tensor(static_cast<uint64_t>(tokens), {tokens, kDim});
      const Tensor y = layer.forward(dist::distribute_tensor(x, tensor, {dist::shard(0)}, {.src_data_rank = -1}));
      TUTTI_CHECK(have_same_bits(values_of(y), values_of(all.forward(x))), "{} tokens: the outputs have other bits",
                  tokens);
    }
    const std::string whole = message_of(
        [&] { layer.forward(dist::distribute_tensor(zeros({12, kDim}), tensor, {}, {.src_data_rank = -1})); });
    EXPECT_NE(whole.find("expected tokens that ranks divide, [S(0)]"), std::string::npos) << whole;
  });
}

TEST(ExpertParallel, StoresAndDrawsTheExpertsOfTheRank) {
  comm::run_ranks(4, [&](comm::ProcessGroup& world) {
    const dist::Mesh mesh = dist::init_device_mesh("cpu", {4}, {.names = {"ep"}});
    seed_all(11);
    nn::MoE fresh(options()), filled(options()), all(options());
    expert_parallel(fresh, mesh);
    for (nn::MoE* layer : {&fresh, &filled, &all}) nn::initialize(*layer);
    expert_parallel(filled, mesh);
    const std::vector<float> whole = values_of(all.experts->w1.master());
    const auto part = static_cast<std::ptrdiff_t>(whole.size() / 4);
    const std::vector<float> own(whole.begin() + part * world.rank(), whole.begin() + part * (world.rank() + 1));
    EXPECT_EQ(fresh.experts->w1.stored().extents(), (Extents{kExperts / 4, kHidden, kDim}));
    EXPECT_EQ(values_of(fresh.experts->w1.stored()), own);
    EXPECT_EQ(values_of(filled.experts->w1.stored()), own);
  });
}

TEST(ExpertParallel, SaysWhatDoesNotFit) {
  comm::run_ranks(4, [&](comm::ProcessGroup&) {
    const dist::Mesh all = dist::init_device_mesh("cpu", {2, 2}, {.names = {"efsdp", "ep"}});
    nn::MoE layer(options());
    EXPECT_NE(
        message_of([&] { expert_parallel(layer, all); }).find("has 2 dims; expected one, take mesh->slice({\"ep\"})"),
        std::string::npos);
    nn::MoEOptions odd = options();
    odd.router.num_experts = 7;
    nn::MoE seven(odd);
    EXPECT_EQ(message_of([&] { expert_parallel(seven, all->slice({"ep"})); }),
              "expert_parallel: '' has 7 experts, which 2 ranks cannot divide equally; expected a divisor of 7");
    EXPECT_NE(
        message_of([&] { expert_parallel(layer, all->slice({"ep"}), {.max_tokens = -1}); }).find("max_tokens = -1"),
        std::string::npos);
    expert_parallel(layer, all->slice({"ep"}), {.max_tokens = 128});
    nn::initialize(layer);
    EXPECT_NE(message_of([&] { layer.forward(zeros({200, kDim})); }).find("200 tokens, and max_tokens is 128"),
              std::string::npos);
  });
}

}  // namespace
}  // namespace tutti::parallel
