// A module on distributed parameters trains to the bits of one rank.
#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "tests/support/same_bits.h"
#include "tutti/autograd/backward.h"
#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/nn/activation.h"
#include "tutti/nn/containers.h"
#include "tutti/nn/linear.h"
#include "tutti/nn/module_call.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/optimizer_step.h"
#include "tutti/ops/random_key.h"
#include "tutti/ops/reduction.h"
#include "tutti/parallel/distribute_module.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::parallel {
namespace {

struct Mlp : nn::Module {
  Mlp() { net->add<nn::Linear>(8, 16).add<nn::SiLU>().add<nn::Linear>(16, 8); }
  Tensor forward(const Tensor& x) const { return net(x); }
  nn::Child<nn::Sequential> net{this, "net"};
};

const Tensor kInput = facets::sample_tensor(3, {6, 8}, DType::f32, -1.0, 1.0);

// Two steps; weights and losses.
std::vector<Tensor> train(Mlp& mlp, const std::function<Tensor(const Tensor&)>& whole) {
  std::vector<Tensor> seen, moments;
  for (const auto& [name, p] : mlp.named_parameters()) {
    moments.push_back(mul(p.master(), 0.0));
    moments.push_back(mul(p.master(), 0.0));
  }
  for (int64_t step = 1; step <= 2; ++step) {
    const Tensor y = nn::call(mlp, kInput);
    const Tensor loss = sum(mul(y, y));
    backward(loss);
    seen.push_back(whole(loss));
    const NoGradScope no_grad;
    size_t k = 0;
    for (const auto& [name, p] : mlp.named_parameters()) {
      seen.push_back(whole(p.grad()));
      adamw_step_(p.master(), p.grad(), moments[k], moments[k + 1], {.lr = 0.1, .step = step});
      k += 2;
      p.set_grad({});
      seen.push_back(whole(p.master()));
    }
  }
  return seen;
}

void build(Mlp& mlp) {
  seed_all(5);
  nn::initialize(mlp);
}

TEST(DistributeModule, TrainsToTheBitsOfOneRank) {
  const codegen::ContractionLeafForTests leaf(2);
  Mlp plain;
  build(plain);
  const std::vector<Tensor> expected = train(plain, [](const Tensor& t) { return clone(t); });
  for (const int ranks : {2, 4}) {
    comm::run_ranks(ranks, [&](comm::ProcessGroup&) {
      const dist::Mesh mesh = dist::init_device_mesh("cpu", {ranks});
      Mlp mlp;
      build(mlp);
      distribute_module(
          mlp, mesh,
          [](const std::string& name, const nn::Parameter&) -> dist::Placements {
            if (name == "net.0.weight" || name == "net.0.bias") return {dist::shard(0)};
            if (name == "net.2.weight") return {dist::shard(1)};
            return {};
          },
          [](std::vector<Tensor>& inputs, const dist::Mesh& on) {
            inputs[0] = dist::distribute_tensor(inputs[0], on);
          });
      const std::vector<Tensor> seen = train(mlp, [](const Tensor& t) { return clone(dist::full_tensor(t)); });
      ASSERT_EQ(seen.size(), expected.size());
      for (size_t i = 0; i < seen.size(); ++i) expect_same_bits(seen[i], expected[i], fmt::format("value {}", i));
    });
  }
}

TEST(DistributeModule, OutputsBecomePlainAndWrongPlacementsChangeNothing) {
  comm::run_ranks(2, [](comm::ProcessGroup&) {
    const dist::Mesh mesh = dist::init_device_mesh("cpu", {2});
    Mlp mlp;
    EXPECT_NE(message_of([&] { distribute_module(mlp, mesh); }).find("has no values yet"), std::string::npos);
    build(mlp);
    const Tensor before = nn::call(mlp, kInput);
    EXPECT_NE(message_of([&] {
                distribute_module(mlp, mesh, [](const std::string&, const nn::Parameter&) -> dist::Placements {
                  return {dist::shard(1)};
                });
              })
                  .find("distribute_module: parameter 'net.0.bias': distribute_tensor: S(1) shards a dim that a tensor "
                        "of [16] does not have"),
              std::string::npos);
    EXPECT_FALSE(dist::is_dtensor(mlp.named_parameters()[0].parameter.master()));
    distribute_module(
        mlp, mesh, {},
        [](std::vector<Tensor>& inputs, const dist::Mesh& on) { inputs[0] = dist::distribute_tensor(inputs[0], on); },
        [](const Tensor& y, const dist::Mesh&) { return dist::full_tensor(y); });
    expect_same_bits(nn::call(mlp, kInput), before, "output");
    EXPECT_NE(message_of([&] {
                mlp.named_parameters()[0].parameter.set_master(kInput);
              }).find("its values cannot be [6, 8] f32 cpu"),
              std::string::npos);
  });
}

}  // namespace
}  // namespace tutti::parallel
