// Modules of one model that compute in different dtypes, divided over ranks: the masters are f32 everywhere, and each
// group's copies have the dtypes that its modules were given before.
#include <gtest/gtest.h>

#include <vector>

#include "tests/parallel/support/sharded_training.h"
#include "tutti/autograd/backward.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/dist/dtensor.h"
#include "tutti/nn/linear.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/random.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/unary.h"
#include "tutti/optim/optimizer.h"
#include "tutti/parallel/fully_shard.h"
#include "tutti/parallel/shards.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::parallel {
namespace {

// A layer in bf16 between two in f32, and one in f16 beside it, as layers that must be exact or may be coarse are
// mixed.
struct Mixed final : nn::Module {
  Mixed() {
    middle->to(DType::bf16);
    side->to(DType::f16);
  }
  Tensor forward(const Tensor& x) const {
    const Tensor y = tanh(first(x));
    const Tensor both =
        add(cast(middle(cast(y, DType::bf16)), DType::f32), cast(side(cast(y, DType::f16)), DType::f32));
    return sum(last(both), {.dims = {1}});
  }
  nn::Child<nn::Linear> first{this, "first", 6, 7}, middle{this, "middle", 7, 7}, side{this, "side", 7, 7},
      last{this, "last", 7, 3};
};

std::vector<float> trained(comm::ProcessGroup& group, bool sharded, bool apart) {
  seed_all(21);
  Mixed model;
  if (sharded) {
    if (apart) {
      fully_shard(*model.middle);
      fully_shard(*model.side);
    }
    fully_shard(model);
    for (const auto& [name, p] : model.named_parameters())
      TUTTI_CHECK(p.master().dtype() == DType::f32, "the master of {} is {}", name, describe(p.master()));
  }
  nn::initialize(model);
  const auto optimizer = optim::make_adamw(model.named_parameters(), {.lr = 0.03});
  Shards shards(4, &group, nn::leaves_of(optimizer->parameters()));
  std::vector<float> values;
  for (int64_t step = 1; step <= 3; ++step) {
    for (Shard& shard : shards.step(step)) {
      const Tensor error = sub(nn::call(model, uniform({5, 6}, -1.0, 1.0)), 0.5);
      shard.backward(mul(error, error), 1.0 / 20);
    }
    const StepResult result = shards.finish_step(*optimizer, {.max_norm = 1.0});
    values.push_back(static_cast<float>(result.loss));
    values.push_back(result.norm);
  }
  for (const auto& [name, p] : model.named_parameters()) {
    const Tensor master = p.master(), whole = contiguous(dist::is_dtensor(master) ? dist::full_tensor(master) : master);
    values.insert(values.end(), whole.data<float>(), whole.data<float>() + whole.numel());
  }
  return values;
}

TEST(ModulePrecision, OfEachModuleHasTheBitsOfOneRank) {
  std::vector<float> expected;
  comm::run_ranks(1, [&](comm::ProcessGroup& group) { expected = trained(group, false, false); });
  for (const std::string transport : {"", "gloo"}) {
    for (const int ranks : {1, 2, 3, 4}) {
      for (const bool apart : {false, true}) {
        comm::run_ranks(ranks,
                        [&](comm::ProcessGroup& group) {
                          EXPECT_EQ(trained(group, true, apart), expected)
                              << ranks << " ranks"
                              << (apart ? ", a group for each dtype" : ", one group of all dtypes");
                        },
                        {.transport = transport});
      }
    }
  }
}

}  // namespace
}  // namespace tutti::parallel
