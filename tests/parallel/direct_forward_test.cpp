// Modules whose forward a program calls itself, in the place of the module, so that no hooks run: the copies are there
// when they are read, in forward and in backward.
#include "tests/parallel/support/chain.h"
#include "tutti/dist/dtensor.h"
#include "tutti/ops/copy.h"
#include "tutti/parallel/shards.h"

namespace tutti::parallel {
namespace {

// Each block's forward directly, too.
Tensor direct(const Chain& model, const Tensor& x) {
  Tensor y = mul(x, model.scale.use());
  for (const nn::Child<nn::Linear>& block : *model.blocks) y = tanh(block->forward(y));
  return sum(y);
}

struct Step {
  std::vector<float> gradients;
  std::vector<std::string> gathers;
};

Step step_of(comm::ProcessGroup& group, bool is_direct, bool looks_ahead) {
  seed_all(5);
  ShardedChain chain(group);
  chain.root->set_prefetch(0);
  if (looks_ahead) chain.look_two_ahead();
  Step result;
  Shard shard = chain.open();
  Profiler profiler;
  TUTTI_CHECK(profiler.start({.filter = TraceFilter::this_rank, .memory = false}).ok(), "no session");
  const Tensor x = full({2, kWidth}, 0.5);
  const Tensor loss = is_direct ? direct(chain.model, x) : nn::call(chain.model, x);
  profiler.stop();
  result.gathers = gathers_in(profiler.trace());
  for (const ShardedModule& block : chain.blocks)
    TUTTI_CHECK(block.is_shared() || block.is_unsharded() == is_direct, "a block between forward and backward");
  backward(loss, ones(loss.sizes()), {.sink = shard.sink()});
  for (const ShardedModule& block : chain.blocks)
    TUTTI_CHECK(block.is_shared() || !block.is_unsharded(), "a block is whole after backward");
  shard.add(reshape(detach(loss), {1}));
  const ShardSums sums = chain.shards->finish();
  for (const Tensor& gradient : sums.gradients) {
    const Tensor whole = contiguous(dist::full_tensor(gradient));
    result.gradients.insert(result.gradients.end(), whole.data<float>(), whole.data<float>() + whole.numel());
  }
  return result;
}

TEST(DirectForward, HasTheGradientsOfACall) {
  for (const char* transport : {"threads", "gloo"}) {
    comm::run_ranks(
        2,
        [](comm::ProcessGroup& group) {
          for (const bool looks_ahead : {false, true}) {
            const Step called = step_of(group, false, looks_ahead), itself = step_of(group, true, looks_ahead);
            TUTTI_CHECK(called.gradients == itself.gradients, "other gradients");
            if (called.gathers.empty()) continue;  // the ranks share pages
            // Lists begin with calls.
            const std::vector<std::string> expected{"start (the model)", "end", "start (blocks.0)", "end",
                                                    "start (blocks.1)",  "end", "start (blocks.2)", "end",
                                                    "start (blocks.3)",  "end"};
            TUTTI_CHECK(itself.gathers == expected, "{}", fmt::join(itself.gathers, ", "));
            TUTTI_CHECK((called.gathers == expected) == !looks_ahead, "{}", fmt::join(called.gathers, ", "));
          }
        },
        {.transport = transport});
  }
}

// A parameter that a backward has not reached leaves nothing behind for the next one.
TEST(DirectForward, KeepsCopiesUntilBackwardHasAllGradients) {
  struct Two final : nn::Module {
    Two() {
      a = register_parameter("a", {6}, nn::Init::ones());
      b = register_parameter("b", {6}, nn::Init::ones());
    }
    Tensor forward(const Tensor& x, bool uses_b) const {
      const Tensor y = mul(x, a.use());
      return sum(uses_b ? mul(y, b.use()) : y);
    }
    nn::Parameter a, b;
  };
  comm::run_ranks(2,
                  [](comm::ProcessGroup& group) {
                    Two model;
                    const ShardedModule sharded =
                        fully_shard(model, {.mesh = mesh_for(group, 1), .reshard_after_forward = true});
                    nn::initialize(model);
                    const auto run = [&](bool uses_b) {
                      Shards shards(2, &group, nn::leaves_of(model.named_parameters()));
                      const Tensor loss = model.forward(ones({6}), uses_b);
                      backward(loss, ones(loss.sizes()), {.sink = shards.sink()});
                      const bool is_kept = sharded.is_unsharded();
                      shards.abandon();
                      return is_kept;
                    };
                    TUTTI_CHECK(run(false), "given back before all gradients are there");
                    TUTTI_CHECK(!run(true), "kept after backward");
                    TUTTI_CHECK(run(false), "the gradients of the backward before counted");
                    sharded.reshard();
                    TUTTI_CHECK(!sharded.is_unsharded(), "reshard() keeps copies");
                  },
                  {.transport = "gloo"});
}

}  // namespace
}  // namespace tutti::parallel
